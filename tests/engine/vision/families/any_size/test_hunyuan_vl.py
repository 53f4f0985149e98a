"""HunyuanOCR against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core import Message
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.vision import Positions, Span
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.test_chats import TOKENS, assert_as_transformers
from tests.engine.vision.tiny.chats import Reply, asked, opened
from tests.engine.vision.tiny.converted import encoder_tensors
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture
from tests.engine.vision.tiny.hunyuan_pages import LIMITS, MARK, PATCH, hunyuan_vl, processor
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.engine.vision.tiny.whole_models import Case

SIZES = ((300, 200), (70, 70), (64, 64), (640, 640), (84, 90), (97, 531))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return hunyuan_vl(tmp_path_factory.mktemp("hunyuan"))


@pytest.fixture(scope="module")
def encoded(made: Case) -> Iterator[Encoded]:
    found = Encoded(made.folder)
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(
    made: Case, encoded: Encoded, width: int, height: int
) -> None:
    inputs = processor()([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = made.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    expected = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == MARK * len(expected)
    _time, high, wide = inputs["image_grid_thw"][0].tolist()
    assert encoded.layout(width, height) == (Span(1, 1), Span(high // 2, wide // 2 + 1), Span(1, 1))


@pytest.mark.parametrize("classed", [True, False])
def test_an_mmproj_file_says_the_same(encoded: Encoded, tmp_path: Path, classed: bool) -> None:
    """With the position of a class, or without."""
    tensors = encoder_tensors(encoded.path, skipped=("model.layers", "model.embed_tokens", "model.norm"))
    if not classed:
        tensors["v.position_embd.weight"] = tensors["v.position_embd.weight"][1:]
    keys = {
        "clip.projector_type": "hunyuanocr", "clip.use_gelu": True, "embedding_length": 48, "block_count": 2,
        "feed_forward_length": 72, "attention.head_count": 2, "attention.layer_norm_epsilon": 1e-5,
        "patch_size": PATCH, "image_size": 6 * PATCH, "projection_dim": 32, "spatial_merge_size": 2,
        "image_min_pixels": LIMITS["shortest_edge"], "image_max_pixels": LIMITS["longest_edge"],
    }  # fmt: skip
    sections = {"rope.dimension_sections": [3, 2, 2, 1], "attention.key_length": 16}
    same = Encoded(write_mmproj(tmp_path, "hunyuan_vl", 32, keys, tensors, sections))
    assert replace(same.spec, nbytes=0) == replace(encoded.spec, nbytes=0)
    for width, height in SIZES[:4]:
        assert same.layout(width, height) == encoded.layout(width, height)
        assert_close(same.states(picture(width, height)), encoded.states(picture(width, height)))
    same.close()


@pytest.mark.parametrize("sections", [(3, 2, 2, 1), (3, 3, 2)])
def test_replies_about_several_pictures_in_turns(tmp_path: Path, sections: tuple[int, ...]) -> None:
    """What follows a picture keeps its place in the text; pictures are numbered from the first of all on."""
    case = hunyuan_vl(tmp_path, sections)
    assert vision_spec(open_checkpoint(case.folder)).positions == Positions(sections, counted=True)  # type: ignore[union-attr]
    chat = opened(case.folder)
    first = asked("One?", (70, 100))
    assert_as_transformers(case, Reply(chat, [first], TOKENS), (70, 100))
    turns = [first, Message("assistant", "A cat."), asked("And these?", (140, 60), (64, 64))]
    reply = Reply(chat, turns, TOKENS)
    assert reply.cached > 10
    assert_as_transformers(case, reply, (70, 100), (140, 60), (64, 64))
    chat.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5}, {"patch_size": 0}, {"max_image_size": 100}, {"max_image_size": 64},
        {"num_hidden_layers": 3}, {"spatial_merge_size": 3}, {"hidden_act": 4},
    ],
)  # fmt: skip
def test_damaged_headers(made: Case, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_refused(made.folder, tmp_path, changes)


@pytest.mark.parametrize(
    ("sections", "error", "words"),
    [
        ([3, 5], BadCheckpoint, "xdrope_section is not a list of 4 numbers"),
        (None, BadCheckpoint, "xdrope_section is not a list"),
        ("bicubic", UnsupportedModel, "interpolate_mode to 'bicubic'"),
    ],
)  # fmt: skip
def test_other_positions_are_refused(
    made: Case, tmp_path: Path, sections: Any, error: type[Exception], words: str
) -> None:
    for each in made.folder.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    if isinstance(sections, str):
        config["vision_config"]["interpolate_mode"] = sections
    else:
        config["text_config"]["rope_parameters"]["mrope_section"] = sections
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(error, match=words):
        vision_spec(open_checkpoint(tmp_path))
