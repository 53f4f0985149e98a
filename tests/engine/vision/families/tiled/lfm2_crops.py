"""What transformers' image processor of LFM2-VL cuts, of which only the sizes can be had without
torchvision.
"""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

PATCH, TILE, FACTOR = 8, 64, 2
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


def batched(found: Sequence[Image.Image]) -> Mapping[str, torch.Tensor]:
    """What the model takes of crops, of which those with fewer patches are padded."""
    most = max(each.width * each.height for each in found) // PATCH**2
    pixels, shapes, masks = list[torch.Tensor](), list[list[int]](), list[torch.Tensor]()
    for each in found:
        values = torch.from_numpy(np.array(each, np.float32)) / 255 * 2 - 1
        rows, columns = each.height // PATCH, each.width // PATCH
        cells = values.reshape(rows, PATCH, columns, PATCH, 3).permute(0, 2, 1, 3, 4).flatten(0, 1).flatten(1)
        pixels.append(torch.nn.functional.pad(cells, (0, 0, 0, most - len(cells))))
        masks.append((torch.arange(most) < len(cells)).int())
        shapes.append([rows, columns])
    return {
        "pixel_values": torch.stack(pixels), "spatial_shapes": torch.tensor(shapes),
        "pixel_attention_mask": torch.stack(masks),
    }  # fmt: skip
