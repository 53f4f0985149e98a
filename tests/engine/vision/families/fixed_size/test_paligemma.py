"""PaliGemma against transformers: its encoder, and prompts whose tokens all attend to each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.chat.local import LocalChat
from engine.core import Message
from engine.errors import BadCheckpoint
from engine.vision import Span
from engine.vision.encoders.patch_encoder import PatchEncoder
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.test_chats import TOKENS, assert_as_transformers
from tests.engine.vision.tiny.chats import Reply, asked, opened
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture
from tests.engine.vision.tiny.paligemma_prefix import KINDS, PATCH, SIDE, processor
from tests.engine.vision.tiny.whole_models import Case


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return KINDS[request.param](tmp_path_factory.mktemp("paligemma"))


@pytest.fixture
def chat(made: Case) -> Iterator[LocalChat]:
    found = opened(made.folder)
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), [(60, 40), (10, 7), (42, 42)])
def test_rows_are_those_of_transformers(made: Case, width: int, height: int) -> None:
    image, encoded = picture(width, height), Encoded(made.folder)
    values = processor()([image], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = made.model.model.get_image_features(values).pooler_output[0]
    assert encoded.layout(width, height) == (Span(SIDE // PATCH, SIDE // PATCH),)
    assert_close(encoded.states(image), expected.numpy())
    encoded.close()


def test_prompts_have_their_usual_form(made: Case, chat: LocalChat) -> None:
    """Pictures first, then the beginning of a text and the last question; the rest is left out."""
    turns = [asked("One?", (20, 20)), Message("assistant", "A cat."), asked("And this?", (30, 40))]
    ids = Reply(chat, turns, 1).plain_ids(made.token)
    tokens = (SIDE // PATCH) ** 2
    assert ids[: 2 * tokens] == [made.token] * (2 * tokens)
    assert made.token not in ids[2 * tokens :]
    tokenizer = chat.tokenizer
    assert tokenizer.decode(ids[2 * tokens + 1 :]) == "And this?\n"
    assert ids[2 * tokens] == tokenizer.bos_token_id


def test_replies_are_those_of_transformers(made: Case, chat: LocalChat) -> None:
    """Also where another prompt begins alike, whose keys and values are others."""
    sizes = (60, 40)
    reply = Reply(chat, [asked("What is this?", sizes)], TOKENS)
    assert_as_transformers(made, reply, sizes)
    other = Reply(chat, [asked("What is this? Say it in a few words.", sizes)], TOKENS)
    assert_as_transformers(made, other, sizes)
    assert other.cached == 0
    again = Reply(chat, [asked("What is this?", sizes)], TOKENS)
    windows = hasattr(made.model.config.text_config, "sliding_window")  # which the last token would keep to
    assert (again.ids, again.cached) == (reply.ids, 0 if windows else len(reply.rendered.ids) - 1)
    two = Reply(chat, [asked("What are these?", sizes, (10, 90))], TOKENS)
    assert_as_transformers(made, two, sizes, (10, 90))


def test_pictures_are_looked_at_once(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the whole of each prompt is read again."""
    encode, seen = PatchEncoder.encode, list[int]()

    def counted(encoder: PatchEncoder, data: bytes) -> Any:
        seen.append(len(data))
        return encode(encoder, data)

    monkeypatch.setattr(PatchEncoder, "encode", counted)
    first = asked("One?", (60, 40))
    Reply(chat, [first], 2)
    turns = [first, Message("assistant", "A cat."), asked("And this?", (30, 40))]
    assert Reply(chat, turns, 2).cached == 0
    assert len(seen) == 2


def test_a_longer_prompt_than_a_pass_of_text_has(made: Case, chat: LocalChat) -> None:
    reply = Reply(chat, [asked("What is this? " * 130, (60, 40))], TOKENS)
    assert len(reply.rendered.ids) > 600
    assert_as_transformers(made, reply, (60, 40))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"image_size": 5}, "5 pixels wide"), ({"hidden_size": 40}, "multiple of num_attention_heads")],
)
def test_damaged_headers(made: Case, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    for each in made.folder.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["vision_config"].update(changes)
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(BadCheckpoint, match=words):
        vision_spec(open_checkpoint(tmp_path))
