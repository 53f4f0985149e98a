"""Ovis2 against transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import Ovis2Config, Ovis2ForConditionalGeneration
from transformers.models.ovis2.image_processing_pil_ovis2 import Ovis2ImageProcessorPil

from engine.core import FIRST_PICTURE_ID
from engine.vision import Span
from tests.engine.vision.tiny.chats import Reply, add_text, asked, by_transformers, opened, vocabulary
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import SIZES, Encoded, Floats, assert_close, picture, randomise, save
from tests.engine.vision.tiny.whole_models import END, TEXT

SIDE, PATCH, MOST = 28, 7, 4
MARKS = ["<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"]


def made(folder: Path, **vision: Any) -> tuple[Any, Any]:
    """A model and its image processor, saved in `folder`; `vision` are changes to the tower."""
    size, ids = vocabulary(["<image>", "<IMG_ATOM>", *MARKS, END])
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": SIDE, "patch_size": PATCH, "hidden_stride": 2, "vocab_size": 37,
        "num_visual_indicator_tokens": 5, **vision,
    }  # fmt: skip
    config = Ovis2Config(
        vision_config=tower, text_config={"model_type": "qwen2", **TEXT, "num_key_value_heads": 1,
        "vocab_size": size}, image_token_id=ids["<IMG_ATOM>"], hidden_size=32, vocab_size=size,
        visual_indicator_token_ids=[ids[mark] for mark in MARKS], tie_word_embeddings=False,
    )  # fmt: skip
    model = randomise(Ovis2ForConditionalGeneration(config))
    model.model.vision_tower.head_norm.weight.data *= 3  # so that some words are much likelier than others
    processor = Ovis2ImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_to_patches=True, max_patches=MOST
    )
    save(model, processor, folder)
    return model, processor


def marks_of(grid: Sequence[int], tokens: int) -> list[str]:
    """The tokens of a picture in so many rows and columns of tiles."""
    found = ["<IMG_START>", *["<IMG_ATOM>"] * tokens, "<IMG_GRID>"]
    rows, columns = grid
    for tile in range(rows * columns if rows * columns > 1 else 0):
        if tile:
            found.append("<IMG_COL>" if tile % columns else "<IMG_ROW>")
        found += ["<IMG_ATOM>"] * tokens
    return [*found, "<IMG_END>"]


def expected_rows(model: Any, processor: Any, images: Sequence[Image.Image]) -> Floats:
    inputs = processor(list(images), return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"])
    tokens = found.pooler_output.shape[1]
    atoms = iter(found.pooler_output.flatten(0, 1))
    marks = dict(zip(MARKS, found.visual_indicator_features, strict=True))
    names = marks_of([int(each) for each in inputs["grids"][0]], tokens)
    rows = [next(atoms) if name == "<IMG_ATOM>" else marks[name] for name in names]
    assert next(atoms, None) is None
    made: Floats = torch.stack(rows).numpy()
    return made


@pytest.fixture(scope="module", params=[{}, {"tokenize_function": "st_argmax", "hidden_stride": 1}])
def models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    folder = tmp_path_factory.mktemp("ovis2")
    model, processor = made(folder, **request.param)
    encoded = Encoded(folder)
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_transformers(models: Any, width: int, height: int) -> None:
    model, processor, encoded = models
    expected = expected_rows(model, processor, [picture(width, height)])
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.layout(width, height) == (Span(1, len(expected)),)


def test_other_ways_of_cutting(tmp_path: Path) -> None:
    model, processor = made(tmp_path)
    for number, changes in enumerate(({"use_covering_area_grid": False}, {"crop_to_patches": False})):
        for name, value in changes.items():
            setattr(processor, name, value)
        (tmp_path / str(number)).mkdir()
        encoded = Encoded(save(model, processor, tmp_path / str(number)))
        for size in ((300, 200), (20, 190)):
            assert_close(encoded.states(picture(*size)), expected_rows(model, processor, [picture(*size)]))
        encoded.close()


def test_a_chat(tmp_path: Path) -> None:
    model, processor = made(tmp_path)
    ids = vocabulary(["<image>", "<IMG_ATOM>", *MARKS, END])[1]
    add_text(tmp_path, ["<image>", "<IMG_ATOM>", *MARKS], "<image>")
    chat = opened(tmp_path)
    reply = Reply(chat, [asked("What is this?", (60, 40))])
    chat.close()
    inputs = processor([picture(60, 40)], return_tensors="pt")
    names = iter(marks_of([int(each) for each in inputs["grids"][0]], 4))
    prompt = [id if id < FIRST_PICTURE_ID else ids[next(names)] for id in reply.rendered.ids]
    written, _likely = by_transformers(
        model, prompt, len(reply.ids), eos_token_id=ids[END],
        pixel_values=inputs["pixel_values"],
    )  # fmt: skip
    assert reply.ids == written


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5}, {"vocab_size": 5}, {"vocab_size": 38}, {"hidden_stride": 3},
        {"image_size": 29}, {"tokenize_function": "gumbel_argmax"}, {"num_hidden_layers": 3},
    ],
)  # fmt: skip
def test_damaged_headers(models: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_refused(models[2].path, tmp_path, changes)
