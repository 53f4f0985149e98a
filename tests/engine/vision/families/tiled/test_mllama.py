"""Llama 3.2 Vision against transformers: its encoder, and what a text sees of several pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core import Message
from engine.errors import BadCheckpoint
from engine.models.cross_cache import group_after
from engine.models.memory.estimate import cache_bytes
from engine.settings import CacheSettings
from engine.vision import Span
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.test_chats import TOKENS, assert_as_transformers
from tests.engine.vision.tiny.chats import Reply, opened, shown
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture
from tests.engine.vision.tiny.mllama_tiles import mllama, processor
from tests.engine.vision.tiny.whole_models import Case

SIZES = ((60, 40), (10, 7), (1, 300), (400, 10), (28, 28), (56, 57), (97, 31))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return mllama(tmp_path_factory.mktemp("mllama"))


@pytest.fixture(scope="module")
def encoded(made: Case) -> Iterator[Encoded]:
    found = Encoded(made.folder)
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_transformers(made: Case, encoded: Encoded, width: int, height: int) -> None:
    """Those of the tiles that the picture has."""
    image = picture(width, height)
    given = processor()([[image]], return_tensors="pt")
    (count,) = given.pop("num_tiles")[0]
    with torch.no_grad():
        found = made.model.model.vision_model(**given).last_hidden_state
        rows = made.model.model.multi_modal_projector(found)[0, 0, :count]
    assert encoded.layout(width, height) == (Span(1, 1),)
    (spans,) = encoded.rows(image)
    assert_close(spans.states, rows.reshape(-1, rows.shape[-1]).numpy())


def test_a_token_sees_the_last_picture_and_those_right_before_it() -> None:
    pictures = [(1 << 30) + number for number in range(4)]
    seen: list[Any] = []
    group, last = (), False
    for id in (5, *pictures[:1], 6, 7, *pictures[1:3], 8, *pictures[3:], 9):
        group, last = group_after([id], group, last)
        seen.append(tuple(pictures.index(each) for each in group))
    assert seen == [(), (0,), (0,), (0,), (1,), (1, 2), (1, 2), (3,), (3,)]


def test_pictures_in_a_row_are_seen_together(made: Case) -> None:
    """And a text after them; of those before them it sees none."""
    sizes = ((60, 40), (10, 7), (90, 31))
    one, *others = shown(*sizes)
    first = Message("user", f"What is this? {one.words}", pictures=(one,))
    both = Message("user", "".join(each.words for each in others) + "And these?", pictures=tuple(others))
    chat = opened(made.folder)
    reply = Reply(chat, [first, Message("assistant", "A cat."), both], TOKENS)
    ids = reply.plain_ids(made.token)
    places = [at for at, id in enumerate(ids) if id == made.token]
    assert places[1] + 1 == places[2]
    assert_as_transformers(made, reply, *sizes)
    turned = [first, Message("assistant", "A dog."), both]  # what is cached ends in the middle
    assert_as_transformers(made, Reply(chat, turned, TOKENS), *sizes)
    chat.close()


def test_what_is_seen_of_the_largest_picture_is_foreseen(made: Case) -> None:
    chat = opened(made.folder)
    Reply(chat, [Message("user", "What?" + shown((97, 97))[0].words, pictures=shown((97, 97)))], 1)
    store, info, settings = chat.generator.cache.store, chat.info, CacheSettings(context_length=300)
    assert store.cross is not None
    blind = replace(info, picture_shapes=())
    said, without = (cache_bytes(each, settings, free=1 << 30) for each in (info, blind))
    assert said.context_bytes - without.context_bytes == store.cross.nbytes > 0
    assert said.total_bytes - without.total_bytes == store.cross.nbytes
    assert said.bytes_per_token == without.bytes_per_token
    chat.close()


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("preprocessor_config.json", {"max_image_tiles": 5}, "up to 5 tiles.* up to 4 in 8 grids"),
        ("config.json", {"image_token_index": 1 << 20}, "image_token_index"),
        ("config.json", {"num_global_layers": 3}, "global_transformer.layers.2"),
        ("config.json", {"intermediate_layers_indices": [9]}, "intermediate_layers_indices"),
    ],
)
def test_damaged_headers(made: Case, tmp_path: Path, file: str, changes: dict[str, Any], words: str) -> None:
    for each in made.folder.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    changed = json.loads((tmp_path / file).read_text("utf-8"))
    inside = changed["vision_config"] if next(iter(changes)) in changed.get("vision_config", {}) else changed
    inside.update(changes)
    (tmp_path / file).write_text(json.dumps(changed), "utf-8")
    with pytest.raises(BadCheckpoint, match=words):
        vision_spec(open_checkpoint(tmp_path))
