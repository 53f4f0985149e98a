"""LFM2-VL against transformers: its model, and the sizes of its image processor, of which only these can be
used without torchvision.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

from tests.engine.vision.converted import FLATTENED, encoder_tensors, flat_kernels, write_tower
from tests.engine.vision.encoding import SIZES, Encoded, Floats, assert_close, picture, randomise

PATCH, TILE, FACTOR = 8, 64, 2
TEXT = {
    "model_type": "lfm2", "hidden_size": 40, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64, "layer_types": ["full_attention"],
}  # fmt: skip
TOKENS = {"min_image_tokens": 4, "max_image_tokens": 16}
SETTINGS = {
    "tile_size": TILE, "min_tiles": 2, "max_tiles": 10, **TOKENS, "encoder_patch_size": PATCH,
    "downsample_factor": FACTOR, "use_thumbnail": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    "resample": 2,
}  # fmt: skip
RULES = ("_target_ratios", "_get_grid_layout", "smart_resize", "_is_image_too_large")


@lru_cache
def rules() -> Any:
    """The functions of transformers' image processor that compute sizes, without what needs torchvision."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "models" / "lfm2_vl" / "image_processing_lfm2_vl.py"
    kept = list[ast.stmt]()
    for part in ast.parse(source.read_text("utf-8")).body:
        if isinstance(part, ast.FunctionDef) and part.name in (
            "round_by_factor",
            "find_closest_aspect_ratio",
        ):
            kept.append(part)
        elif isinstance(part, ast.ClassDef) and part.name == "Lfm2VlImageProcessor":
            part.bases, part.decorator_list = [], []
            part.body = [each for each in part.body if getattr(each, "name", "") in RULES]
            assert len(part.body) == len(RULES)
            kept.append(part)
    names: dict[str, Any] = {"math": math, "lru_cache": lru_cache}
    exec(compile(ast.Module(kept, []), str(source), "exec"), names)  # names are the package's own
    return names["Lfm2VlImageProcessor"]()


@pytest.fixture(scope="module", params=[True, False], ids=["norm", "no norm"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Encoded]]:
    """A model and the engine's encoder."""
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "patch_size": PATCH, "num_patches": 25, "model_type": "siglip2_vision_model",
    }  # fmt: skip
    config = Lfm2VlConfig(
        vision_config=tower, text_config=TEXT, projector_hidden_size=56, projector_use_layernorm=request.param
    )
    model = randomise(Lfm2VlForConditionalGeneration(config))
    folder = tmp_path_factory.mktemp("lfm2_vl")
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS), "utf-8")
    encoded = Encoded(folder)
    yield model, encoded
    encoded.close()


def crops(image: Image.Image) -> tuple[list[Image.Image], str]:
    """What the image processor cuts, with Pillow's filter, and the text of the processor."""
    width, height = image.size
    sizes = {"encoder_patch_size": PATCH, "downsample_factor": FACTOR}
    whole = rules().smart_resize(height, width, **sizes, **TOKENS)
    thumbnail = image.resize(whole, Image.Resampling.BILINEAR)
    tokens = "<image>" * (whole[0] * whole[1] // (PATCH * FACTOR) ** 2)
    if not rules()._is_image_too_large(
        height, width, TOKENS["max_image_tokens"], **sizes, max_pixels_tolerance=2.0
    ):
        return [thumbnail], f"<|image_start|>{tokens}<|image_end|>"
    wide, high, *size, _count = rules()._get_grid_layout(height, width, 2, 10, TILE)
    large = image.resize(tuple(size), Image.Resampling.BILINEAR)
    found, text = list[Image.Image](), "<|image_start|>"
    for row in range(high):
        for column in range(wide):
            corner = column * TILE, row * TILE
            found.append(large.crop((*corner, corner[0] + TILE, corner[1] + TILE)))
            text += f"<|img_row_{row + 1}_col_{column + 1}|>" + "<image>" * (TILE // PATCH // FACTOR) ** 2
    return [*found, thumbnail], f"{text}<|img_thumbnail|>{tokens}<|image_end|>"


def expected_states(model: Any, found: list[Image.Image]) -> Floats:
    """The model's rows for all crops, of which those with fewer patches are padded."""
    most = max(each.width * each.height for each in found) // PATCH**2
    pixels, shapes, masks = list[torch.Tensor](), list[list[int]](), list[torch.Tensor]()
    for each in found:
        values = torch.from_numpy(np.asarray(each, np.float32)) / 255 * 2 - 1
        rows, columns = each.height // PATCH, each.width // PATCH
        cells = (
            values.reshape(rows, PATCH, columns, PATCH, 3).permute(0, 2, 1, 3, 4).reshape(rows * columns, -1)
        )
        pixels.append(torch.nn.functional.pad(cells, (0, 0, 0, most - len(cells))))
        masks.append((torch.arange(most) < len(cells)).int())
        shapes.append([rows, columns])
    with torch.no_grad():
        states = model.model.get_image_features(
            torch.stack(pixels), spatial_shapes=torch.tensor(shapes), pixel_attention_mask=torch.stack(masks)
        ).pooler_output
    result: Floats = torch.cat(list(states)).numpy()
    return result


@pytest.mark.parametrize(
    ("width", "height"),
    [size for size in SIZES if max(size) < 50 * min(size)] + [(90, 90), (64, 65), (33, 150)],
)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, encoded = pair
    image = picture(width, height)
    found, text = crops(image)
    assert encoded.text(width, height) == text
    assert_close(encoded.states(image), expected_states(model, found))


def test_narrow_pictures_have_no_more_tokens_than_others(pair: Any) -> None:
    """Of transformers' image processor these have many more, which then cannot be batched with tiles."""
    encoded = pair[1]
    for size in ((1, 40000), (40000, 1), (3, 9000)):
        spans = [piece for piece in encoded.layout(*size) if not isinstance(piece, str)]
        assert max(span.tokens for span in spans) <= TOKENS["max_image_tokens"]
        assert len(encoded.states(picture(*size)))


def test_an_mmproj_file_has_the_same_tower(pair: Any, tmp_path: Path) -> None:
    """Its settings of sizes are those of the published models, since there are no keys for them."""
    model, encoded = pair
    vision = model.config.vision_config
    tensors = encoder_tensors(encoded.path, {"model.": "", **FLATTENED})
    tensors["v.patch_embd.weight"] = flat_kernels(tensors["v.patch_embd.weight"], PATCH)
    path = write_tower(
        tmp_path, "lfm2", vision, TEXT["hidden_size"], tensors, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        clip__use_gelu=True, projector__scale_factor=FACTOR, image_size=256,
    )  # fmt: skip
    same = Encoded(path)
    image = picture(250, 130)
    size = 256, 128
    found = expected_states(model, [image.resize(size, Image.Resampling.BILINEAR)])
    assert_close(same.states(image), found)
    assert same.text(*image.size) == f"<|image_start|>{'<image>' * (16 * 8)}<|image_end|>"
    same.close()
