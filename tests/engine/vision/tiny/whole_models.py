"""Whole tiny models that read pictures, as transformers has them, and what their families have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from engine.chat.local import LocalChat

END = "<|im_end|>"
TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
SECTIONS = {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [4, 2, 2]}}


@dataclass
class Case:
    """A model in `folder`, and as transformers has it: `token` stands for a picture's tokens, `end` ends a
    turn, `inputs` makes of pictures and the ids of a prompt what `generate` takes besides
    these ids. `plain` makes these of a prompt's own ids and its pictures, where they are not `token` alone.
    """

    folder: Path
    model: Any
    token: int
    end: int
    inputs: Callable[[Sequence[Image.Image], Sequence[int]], Mapping[str, Any]]
    plain: Callable[[Sequence[int], Sequence[Image.Image]], list[int]] | None = None
    chat: LocalChat = field(init=False)


def grids(
    processor: Any, image: int, pictures: Sequence[Image.Image], prompt: Sequence[int]
) -> Mapping[str, Any]:
    found = processor(list(pictures), return_tensors="pt")
    kinds = torch.tensor([[int(id == image) for id in prompt]])
    return {
        "pixel_values": found["pixel_values"], "image_grid_thw": found["image_grid_thw"],
        "mm_token_type_ids": kinds,
    }  # fmt: skip


def pixels(processor: Any, pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
    return {"pixel_values": processor(list(pictures), return_tensors="pt")["pixel_values"]}
