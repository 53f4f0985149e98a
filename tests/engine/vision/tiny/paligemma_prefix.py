"""Tiny random models of PaliGemma, whose folders have no chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.whole_models import END, TEXT, Case

SIDE, PATCH = 42, 7


def processor() -> SiglipImageProcessorPil:
    return SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE}, image_std=[0.5, 0.4, 0.3])


def _made(kind: str, more: Mapping[str, Any], folder: Path) -> Case:
    tokens = ["<image>", "<|im_start|>", END]
    size, ids = vocabulary(tokens)
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": SIDE, "patch_size": PATCH,
        "projection_dim": 32, "vision_use_head": False,
    }  # fmt: skip
    text = {
        **TEXT, "model_type": kind, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size,
        "bos_token_id": ids["<|im_start|>"], "eos_token_id": ids[END], "pad_token_id": 0,
        "max_position_embeddings": 2048, **more,
    }  # fmt: skip
    config = PaliGemmaConfig(
        vision_config=vision, text_config=text, image_token_id=ids["<image>"], projection_dim=32
    )
    model: Any = randomise(PaliGemmaForConditionalGeneration(config))
    add_text(save(model, processor(), folder), tokens, "")
    (folder / "chat_template.jinja").unlink()

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        values = processor()(list(pictures), return_tensors="pt")["pixel_values"]
        return {"pixel_values": values, "token_type_ids": torch.zeros(1, len(prompt), dtype=torch.long)}

    return Case(folder, model, ids["<image>"], ids[END], inputs)


KINDS = {
    "paligemma": partial(_made, "gemma", {}),
    "paligemma2": partial(
        _made, "gemma2", {"sliding_window": 16, "query_pre_attn_scalar": 16, "num_hidden_layers": 3}
    ),
}  # fmt: skip
"""The first, and the second, whose layers have windows that its prompts do not keep to."""
