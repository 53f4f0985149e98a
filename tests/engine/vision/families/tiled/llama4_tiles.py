"""What transformers' image processor of Llama 4 cuts, of which only the sizes can be had without
torchvision.
"""

from __future__ import annotations

import ast
import importlib.util
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image

RULES = "get_factors", "get_max_res_without_distortion", "find_supported_resolutions", "get_best_fit"


@lru_cache
def rules() -> dict[str, Any]:
    """The functions that compute sizes."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "models" / "llama4" / "image_processing_llama4.py"
    kept = [each for each in ast.parse(source.read_text("utf-8")).body if getattr(each, "name", "") in RULES]
    assert len(kept) == len(RULES)
    names: dict[str, Any] = {
        "math": math, "torch": torch, "defaultdict": defaultdict, "lru_cache": lru_cache,
        "SizeDict": SimpleNamespace,
    }  # fmt: skip
    exec(compile(ast.Module(kept, []), str(source), "exec"), names)  # names are the package's own
    return names


def grid(image: Image.Image, side: int, most: int) -> tuple[int, int]:
    """How many tiles are one above another, and side by side."""
    square = SimpleNamespace(height=side, width=side)
    sizes = torch.tensor(rules()["find_supported_resolutions"].__wrapped__(most, square))
    high, wide = rules()["get_best_fit"](image.size[::-1], sizes).tolist()
    return high // side, wide // side


def crops(image: Image.Image, side: int, most: int) -> list[Image.Image]:
    """The tiles of a picture, and all of it if there are several."""
    high, wide = grid(image, side, most)
    limits = tuple(
        min(max(size, side), count * side) for size, count in zip(image.size[::-1], (high, wide), strict=True)
    )
    height, width = (
        max(1, each) for each in rules()["get_max_res_without_distortion"](image.size[::-1], limits)
    )
    canvas = Image.new("RGB", (wide * side, high * side))
    canvas.paste(image.resize((width, height), Image.Resampling.BILINEAR))
    found = [
        canvas.crop((side * column, side * row, side * (column + 1), side * (row + 1)))
        for row in range(high)
        for column in range(wide)
    ]
    if len(found) > 1:
        found.append(image.resize((side, side), Image.Resampling.BILINEAR))
    return found


def batched(images: Sequence[Image.Image]) -> torch.Tensor:
    """Crops as pixel values (n, 3, side, side)."""
    values = np.stack([np.asarray(each, np.float32) for each in images]) / np.float32(255)
    return torch.from_numpy((values - np.float32(0.5)) / np.float32(0.5)).permute(0, 3, 1, 2).contiguous()


def prompt(image: Image.Image, side: int, most: int, tokens: int) -> str:
    """A picture in a prompt, as `Llama4Processor._prompt_split_image` writes it."""
    (high, wide), tile = grid(image, side, most), "<|patch|>" * tokens
    line = "<|tile_x_separator|>".join([tile] * wide) + "<|tile_y_separator|>"
    lines = line * high if high * wide > 1 else ""
    return f"<|image_start|>{lines}<|image|>{tile}<|image_end|>"
