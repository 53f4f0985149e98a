"""LLaVA-NeXT and Granite Vision against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
)
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

from engine.errors import BadCheckpoint
from engine.models.headers.keys import Keys
from engine.vision.families.tiled.llava_next import Tiles, from_gguf, from_hf
from engine.vision.pictures.images import BICUBIC
from tests.engine.vision.tiny.chats import Reply, add_text, asked, by_transformers, opened, vocabulary
from tests.engine.vision.tiny.converted import FLATTENED, encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.whole_models import END
from tests.engine.vision.tiny.whole_models import TEXT as WORDS

SIDE, PATCH = 56, 7
GRIDS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]
TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "image_size": SIDE, "patch_size": PATCH,
}  # fmt: skip
CASES: dict[str, Any] = {
    "llava_next": ("clip_vision_model", {}),
    "llava_next_video": (
        "clip_vision_model", {}, LlavaNextVideoConfig, LlavaNextVideoForConditionalGeneration,
    ),
    "granite_vision": (
        "siglip_vision_model",
        {"vision_feature_layer": [-4, 2, -1], "vision_feature_select_strategy": "full"},
    ),
}  # fmt: skip


def made(
    kind: str, settings: Any, config_class: Any = LlavaNextConfig,
    model_class: Any = LlavaNextForConditionalGeneration,
) -> tuple[Any, Any]:  # fmt: skip
    """A model and its image processor."""
    config = config_class(
        vision_config={"model_type": kind, **TOWER}, text_config={"model_type": "llama", **TEXT},
        image_grid_pinpoints=GRIDS, **settings,
    )  # fmt: skip
    processor = LlavaNextImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=GRIDS
    )
    return randomise(model_class(config)), processor


@pytest.fixture(scope="module", params=CASES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    model, processor = made(*CASES[request.param])
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("llava_next")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), [*SIZES, (112, 56), (60, 55)])
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(
            pixel_values=inputs["pixel_values"], image_sizes=inputs["image_sizes"],
            vision_feature_layer=model.config.vision_feature_layer,
            vision_feature_select_strategy=model.config.vision_feature_select_strategy,
        ).pooler_output[0]  # fmt: skip
    assert_close(encoded.states(picture(width, height)), found.numpy())
    one = 1 if model.config.vision_feature_select_strategy == "default" else 0
    words = SimpleNamespace(
        image_processor=processor, patch_size=PATCH, num_additional_image_tokens=one,
        vision_feature_select_strategy=model.config.vision_feature_select_strategy, image_token="<image>",
    )  # fmt: skip
    for name in ("_get_number_of_features", "_get_unpadded_features"):
        setattr(words, name, getattr(LlavaNextProcessor, name).__get__(words))
    assert encoded.text(width, height) == LlavaNextProcessor.replace_image_token(words, inputs, 0)


def test_granite_multiplies_pictures_as_it_does_embeddings(tmp_path: Path) -> None:
    size, ids = vocabulary(["<image>", END])
    text = {
        **WORDS, "model_type": "granite", "num_key_value_heads": 1, "vocab_size": size,
        "embedding_multiplier": 12.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4,
    }  # fmt: skip
    kind, settings = CASES["granite_vision"]
    config = LlavaNextConfig(
        vision_config={"model_type": kind, **TOWER}, text_config=text, image_grid_pinpoints=GRIDS,
        image_token_index=ids["<image>"], **settings,
    )  # fmt: skip
    model, (_, processor) = randomise(LlavaNextForConditionalGeneration(config)), made(kind, settings)
    add_text(save(model, processor, tmp_path), ["<image>"], "<image>")
    with closing(opened(tmp_path)) as chat:
        reply = Reply(chat, [asked("What is this?", (60, 40))])
    given = processor([picture(60, 40)], return_tensors="pt")
    written, likely = by_transformers(
        model, reply.plain_ids(ids["<image>"]), 6, eos_token_id=ids[END],
        pixel_values=given["pixel_values"], image_sizes=given["image_sizes"],
    )  # fmt: skip
    assert reply.ids == written
    for token, probabilities in zip(reply.tokens, likely, strict=True):
        for each in token.alternatives:
            assert each.raw_probability == pytest.approx(probabilities[each.id], rel=0.02, abs=2e-4)


def test_an_mmproj_file_says_the_same(tmp_path: Path) -> None:
    model, processor = made(*CASES["llava_next"])
    folder = save(model, processor, tmp_path / "folder")
    names = {
        "multi_modal_projector.linear_1": "mm.0", "multi_modal_projector.linear_2": "mm.2",
        "model.image_newline": "image_newline", "image_newline": "model.image_newline", **FLATTENED,
    }  # fmt: skip
    layers = TOWER["num_hidden_layers"] - 1
    tensors = {
        name: values
        for name, values in encoder_tensors(folder, names).items()
        if f"blk.{layers}." not in name and "post_ln" not in name
    }
    path = write_tower(
        tmp_path, "mlp", model.config.vision_config, TEXT["hidden_size"], tensors, block_count=layers,
        image_grid_pinpoints=[side for grid in GRIDS for side in grid],
    )  # fmt: skip
    same, encoded = Encoded(path), Encoded(folder)
    for width, height in SIZES[:4]:
        assert_close(same.states(picture(width, height)), encoded.states(picture(width, height)))
        assert same.layout(width, height) == encoded.layout(width, height)
    same.close()
    encoded.close()


def test_of_grids_that_keep_all_pixels_the_smallest_counts_whatever_their_order() -> None:
    sizes = tuple((high, wide) for high, wide in GRIDS)
    for width, height, tiles in ((100, 50, 2), (50, 100, 2), (112, 112, 4)):
        pixels = np.zeros((height, width, 3), np.uint8)
        for grids in (sizes, sizes[::-1]):
            assert len(Tiles(SIDE, PATCH, BICUBIC, grids).crops(pixels)) == 1 + tiles


@pytest.mark.parametrize(
    ("grids", "words"),
    [
        ([], "image_grid_pinpoints is .*, but heights and widths were expected"),
        (336, "heights and widths were expected"), ([[336]], "heights and widths were expected"),
        ([[336, 672, 336]], "heights and widths were expected"),
        ([[336, "wide"]], "image_grid_pinpoints"), ([336, 672], "image_grid_pinpoints"),
        ([[336, 335]], "335 pixels wide, but a multiple of 336"),
    ],
)  # fmt: skip
def test_grids_that_are_none(grids: object, words: str) -> None:
    with pytest.raises(BadCheckpoint, match=words):
        from_hf(Keys({"image_grid_pinpoints": grids}, "config.json"), Keys({}, ""), {})


def test_grids_of_an_mmproj_file_are_pairs() -> None:
    keys = {
        "embedding_length": 48, "block_count": 3, "feed_forward_length": 72, "attention.head_count": 4,
        "attention.layer_norm_epsilon": 1e-6, "patch_size": 14, "image_size": 56,
    }  # fmt: skip
    for grids, words in (([56, 112, 56], "heights and widths were expected"), ([56, 111], "111 pixels")):
        stated = {f"clip.vision.{name}": value for name, value in keys.items()}
        found = Keys({**stated, "clip.vision.image_grid_pinpoints": grids}, "mmproj.gguf", "clip.vision.")
        line_end: Any = {"model.image_newline": SimpleNamespace(shape=(40,))}
        with pytest.raises(BadCheckpoint, match=words):
            from_gguf(found, line_end)
