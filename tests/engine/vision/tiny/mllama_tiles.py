"""Tiny random models of Llama 3.2 Vision, whose pictures are looked at by layers of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import MllamaConfig, MllamaForConditionalGeneration
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from transformers.models.mllama.image_processing_pil_mllama import MllamaImageProcessorPil
from transformers.models.mllama.processing_mllama import (
    convert_sparse_cross_attention_mask_to_dense,
    get_cross_attention_token_mask,
)

from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.whole_models import END, TEXT, Case

SIDE, PATCH, TILES = 28, 7, 4
MARK = "<|image|>"


class _Silenced:
    """As in the original code, and this program: what sees no picture is not changed by layers that look."""

    def __init__(self, model: Any) -> None:
        self._sees: Any = None
        for layer in model.model.language_model.layers:
            if hasattr(layer, "cross_attn"):
                layer.register_forward_pre_hook(self._note, with_kwargs=True)
                layer.cross_attn.register_forward_hook(self._silence)

    def _note(self, _layer: Any, _given: Any, named: dict[str, Any]) -> None:
        self._sees = named["full_text_row_masked_out_mask"]

    def _silence(self, _module: Any, _given: Any, made: Any) -> Any:
        return (made[0] if self._sees is None else made[0] * self._sees[:, 0], *made[1:])


def processor() -> MllamaImageProcessorPil:
    size = {"height": SIDE, "width": SIDE}
    return MllamaImageProcessorPil(
        size=size, max_image_tiles=TILES, image_mean=OPENAI_CLIP_MEAN, image_std=OPENAI_CLIP_STD
    )


def mllama(folder: Path) -> Case:
    size, ids = vocabulary([END, MARK])
    assert ids[MARK] == size - 1  # the first row after those of the text model's vocabulary
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_global_layers": 2,
        "attention_heads": 2, "image_size": SIDE, "patch_size": PATCH, "vision_output_dim": 96,
        "intermediate_layers_indices": [1, 3],
    }  # fmt: skip
    text = {
        **TEXT, "num_hidden_layers": 5, "cross_attention_layers": [1, 3], "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": size - 1, "max_position_embeddings": 2048,
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": ids[END],
    }  # fmt: skip
    config = MllamaConfig(vision_config=vision, text_config=text, image_token_index=ids[MARK])
    model: Any = randomise(MllamaForConditionalGeneration(config))
    add_text(save(model, processor(), folder), [END, MARK], MARK)
    _Silenced(model)
    # As in the original code, and in transformers up to version 4: states before the layers of these numbers,
    # not after them.
    tower = model.model.vision_model
    tower.intermediate_layers_indices = [layer - 1 for layer in tower.intermediate_layers_indices]

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor()([list(pictures)], return_tensors="pt")
        mask = convert_sparse_cross_attention_mask_to_dense(
            [get_cross_attention_token_mask(list(prompt), ids[MARK])], found.pop("num_tiles"), TILES,
            len(prompt),
        )  # fmt: skip
        return {**found, "cross_attention_mask": torch.from_numpy(mask)}

    return Case(folder, model, ids[MARK], ids[END], inputs)
