"""Tiny random models of further families that read pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from tests.engine.vision.families.tiled import command_tiles, llama4_tiles
from tests.engine.vision.tiny import deepseek_ocr_folders, kimi_folders
from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.whole_models import END, SECTIONS, TEXT, Case, grids, pixels


def _qwen2_5_omni(folder: Path) -> Case:
    from transformers import Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokens = ["<|vision_bos|>", "<|vision_eos|>", "<|IMAGE|>", "<|VIDEO|>", "<|AUDIO|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 3, "out_hidden_size": 32,
        "fullatt_block_indexes": [1], "window_size": 112,
    }  # fmt: skip
    text = {**TEXT, "num_key_value_heads": 2, "vocab_size": size, "tie_word_embeddings": False, **SECTIONS}
    audio = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16}
    image = ids["<|IMAGE|>"]
    whole = Qwen2_5OmniThinkerConfig(
        vision_config=vision, text_config=text, audio_config={**audio, "output_dim": 32},
        image_token_id=image, video_token_id=ids["<|VIDEO|>"], audio_token_id=ids["<|AUDIO|>"],
        vision_start_token_id=ids["<|vision_bos|>"],
    )  # fmt: skip
    model = randomise(Qwen2_5OmniThinkerForConditionalGeneration(whole))
    processor = Qwen2VLImageProcessorPil(
        patch_size=14, size={"shortest_edge": 4 * 28**2, "longest_edge": 30 * 28**2}
    )
    add_text(save(model, processor, folder), tokens, "<|vision_bos|><|IMAGE|><|vision_eos|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = dict(grids(processor, image, pictures, prompt))
        del found["mm_token_type_ids"]
        return found

    return Case(folder, model, image, ids[END], inputs)


def _qwen3_omni(folder: Path) -> Case:
    from transformers import Qwen3OmniMoeThinkerConfig, Qwen3OmniMoeThinkerForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokens = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|audio_pad|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 2, "out_hidden_size": 32,
        "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1], "patch_size": 16,
    }  # fmt: skip
    text = {
        **TEXT, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": size,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, **SECTIONS,
        "tie_word_embeddings": False,
    }  # fmt: skip
    text["rope_parameters"] = {**text["rope_parameters"], "mrope_interleaved": True}
    audio = {
        "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16,
        "downsample_hidden_size": 8, "output_dim": 32,
    }  # fmt: skip
    image = ids["<|image_pad|>"]
    config = Qwen3OmniMoeThinkerConfig(
        vision_config=vision, text_config=text, audio_config=audio, image_token_id=image,
        video_token_id=ids["<|video_pad|>"], audio_token_id=ids["<|audio_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
    )  # fmt: skip
    model = randomise(Qwen3OmniMoeThinkerForConditionalGeneration(config))
    processor = Qwen2VLImageProcessorPil(
        patch_size=16, size={"shortest_edge": 4 * 32**2, "longest_edge": 30 * 32**2}
    )
    add_text(save(model, processor, folder), tokens, "<|vision_start|><|image_pad|><|vision_end|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = dict(grids(processor, image, pictures, prompt))
        del found["mm_token_type_ids"]
        return found

    return Case(folder, model, image, ids[END], inputs)


def _llama4(folder: Path) -> Case:
    from transformers import Llama4Config, Llama4ForConditionalGeneration

    marks = ["<|image_start|>", "<|image_end|>", "<|tile_x_separator|>", "<|tile_y_separator|>"]
    tokens = ["<|image|>", "<|patch|>", *marks]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "intermediate_size": 4 * 48, "num_hidden_layers": 2, "num_attention_heads": 3,
        "image_size": 28, "patch_size": 7, "projector_input_dim": 56, "projector_output_dim": 56,
        "vision_output_dim": 56, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
    }  # fmt: skip
    text = {
        **TEXT, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size, "intermediate_size_mlp": 64,
        "num_local_experts": 2, "num_experts_per_tok": 1, "attention_chunk_size": 64, "pad_token_id": 0,
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
    }  # fmt: skip
    image = ids["<|patch|>"]
    config = Llama4Config(vision_config=vision, text_config=text, image_token_id=image)
    model = randomise(Llama4ForConditionalGeneration(config))
    # which the class for pictures reads of it, and transformers 5.24 leaves out
    model.language_model.register_forward_hook(lambda _model, _args, out: setattr(out, "image_outputs", None))
    model.save_pretrained(folder)
    add_text(folder, tokens, "<|image|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = [crop for image in pictures for crop in llama4_tiles.crops(image, 28, 16)]
        return {"pixel_values": llama4_tiles.batched(found)}

    return Case(folder, model, image, ids[END], inputs)


_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 28, "patch_size": 7,
}  # fmt: skip
_COHERE = "<|IMG_PATCH|>", "<|START_OF_IMG|>", "<|END_OF_IMG|>"


def _cohere_text(size: int) -> dict[str, Any]:
    return {
        **TEXT, "model_type": "cohere2", "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size,
        "sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"], "pad_token_id": 0,
    }  # fmt: skip


def _aya_vision(folder: Path) -> Case:
    from transformers import AyaVisionConfig, AyaVisionForConditionalGeneration
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    tokens = ["<image>", *_COHERE, "TILE_GLOBAL", *(f"TILE_{number}" for number in range(1, 5))]
    size, ids = vocabulary([*tokens, END])
    image = ids["<|IMG_PATCH|>"]
    config = AyaVisionConfig(vision_config=_SIGLIP, text_config=_cohere_text(size), image_token_index=image)
    model = randomise(AyaVisionForConditionalGeneration(config))
    processor = GotOcr2ImageProcessorPil(
        size={"height": 28, "width": 28}, crop_to_patches=True, max_patches=4
    )
    add_text(save(model, processor, folder), tokens, "<image>")
    return Case(folder, model, image, ids[END], partial(pixels, processor))


def _command_vision(folder: Path) -> Case:
    from transformers import Cohere2VisionConfig, Cohere2VisionForConditionalGeneration

    tokens = [*_COHERE, "<|IMG_LINE_BREAK|>"]
    size, ids = vocabulary([*tokens, END])
    image = ids["<|IMG_PATCH|>"]
    config = Cohere2VisionConfig(
        vision_config=_SIGLIP, text_config=_cohere_text(size), image_token_id=image,
        alignment_intermediate_size=56,
    )  # fmt: skip
    model = randomise(Cohere2VisionForConditionalGeneration(config))
    model.save_pretrained(folder)
    settings = {"max_patches": 4, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    add_text(folder, tokens, "<|IMG_PATCH|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = [crop for image in pictures for crop in command_tiles.crops(image, 28, 4)]
        return {"pixel_values": llama4_tiles.batched(found)}

    return Case(folder, model, image, ids[END], inputs)


def _janus(folder: Path) -> Case:
    from transformers import JanusConfig, JanusForConditionalGeneration
    from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil

    tokens = ["<image_placeholder>", "<begin_of_image>", "<end_of_image>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28,
        "patch_size": 7, "mlp_ratio": 2, "projection_dim": 32,
    }  # fmt: skip
    drawing = {
        "embed_dim": 4, "num_embeddings": 16, "latent_channels": 8, "base_channels": 32,
        "channel_multiplier": [1, 1], "num_res_blocks": 1, "projection_dim": 32, "image_token_embed_dim": 32,
    }  # fmt: skip
    text = {**TEXT, "model_type": "llama", "num_key_value_heads": 1, "vocab_size": size}
    image = ids["<image_placeholder>"]
    config = JanusConfig(vision_config=vision, text_config=text, vq_config=drawing, image_token_id=image)
    model = randomise(JanusForConditionalGeneration(config))
    processor = JanusImageProcessorPil(
        size={"height": 28, "width": 28}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    add_text(save(model, processor, folder), tokens, "<image_placeholder>")
    return Case(folder, model, image, ids[END], partial(pixels, processor))


def _llava_onevision(folder: Path) -> Case:
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
        LlavaOnevisionImageProcessorPil,
    )

    size, ids = vocabulary(["<image>", "<video>", END])
    grids = [[28 * high, 28 * wide] for high in (1, 2) for wide in (1, 2)]
    text = {**TEXT, "model_type": "qwen2", "num_key_value_heads": 1, "vocab_size": size}
    config = LlavaOnevisionConfig(
        vision_config=_SIGLIP, text_config=text, image_grid_pinpoints=grids, image_token_index=ids["<image>"],
        video_token_index=ids["<video>"], vision_aspect_ratio="anyres_max_2",
    )  # fmt: skip
    model = randomise(LlavaOnevisionForConditionalGeneration(config))
    processor = LlavaOnevisionImageProcessorPil(
        size={"height": 28, "width": 28},
        image_grid_pinpoints=grids,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    add_text(save(model, processor, folder), ["<image>", "<video>"], "<image>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor(list(pictures), return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "image_sizes": found["image_sizes"]}

    return Case(folder, model, ids["<image>"], ids[END], inputs)


def _paddle_ocr(folder: Path) -> Case:
    from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import (
        PaddleOCRVLImageProcessorPil,
    )

    tokens = ["<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>", "<|VIDEO|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 84, "patch_size": 14,
    }  # fmt: skip
    text = {
        **TEXT, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size, "pad_token_id": 0, **SECTIONS,
    }  # fmt: skip
    image = ids["<|IMAGE_PLACEHOLDER|>"]
    config = PaddleOCRVLConfig(
        vision_config=vision, text_config=text, image_token_id=image, video_token_id=ids["<|VIDEO|>"],
        vision_start_token_id=ids["<|IMAGE_START|>"], vision_end_token_id=ids["<|IMAGE_END|>"],
    )  # fmt: skip
    model = randomise(PaddleOCRVLForConditionalGeneration(config))
    processor = PaddleOCRVLImageProcessorPil(
        size={"shortest_edge": 4 * 28**2, "longest_edge": 30 * 28**2}, patch_size=14
    )
    add_text(save(model, processor, folder), tokens, "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>")
    return Case(folder, model, image, ids[END], partial(grids, processor, image))


def _deepseek_vl(folder: Path) -> Case:
    from transformers import DeepseekVLConfig, DeepseekVLForConditionalGeneration
    from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil

    size, ids = vocabulary(["<image_placeholder>", END])
    text = {**TEXT, "model_type": "llama", "num_key_value_heads": 1, "vocab_size": size}
    image = ids["<image_placeholder>"]
    config = DeepseekVLConfig(vision_config=_SIGLIP, text_config=text, image_token_id=image)
    model = randomise(DeepseekVLForConditionalGeneration(config))
    processor = DeepseekVLImageProcessorPil(size={"height": 28, "width": 28})
    add_text(save(model, processor, folder), ["<image_placeholder>"], "<image_placeholder>")
    return Case(folder, model, image, ids[END], partial(pixels, processor))


def _glm_ocr(folder: Path) -> Case:
    from transformers import GlmOcrConfig, GlmOcrForConditionalGeneration
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    tokens = ["<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|video|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "depth": 2, "hidden_size": 48, "num_heads": 2, "patch_size": 14, "out_hidden_size": 32,
        "intermediate_size": 72,
    }  # fmt: skip
    text = {
        **TEXT, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size, "pad_token_id": 0,
        "eos_token_id": ids[END], **SECTIONS,
    }  # fmt: skip
    image = ids["<|image|>"]
    config = GlmOcrConfig(
        vision_config=vision, text_config=text, image_token_id=image, video_token_id=ids["<|video|>"],
        image_start_token_id=ids["<|begin_of_image|>"], image_end_token_id=ids["<|end_of_image|>"],
    )  # fmt: skip
    model = randomise(GlmOcrForConditionalGeneration(config))
    area = 2 * 28 * 28
    processor = Glm4vImageProcessorPil(size={"shortest_edge": 4 * area, "longest_edge": 30 * area})
    add_text(save(model, processor, folder), tokens, "<|begin_of_image|><|image|><|end_of_image|>")
    return Case(folder, model, image, ids[END], partial(grids, processor, image))


def _kimi_vl(folder: Path) -> Case:
    tokens = ["<|media_start|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>", "<|video|>"]
    size, ids = vocabulary([*tokens, END])
    image = ids["<|media_pad|>"]
    model = kimi_folders.model(size, image, ids["<|video|>"])
    add_text(
        kimi_folders.publish(model, folder, vl=True), tokens, "<|media_start|><|media_pad|><|media_end|>"
    )
    return Case(folder, model, image, ids[END], kimi_folders.pixels)


def _got_ocr2(folder: Path) -> Case:
    from transformers import GotOcr2Config, GotOcr2ForConditionalGeneration
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    tokens = ["<img>", "</img>", "<imgpad>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 32, "output_channels": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
        "patch_size": 4, "window_size": 3, "mlp_dim": 56, "global_attn_indexes": [1], "image_size": 32,
    }  # fmt: skip
    text = {**TEXT, "model_type": "qwen2", "num_key_value_heads": 1, "vocab_size": size}
    config = GotOcr2Config(vision_config=vision, text_config=text, image_token_id=ids["<imgpad>"])
    model = randomise(GotOcr2ForConditionalGeneration(config))
    processor = GotOcr2ImageProcessorPil(size={"height": 32, "width": 32})
    add_text(save(model, processor, folder), tokens, "<imgpad>")
    return Case(folder, model, ids["<imgpad>"], ids[END], partial(pixels, processor))


def _vip_llava(folder: Path) -> Case:
    from transformers import VipLlavaConfig, VipLlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    size, ids = vocabulary(["<image>", END])
    tower = {**_SIGLIP, "model_type": "clip_vision_model", "num_hidden_layers": 12}
    text = {**TEXT, "model_type": "llama", "num_key_value_heads": 1, "vocab_size": size}
    config = VipLlavaConfig(vision_config=tower, text_config=text, image_token_index=ids["<image>"])
    model = randomise(VipLlavaForConditionalGeneration(config))
    processor = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    add_text(save(model, processor, folder), ["<image>"], "<image>")
    return Case(folder, model, ids["<image>"], ids[END], partial(pixels, processor))


def _deepseek_ocr(folder: Path) -> Case:
    size, ids = vocabulary(["<image>", END])
    model = deepseek_ocr_folders.model(size, ids["<image>"])
    add_text(deepseek_ocr_folders.publish(model, folder), ["<image>"], "<image>")
    return Case(folder, model, ids["<image>"], ids[END], deepseek_ocr_folders.inputs)


def _idefics2(folder: Path) -> Case:
    from transformers import Idefics2Config, Idefics2ForConditionalGeneration
    from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil

    tokens = ["<image>", "<fake_token_around_image>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 70, "patch_size": 7,
    }  # fmt: skip
    perceiver = {
        "resampler_n_latents": 5, "resampler_depth": 2, "resampler_n_heads": 4, "resampler_head_dim": 8,
        "num_key_value_heads": 2, "hidden_size": TEXT["hidden_size"],
    }  # fmt: skip
    text = {**TEXT, "model_type": "mistral", "num_key_value_heads": 1, "vocab_size": size, "head_dim": 16}
    config = Idefics2Config(
        vision_config=vision, perceiver_config=perceiver, text_config=text, image_token_id=ids["<image>"]
    )
    model = randomise(Idefics2ForConditionalGeneration(config))
    processor = Idefics2ImageProcessorPil(size={"shortest_edge": 25, "longest_edge": 80})
    add_text(save(model, processor, folder), tokens, "<image>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor([list(pictures)], return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "pixel_attention_mask": found["pixel_attention_mask"]}

    return Case(folder, model, ids["<image>"], ids[END], inputs)


FURTHER: Mapping[str, Callable[[Path], Case]] = {
    "aya_vision": _aya_vision, "command_vision": _command_vision, "deepseek_ocr": _deepseek_ocr,
    "deepseek_vl": _deepseek_vl, "glm_ocr": _glm_ocr, "got_ocr2": _got_ocr2, "idefics2": _idefics2,
    "janus": _janus,
    "kimi_vl": _kimi_vl,
    "llama4": _llama4, "llava_onevision": _llava_onevision, "paddle_ocr": _paddle_ocr,
    "qwen2_5_omni": _qwen2_5_omni, "qwen3_omni": _qwen3_omni, "vip_llava": _vip_llava,
}  # fmt: skip
