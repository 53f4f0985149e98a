"""Tiny random models of the families that read pictures since 2026."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.hunyuan_pages import hunyuan_vl
from tests.engine.vision.tiny.minicpm_canvas import minicpm_v4_7
from tests.engine.vision.tiny.mllama_tiles import mllama
from tests.engine.vision.tiny.whole_models import END, TEXT, Case, grids


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


def _north(folder: Path) -> Case:
    """Qwen3-VL's tower, and layers of Cohere 2 with a rope and with none."""
    from transformers import CohereCompassConfig, CohereCompassForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokens = ["<|VISION_START|>", "<|VISION_END|>", "<|IMAGE_PAD|>", "<|VIDEO_PAD|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 2, "out_hidden_size": 32,
        "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1], "patch_size": 16,
    }  # fmt: skip
    rope = {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [4, 2, 2]}
    text = {
        **TEXT, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": size,
        "tie_word_embeddings": False, "pad_token_id": 0, "sliding_window": 64, "logit_scale": 0.5,
        "bos_token_id": 1, "eos_token_id": ids[END],
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"sliding_attention": rope, "full_attention": None},
    }  # fmt: skip
    image = ids["<|IMAGE_PAD|>"]
    config = CohereCompassConfig(
        vision_config=vision, text_config=text, image_token_id=image, video_token_id=ids["<|VIDEO_PAD|>"],
        vision_start_token_id=ids["<|VISION_START|>"], vision_end_token_id=ids["<|VISION_END|>"],
    )  # fmt: skip
    model = randomise(CohereCompassForConditionalGeneration(config))
    processor = Qwen2VLImageProcessorPil(
        patch_size=16, size={"shortest_edge": 4 * 32**2, "longest_edge": 30 * 32**2}
    )
    add_text(save(model, processor, folder), tokens, "<|VISION_START|><|IMAGE_PAD|><|VISION_END|>")
    return Case(folder, model, image, ids[END], partial(grids, processor, image))


def _granite_docling(folder: Path) -> Case:
    """With rows for three layers, of which the text model multiplies embeddings alone."""
    from transformers import GraniteDoclingConfig, GraniteDoclingForConditionalGeneration
    from transformers.models.granite_docling.image_processing_pil_granite_docling import (
        GraniteDoclingImageProcessorPil,
    )

    marks = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    tokens = ["<image>", "<fake_token_around_image>", "<global-img>", *marks]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 7, "out_hidden_size": 32, "deepstack_visual_indexes": [0, 1, 3],
    }  # fmt: skip
    text = {
        **TEXT, "num_hidden_layers": 4, "num_key_value_heads": 1, "vocab_size": size, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": ids[END],
    }  # fmt: skip
    image = ids["<image>"]
    config = GraniteDoclingConfig(vision_config=vision, text_config=text, image_token_id=image)
    model = randomise(GraniteDoclingForConditionalGeneration(config))
    processor = GraniteDoclingImageProcessorPil(size={"height": 56, "width": 56}, max_patches=4)
    add_text(save(model, processor, folder), tokens, "<image>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor([list(pictures)], return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "pixel_attention_mask": found["pixel_attention_mask"]}

    return Case(folder, model, image, ids[END], inputs)


def _lfm3_vl(folder: Path) -> Case:
    """Convolutions over the grid of patches, and in the text model over tokens, too."""
    from transformers import Lfm3VlConfig, Lfm3VlForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokens = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 5, "num_attention_heads": 4,
        "num_key_value_heads": 2, "patch_size": 16,
    }  # fmt: skip
    text = {
        **TEXT, "model_type": "lfm3", "num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 16,
        "vocab_size": size, "sliding_window": 16, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": ids[END],
        "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
    }  # fmt: skip
    image = ids["<|image_pad|>"]
    config = Lfm3VlConfig(
        vision_config=vision, text_config=text, projector_hidden_size=56, image_token_id=image,
        video_token_id=ids["<|video_pad|>"], vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    model = randomise(Lfm3VlForConditionalGeneration(config))
    processor = Qwen2VLImageProcessorPil(
        patch_size=16, size={"shortest_edge": 4 * 32**2, "longest_edge": 30 * 32**2}
    )
    add_text(save(model, processor, folder), tokens, "<|vision_start|><|image_pad|><|vision_end|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = dict(grids(processor, image, pictures, prompt))
        del found["mm_token_type_ids"]
        return found

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
    "granite_docling": _granite_docling,
    "lfm3_vl": _lfm3_vl,
    "minicpm_ocr": _minicpm_ocr,
    "minicpm_v4_6": _minicpm_v4_6,
    "minicpm_v4_7": minicpm_v4_7,
    "mistral4": _mistral4,
    "north": _north,
    "hunyuan_vl": hunyuan_vl,
    "mllama": mllama,
}
