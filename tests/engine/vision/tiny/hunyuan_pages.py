"""Tiny random models of HunyuanOCR."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import HunYuanVLConfig, HunYuanVLForConditionalGeneration
from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import HunYuanVLImageProcessorPil

from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.whole_models import END, TEXT, Case, grids

START, LAST, MARK = (f"<｜hy_place▁holder▁no▁{number}｜>" for number in (100, 101, 102))
PATCH, AREA = 16, 32**2
LIMITS = {"shortest_edge": 4 * AREA, "longest_edge": 30 * AREA}


def _in_turn(self: Any, freq: torch.Tensor) -> torch.Tensor:
    """As in the original code: both halves of a head are divided into the same sections, so that each pair is
    rotated by one angle. transformers divides the whole head instead.
    """
    sections = self.mrope_section * 2
    parts = torch.split(torch.cat((freq, freq), dim=-1), sections, dim=-1)
    return torch.cat([part[at % len(self.mrope_section)] for at, part in enumerate(parts)], dim=-1)


def processor() -> HunYuanVLImageProcessorPil:
    return HunYuanVLImageProcessorPil(patch_size=PATCH, size=LIMITS)


def hunyuan_vl(folder: Path, sections: tuple[int, ...] = (3, 2, 2, 1)) -> Case:
    tokens = [START, LAST, MARK]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 2,
        "patch_size": PATCH, "max_image_size": 6 * PATCH, "out_hidden_size": 32,
    }  # fmt: skip
    text = {
        **TEXT, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size, "pad_token_id": 0,
        "eos_token_id": ids[END], "max_position_embeddings": 2048,
        "rope_parameters": {
            "rope_theta": 1e4, "rope_type": "dynamic", "alpha": 3.0, "factor": 1.0,
            "mrope_section": list(sections),
        },
    }  # fmt: skip
    config = HunYuanVLConfig(
        vision_config=vision, text_config=text, image_token_id=ids[MARK], im_start_id=ids[START],
        im_end_id=ids[LAST], im_newline_id=ids[MARK],
    )  # fmt: skip
    model: Any = randomise(HunYuanVLForConditionalGeneration(config))
    rope = model.model.language_model.rotary_emb
    rope.recomposition_frequencies = partial(_in_turn, rope)
    add_text(save(model, processor(), folder), tokens, START + MARK + LAST)
    return Case(folder, model, ids[MARK], ids[END], partial(grids, processor(), ids[MARK]))
