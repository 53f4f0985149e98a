"""Tiny random models of the families that read pictures since 2026."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.hunyuan_pages import hunyuan_vl
from tests.engine.vision.tiny.mllama_tiles import mllama
from tests.engine.vision.tiny.whole_models import END, TEXT, Case


def _minicpm_ocr(folder: Path) -> Case:
    from transformers import MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration

    return _minicpm(folder, MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration, "4x")


def _minicpm_v4_6(folder: Path) -> Case:
    from transformers import MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration

    return _minicpm(folder, MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration, "16x")


def _minicpm(folder: Path, config_class: Any, model_class: Any, mode: str) -> Case:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    marks = ["<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"]
    tokens = [*marks, "<|image_pad|>", "<|video_pad|>"]
    size, ids = vocabulary([*tokens, END])
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
    image = ids["<|image_pad|>"]
    config = config_class(
        vision_config=vision, text_config=text, insert_layer_id=0, image_token_id=image,
        video_token_id=ids["<|video_pad|>"], downsample_mode=mode,
    )  # fmt: skip
    model = randomise(model_class(config))
    processor = MiniCPMV4_6ImageProcessorPil(
        patch_size=7, scale_resolution=56, max_slice_nums=4, downsample_mode=mode
    )
    add_text(save(model, processor, folder), tokens, "<|image_pad|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor(list(pictures), return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "target_sizes": found["target_sizes"]}

    return Case(folder, model, image, ids[END], inputs)


def _mistral4(folder: Path) -> Case:
    """Mistral Small 4: the class of Mistral Small 3 with another text model."""
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    tokens = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "model_type": "pixtral", "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 3, "head_dim": 16, "patch_size": 7, "image_size": 70,
    }  # fmt: skip
    text = {
        **TEXT, "model_type": "mistral4", "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "num_key_value_heads": 2, "vocab_size": size,
    }  # fmt: skip
    config = Mistral3Config(vision_config=vision, text_config=text, image_token_index=ids["[IMG]"])
    model = randomise(Mistral3ForConditionalGeneration(config))
    processor = PixtralImageProcessorPil(size={"longest_edge": 70}, patch_size=14)
    add_text(save(model, processor, folder), tokens, "[IMG]")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor(list(pictures), return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "image_sizes": found["image_sizes"]}

    return Case(folder, model, ids["[IMG]"], ids[END], inputs)


LATEST: Mapping[str, Callable[[Path], Case]] = {
    "minicpm_ocr": _minicpm_ocr,
    "minicpm_v4_6": _minicpm_v4_6,
    "mistral4": _mistral4,
    "hunyuan_vl": hunyuan_vl,
    "mllama": mllama,
}
