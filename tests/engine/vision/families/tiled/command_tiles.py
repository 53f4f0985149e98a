"""What transformers' image processor of Command A Vision cuts, of which only the sizes can be had without
torchvision.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


@lru_cache
def canvas() -> Any:
    """The function of transformers' image processor that chooses a grid, without what needs torchvision."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "models" / "cohere2_vision"
    source = folder / "image_processing_cohere2_vision.py"
    rules = "get_all_supported_aspect_ratios", "get_optimal_tiled_canvas"
    kept = [each for each in ast.parse(source.read_text("utf-8")).body if getattr(each, "name", "") in rules]
    names: dict[str, Any] = {"np": np, "lru_cache": lru_cache}
    exec(compile(ast.Module(kept, []), str(source), "exec"), names)  # names are the package's own
    return names["get_optimal_tiled_canvas"]


def crops(image: Image.Image, side: int, most: int) -> list[Image.Image]:
    """The tiles of a picture, and all of it if there are several."""
    wide, high = canvas()(image.size[::-1], (side, side), 1, most)
    whole = image.resize((int(wide) * side, int(high) * side), Image.Resampling.BICUBIC)
    found = [
        whole.crop((side * column, side * row, side * (column + 1), side * (row + 1)))
        for row in range(high)
        for column in range(wide)
    ]
    return found if len(found) == 1 else [*found, image.resize((side, side), Image.Resampling.BICUBIC)]
