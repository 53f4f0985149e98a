"""Idefics3, SmolVLM and Granite Docling against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import (
    Idefics3ImageProcessorPil,
    get_resize_output_image_size,
)
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from engine.vision.families.tiled.idefics3 import Tiles
from engine.vision.pictures.images import LANCZOS
from tests.engine.vision.tiny.converted import encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

PATCH = 7
CASES: dict[str, Any] = {
    "idefics3": (
        Idefics3Config, Idefics3ForConditionalGeneration, Idefics3ImageProcessorPil, "llama", 26, 2, 0,
    ),
    "smolvlm": (SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessorPil, "llama", 24, 4, 0),
    "smolvlm, the larger one": (
        SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessorPil, "llama", 27, 3, 3,
    ),
    "docling": (
        Idefics3Config, Idefics3ForConditionalGeneration, Idefics3ImageProcessorPil, "granite", 12, 4, 0,
    ),
}  # fmt: skip
"""Patches of a side, how many are joined, and pixels left over, as 6 of 384 with patches of 14."""


@pytest.fixture(scope="module", params=CASES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded, int]]:
    """A model, its image processor, the engine's encoder, and how many tokens a tile has."""
    config, model_class, processor_class, text, side, factor, over = CASES[request.param]
    pixels = side * PATCH + over
    vision = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": pixels, "patch_size": PATCH,
    }  # fmt: skip
    whole = config(
        vision_config=vision, text_config={"model_type": text, **TEXT}, scale_factor=factor, image_token_id=3
    )
    model = randomise(model_class(whole))
    processor = processor_class(size={"longest_edge": 3 * pixels}, max_image_size={"longest_edge": pixels})
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("idefics3")))
    yield model, processor, encoded, (side // factor) ** 2
    encoded.close()


def processed(processor: Any, width: int, height: int, **settings: Any) -> Any:
    return processor([picture(width, height)], return_tensors="pt", return_row_col_info=True, **settings)


@pytest.mark.slow_after(8)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded, tokens = pair
    inputs = processed(processor, width, height)
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"], inputs["pixel_attention_mask"])
    expected = torch.cat(list(found.pooler_output)).flatten(0, -2).numpy()
    assert_close(encoded.states(picture(width, height)), expected)
    words = SimpleNamespace(
        fake_image_token="<fake_token_around_image>", global_image_tag="<global-img>", image_token="<image>",
        image_seq_len=tokens,
    )  # fmt: skip
    assert encoded.text(width, height) == Idefics3Processor.replace_image_token(words, inputs, 0)


@pytest.mark.slow_after(1)
def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    model, processor, encoded, _tokens = pair
    vision = model.config.vision_config
    tensors = encoder_tensors(encoded.path)
    path = write_tower(
        tmp_path, "idefics3", vision, TEXT["hidden_size"], tensors, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        projector__scale_factor=model.config.scale_factor, clip__use_gelu=True,
        preproc_image_size=processor.size["longest_edge"],
    )  # fmt: skip
    same = Encoded(path)
    for width, height in SIZES[:4]:
        assert np.array_equal(same.states(picture(width, height)), encoded.states(picture(width, height)))
        assert same.layout(width, height) == encoded.layout(width, height)
    assert same.spec == encoded.spec
    same.close()


def test_a_smaller_grid_takes_the_positions_of_its_shares() -> None:
    from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionEmbeddings

    from engine.vision.families.tiled.idefics3 import placed

    config = Idefics3Config(
        vision_config={"hidden_size": 8, "image_size": 26 * 4, "patch_size": 4}
    ).vision_config
    embeddings = Idefics3VisionEmbeddings(config)
    torch.nn.init.zeros_(embeddings.patch_embedding.weight)
    torch.nn.init.zeros_(embeddings.patch_embedding.bias)
    table = embeddings.position_embedding.weight.detach().numpy()
    for rows, columns in ((26, 26), (13, 26), (5, 7), (1, 25), (27, 3)):
        mask = torch.ones(1, rows, columns, dtype=torch.bool)
        with torch.no_grad():
            expected = embeddings(torch.zeros(1, 3, rows * 4, columns * 4), mask)[0].numpy()
        assert np.array_equal(placed(table, rows, columns), expected)


@pytest.mark.parametrize("longest", [364, 1456, 4096, 5000])
def test_sizes_before_the_cut_are_those_of_transformers(longest: int) -> None:
    """Of large models and small: the longest side, and no side of more than 4096 pixels."""
    tiles = Tiles(longest, 28, 7, 14, LANCZOS)
    for width, height in (*SIZES, (1, 1), (3001, 2000), (4097, 4096), (5, 5000)):
        image = np.broadcast_to(np.uint8(0), (3, height, width))
        assert tiles.first_size(width, height) == get_resize_output_image_size(image, longest)[::-1]
