"""Tiny random models of MiniCPM-V 4.7, whose pictures' tokens lie on a canvas, and their prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from engine.core import FIRST_PICTURE_ID
from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.whole_models import END, TEXT, Case

NAMES = ["<image>", "</image>", "<slice>", "</slice>"]


def expanded(
    processor: Any, image: Image.Image, token: int, start: int, end: int, open: int, close: int, line: int
) -> list[int]:
    """The tokens of a picture, without its number (`MiniCPMV4_7Processor.replace_image_token`)."""
    inputs = processor([image], return_tensors="pt")
    each = 4 if processor.downsample_mode == "4x" else 16
    counts = [int(rows) * int(columns) // each for rows, columns in inputs["target_sizes"]]
    high, wide = (int(number) for number in inputs["grids"][0])
    found = [start, *[token] * counts[0], end]
    for row in range(high):
        found += [line] if row else []
        for count in counts[1 + row * wide :][:wide]:
            found += [open, *[token] * count, close]
    return found


def minicpm_v4_7(folder: Path, *, numbered: bool = True) -> Case:
    """A line break follows each picture."""
    from transformers import MiniCPMV4_7Config, MiniCPMV4_7ForConditionalGeneration
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    tokens = [*NAMES, "<image_id>", "</image_id>", "<|image_pad|>", "<|video_pad|>"]
    size, ids = vocabulary([*tokens, END, "\u010a"])  # the line break in vocabularies of bytes
    vision = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 70, "patch_size": 7,
    }  # fmt: skip
    text = {
        **TEXT, "model_type": "qwen3_5_text", "head_dim": 32, "num_key_value_heads": 1,
        "num_hidden_layers": 4, "linear_num_value_heads": 2, "linear_num_key_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "vocab_size": size,
        "rope_parameters": {
            "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5,
            "mrope_section": [4, 2, 2], "mrope_interleaved": True,
        },
    }  # fmt: skip
    image, line = ids["<|image_pad|>"], ids["\u010a"]
    start, end, open, close = (ids[name] for name in NAMES)
    config = MiniCPMV4_7Config(
        vision_config=vision, text_config=text, insert_layer_id=0, image_token_id=image,
        video_token_id=ids["<|video_pad|>"], image_start_id=start, image_end_id=end, slice_start_id=open,
        slice_end_id=close, newline_id=line,
    )  # fmt: skip
    model = randomise(MiniCPMV4_7ForConditionalGeneration(config))
    processor = MiniCPMV4_6ImageProcessorPil(
        patch_size=7, scale_resolution=56, max_slice_nums=4, use_image_id=numbered
    )
    add_text(save(model, processor, folder), tokens, "<|image_pad|>\n")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor(list(pictures), return_tensors="pt")
        kinds = torch.tensor([[int(id == image) for id in prompt]])
        return {
            "pixel_values": found["pixel_values"], "target_sizes": found["target_sizes"],
            "mm_token_type_ids": kinds,
        }  # fmt: skip

    def plain(prompt: Sequence[int], pictures: Sequence[Image.Image]) -> list[int]:
        """Marks are among the ids of a picture, and the line break after it."""
        found, rest = list[int](), iter(pictures)
        at = 0
        while at < len(prompt):
            if prompt[at] < FIRST_PICTURE_ID:
                found.append(prompt[at])
                at += 1
                continue
            own = [*expanded(processor, next(rest), image, start, end, open, close, line), line]
            assert list(prompt[at : at + len(own)]) == list(range(prompt[at], prompt[at] + len(own)))
            found += own
            at += len(own)
        return found

    return Case(folder, model, image, ids[END], inputs, plain)
