"""A tiny random model of each family that reads pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from tests.engine.vision.families.tiled.lfm2_crops import PATCH, SETTINGS, batched, crops
from tests.engine.vision.tiny.chats import add_text, vocabulary
from tests.engine.vision.tiny.encoding import randomise, save
from tests.engine.vision.tiny.further_families import FURTHER
from tests.engine.vision.tiny.latest_families import LATEST
from tests.engine.vision.tiny.whole_models import END, SECTIONS, TEXT, Case, grids, pixels


def _idefics3(folder: Path) -> Case:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    marks = [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
    tokens = ["<image>", "<fake_token_around_image>", "<global-img>", *marks]
    size, ids = vocabulary([*tokens, END])
    text = {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": size,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 7,
    }  # fmt: skip
    config = Idefics3Config(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=ids["<image>"]
    )
    model = randomise(Idefics3ForConditionalGeneration(config))
    processor = Idefics3ImageProcessorPil(size={"longest_edge": 2 * 28}, max_image_size={"longest_edge": 28})
    add_text(save(model, processor, folder), tokens, "<image>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor([list(pictures)], return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "pixel_attention_mask": found["pixel_attention_mask"]}

    return Case(folder, model, ids["<image>"], ids[END], inputs)


def _qwen(
    folder: Path,
    config: Any,
    model_class: Any,
    vision: Mapping[str, Any],
    text: Mapping[str, Any],
    patch: int,
) -> Case:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokens = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    size, ids = vocabulary([*tokens, END])
    text = {**TEXT, "num_key_value_heads": 2, "vocab_size": size, "tie_word_embeddings": False, **text}
    whole = config(
        vision_config=dict(vision), text_config=text, image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"], vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    model = randomise(model_class(whole))
    area = (2 * patch) ** 2
    processor = Qwen2VLImageProcessorPil(
        patch_size=patch, size={"shortest_edge": 4 * area, "longest_edge": 30 * area}
    )
    add_text(save(model, processor, folder), tokens, "<|vision_start|><|image_pad|><|vision_end|>")
    image = ids["<|image_pad|>"]
    return Case(folder, model, image, ids[END], partial(grids, processor, image))


def _qwen2_vl(folder: Path) -> Case:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    vision = {"depth": 2, "embed_dim": 48, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
    return _qwen(folder, Qwen2VLConfig, Qwen2VLForConditionalGeneration, vision, SECTIONS, 14)


def _qwen2_5_vl(folder: Path) -> Case:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    vision = {
        "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 3, "out_hidden_size": 32,
        "fullatt_block_indexes": [1], "window_size": 112,
    }  # fmt: skip
    return _qwen(folder, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, vision, SECTIONS, 14)


def _cosmos3(folder: Path) -> Case:
    """The same as Qwen3-VL, with names of its own."""
    from transformers import Cosmos3OmniConfig, Cosmos3OmniForConditionalGeneration

    return _qwen3_vl(folder, Cosmos3OmniConfig, Cosmos3OmniForConditionalGeneration)


def _qwen3_vl(
    folder: Path, config: Any = Qwen3VLConfig, model: Any = Qwen3VLForConditionalGeneration
) -> Case:
    vision = {
        "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 2, "out_hidden_size": 32,
        "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1], "patch_size": 16,
    }  # fmt: skip
    text = {"num_hidden_layers": 3, "head_dim": 16, **SECTIONS}
    return _qwen(folder, config, model, vision, text, 16)


def _qwen3_5(folder: Path) -> Case:
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    vision = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 72, "num_heads": 4, "out_hidden_size": 32,
        "num_position_embeddings": 25, "patch_size": 16,
    }  # fmt: skip
    text = {
        "head_dim": 32, "num_hidden_layers": 4, "linear_num_value_heads": 2, "linear_num_key_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "rope_parameters": {
            "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5,
            "mrope_section": [4, 2, 2], "mrope_interleaved": True,
        },
    }  # fmt: skip
    return _qwen(folder, Qwen3_5Config, Qwen3_5ForConditionalGeneration, vision, text, 16)


def _llava(folder: Path) -> Case:
    from transformers import LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    size, ids = vocabulary(["<image>", END])
    tower = {
        "model_type": "clip_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 28, "patch_size": 7,
    }  # fmt: skip
    text = {**TEXT, "model_type": "llama", "num_key_value_heads": 1, "vocab_size": size}
    config = LlavaConfig(vision_config=tower, text_config=text, image_token_id=ids["<image>"])
    model = randomise(LlavaForConditionalGeneration(config))
    processor = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    add_text(save(model, processor, folder), ["<image>"], "<image>")
    return Case(folder, model, ids["<image>"], ids[END], partial(pixels, processor))


def _gemma3(folder: Path) -> Case:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    tokens = ["<start_of_image>", "<image_soft_token>", "<end_of_image>"]
    size, ids = vocabulary([*tokens, END])
    tower = {
        "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80,
        "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 84, "patch_size": 7,
    }  # fmt: skip
    text = {
        **TEXT, "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size,
        "sliding_window": 40, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }  # fmt: skip
    image = ids["<image_soft_token>"]
    config = Gemma3Config(
        vision_config=tower, text_config=text, mm_tokens_per_image=36, image_token_index=image,
        boi_token_index=ids["<start_of_image>"], eoi_token_index=ids["<end_of_image>"],
    )  # fmt: skip
    model = randomise(Gemma3ForConditionalGeneration(config))
    processor = Gemma3ImageProcessorPil(size={"height": 84, "width": 84})
    add_text(save(model, processor, folder), tokens, "<start_of_image>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        kinds = torch.tensor([[int(id == image) for id in prompt]])
        return {**pixels(processor, pictures, prompt), "token_type_ids": kinds}

    return Case(folder, model, image, ids[END], inputs)


def _internvl(folder: Path) -> Case:
    from transformers import InternVLConfig, InternVLForConditionalGeneration
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    tokens = ["<img>", "</img>", "<IMG_CONTEXT>"]
    size, ids = vocabulary([*tokens, END])
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": 28, "patch_size": 7,
    }  # fmt: skip
    text = {**TEXT, "model_type": "qwen2", "num_key_value_heads": 1, "vocab_size": size}
    image = ids["<IMG_CONTEXT>"]
    config = InternVLConfig(vision_config=tower, text_config=text, image_token_id=image)
    model = randomise(InternVLForConditionalGeneration(config))
    processor = GotOcr2ImageProcessorPil(
        size={"height": 28, "width": 28}, crop_to_patches=True, max_patches=4,
        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225],
    )  # fmt: skip
    add_text(save(model, processor, folder), tokens, "<IMG_CONTEXT>")
    return Case(folder, model, image, ids[END], partial(pixels, processor))


def _lfm2_vl(folder: Path) -> Case:
    from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

    marks = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11)]
    tokens = ["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *marks]
    size, ids = vocabulary([*tokens, END])
    text = {
        **TEXT, "model_type": "lfm2", "num_key_value_heads": 1, "vocab_size": size, "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False,
    }  # fmt: skip
    vision = {
        "model_type": "siglip2_vision_model", "hidden_size": 48, "intermediate_size": 72,
        "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": PATCH, "num_patches": 25,
    }  # fmt: skip
    config = Lfm2VlConfig(
        vision_config=vision, text_config=text, projector_hidden_size=56, image_token_id=ids["<image>"]
    )
    model = randomise(Lfm2VlForConditionalGeneration(config))
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS), "utf-8")
    add_text(folder, tokens, "<image>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        return batched([crop for image in pictures for crop in crops(image)[0]])

    return Case(folder, model, ids["<image>"], ids[END], inputs)


def _pixtral(folder: Path, merged: int) -> Case:
    from transformers import (
        LlavaConfig,
        LlavaForConditionalGeneration,
        Mistral3Config,
        Mistral3ForConditionalGeneration,
    )
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    tokens = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "model_type": "pixtral", "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2,
        "num_attention_heads": 2, "patch_size": 14, "image_size": 112, "hidden_act": "silu",
    }  # fmt: skip
    text = {**TEXT, "model_type": "mistral", "num_key_value_heads": 1, "vocab_size": size, "head_dim": 16}
    common = {"vision_config": vision, "text_config": text, "image_token_index": ids["[IMG]"]}
    if merged > 1:
        model = Mistral3ForConditionalGeneration(Mistral3Config(**common, spatial_merge_size=merged))
    else:
        model = LlavaForConditionalGeneration(
            LlavaConfig(**common, vision_feature_layer=-1, vision_feature_select_strategy="full")
        )
    processor = PixtralImageProcessorPil(size={"longest_edge": 112}, patch_size=14 * merged)
    add_text(save(randomise(model), processor, folder), tokens, "[IMG]")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor(list(pictures), return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "image_sizes": found["image_sizes"]}

    return Case(folder, model, ids["[IMG]"], ids[END], inputs)


def _gemma4(folder: Path, both_ways: bool) -> Case:
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    tokens = ["<|image>", "<|image|>", "<image|>", "<|video|>", "<|audio|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 3, "head_dim": 16, "patch_size": 4, "position_embedding_size": 300,
    }  # fmt: skip
    text = {
        **TEXT, "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 16,
        "vocab_size": size, "vocab_size_per_layer_input": size, "sliding_window": 100, "pad_token_id": 0,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 0 if both_ways else 8,
        "use_bidirectional_attention": "vision" if both_ways else None,
    }  # fmt: skip
    image = ids["<|image|>"]
    config = Gemma4Config(
        vision_config=vision, text_config=text, audio_config=None, image_token_id=image,
        boi_token_id=ids["<|image>"], eoi_token_id=ids["<image|>"], video_token_id=ids["<|video|>"],
        audio_token_id=ids["<|audio|>"],
    )  # fmt: skip
    model = randomise(Gemma4ForConditionalGeneration(config))
    processor = Gemma4ImageProcessorPil(max_soft_tokens=70, patch_size=4)
    add_text(save(model, processor, folder), tokens, "<|image|>")

    def inputs(pictures: Sequence[Image.Image], prompt: Sequence[int]) -> Mapping[str, Any]:
        found = processor(list(pictures), return_tensors="pt")
        return {
            "pixel_values": found["pixel_values"], "image_position_ids": found["image_position_ids"],
            "mm_token_type_ids": torch.tensor([[int(id == image) for id in prompt]]),
        }  # fmt: skip

    return Case(folder, model, image, ids[END], inputs)


def _glm4v(folder: Path) -> Case:
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    tokens = ["<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|video|>"]
    size, ids = vocabulary([*tokens, END])
    vision = {
        "depth": 2, "hidden_size": 48, "num_heads": 2, "image_size": 84, "patch_size": 14,
        "out_hidden_size": 32, "intermediate_size": 72,
    }  # fmt: skip
    text = {
        **TEXT, "num_key_value_heads": 1, "vocab_size": size, "pad_token_id": 0, "eos_token_id": ids[END],
        "rope_parameters": {
            "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
        },
    }  # fmt: skip
    image = ids["<|image|>"]
    config = Glm4vConfig(
        vision_config=vision, text_config=text, image_token_id=image, video_token_id=ids["<|video|>"],
        image_start_token_id=ids["<|begin_of_image|>"], image_end_token_id=ids["<|end_of_image|>"],
    )  # fmt: skip
    model = randomise(Glm4vForConditionalGeneration(config))
    area = 2 * 28 * 28
    processor = Glm4vImageProcessorPil(size={"shortest_edge": 4 * area, "longest_edge": 30 * area})
    add_text(save(model, processor, folder), tokens, "<|begin_of_image|><|image|><|end_of_image|>")
    return Case(folder, model, image, ids[END], partial(grids, processor, image))


FAMILIES: Mapping[str, Callable[[Path], Case]] = {
    "glm4v": _glm4v,
    "idefics3": _idefics3, "qwen2_vl": _qwen2_vl, "qwen2_5_vl": _qwen2_5_vl, "qwen3_vl": _qwen3_vl,
    "cosmos3": _cosmos3,
    **FURTHER, **LATEST,
    "qwen3_5": _qwen3_5, "llava": _llava, "gemma3": _gemma3, "internvl": _internvl,
    "lfm2_vl": _lfm2_vl,
    "pixtral": partial(_pixtral, merged=1), "mistral3": partial(_pixtral, merged=2),
    "gemma4": partial(_gemma4, both_ways=False), "gemma4 both ways": partial(_gemma4, both_ways=True),
}  # fmt: skip
