"""Tiny models of DeepSeek-OCR in folders as its makers publish them: their encoder is that of Unlimited-OCR
in transformers, under the makers' names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.numpy import save_file

from tests.engine.vision.tiny.encoding import Floats, randomise
from tests.engine.vision.tiny.whole_models import TEXT

SIDE, TILE, PATCH = 160, 96, 16
SAM = {
    "hidden_size": 16, "output_channels": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "window_size": 4, "mlp_dim": 24, "global_attn_indexes": [1], "downsample_channels": [20, 32],
    "image_size": SIDE, "patch_size": PATCH, "qkv_bias": True,
}  # fmt: skip
CLIP = {
    "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 56, "patch_size": 14,
}  # fmt: skip
DEEPSEEK = {
    **TEXT, "num_key_value_heads": 2, "n_routed_experts": 4, "moe_intermediate_size": 16,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "mlp_layer_types": ["dense", "sparse"], "topk_method": "greedy", "routed_scaling_factor": 1.0,
}  # fmt: skip
_MAKERS = (
    (r"^model\.vision_tower\.sam_encoder\.", "model.sam_model."),
    (r"^model\.vision_tower\.vision_encoder\.", "model.vision_model."),
    (r"sam_model\.layers\.(\d+)\.layer_norm", r"sam_model.blocks.\1.norm"),
    (r"sam_model\.layers\.", "sam_model.blocks."), (r"patch_embed\.projection", "patch_embed.proj"),
    (r"neck\.conv1", "neck.0"), (r"neck\.layer_norm1", "neck.1"), (r"neck\.conv2", "neck.2"),
    (r"neck\.layer_norm2", "neck.3"), (r"sam_model\.proj\.conv1", "sam_model.net_2"),
    (r"sam_model\.proj\.conv2", "sam_model.net_3"),
    (r"vision_model\.encoder\.layers", "vision_model.transformer.layers"),
    (r"^model\.view_separator", "model.view_seperator"),
    (r"^model\.multi_modal_projector", "model.projector.layers"), (r"^model\.language_model\.", "model."),
)  # fmt: skip


def model(size: int, image: int) -> Any:
    """A random model with so many tokens in its vocabulary, and this one for pictures."""
    from transformers import UnlimitedOcrConfig, UnlimitedOcrForConditionalGeneration

    config = UnlimitedOcrConfig(
        vision_config={"sam_config": SAM, "encoder_config": CLIP},
        text_config={**DEEPSEEK, "vocab_size": size}, image_token_id=image,
    )  # fmt: skip
    return randomise(UnlimitedOcrForConditionalGeneration(config))


def tensors(made: Any) -> dict[str, Floats]:
    """Its tensors under the makers' names."""
    found: dict[str, Floats] = {}
    for name, values in made.state_dict().items():
        for old, new in _MAKERS:
            name = re.sub(old, new, name)
        found[name] = values.numpy()
    fused = dict[str, list[Floats]]()
    for name in [name for name in found if "vision_model" in name and re.search(r"\.[qkv]_proj\.", name)]:
        fused.setdefault(re.sub(r"\.[qkv]_proj\.", ".qkv_proj.", name), []).append(found.pop(name))
    # transformers has keys, then values, then queries
    found |= {name: np.concatenate([parts[2], parts[0], parts[1]]) for name, parts in fused.items()}
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def publish(made: Any, folder: Path) -> Path:
    """Save a model as its makers do. Returns `folder`."""
    text = made.config.text_config
    own = {
        **{name: DEEPSEEK[name] for name in DEEPSEEK if name != "mlp_layer_types"}, "use_mla": False,
        "vocab_size": text.vocab_size, "first_k_dense_replace": 1, "lm_head": True, "kv_lora_rank": None,
        "v_head_dim": 0, "rms_norm_eps": text.rms_norm_eps,
    }  # fmt: skip
    towers = {
        "clip-l-14-224": {"width": 32, "layers": 2, "heads": 2, "image_size": 224, "patch_size": 14},
        "sam_vit_b": {
            "width": 16, "layers": 2, "heads": 2, "global_attn_indexes": [1], "window_size": 4,
            "downsample_channels": [20, 32],
        },
    }  # fmt: skip
    config = {
        "architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2", "language_config": own,
        "vision_config": {"image_size": 1024, "model_type": "vision", "width": towers},
    }  # fmt: skip
    save_file(tensors(made), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    settings = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "tile_size": TILE}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}), "utf-8")
    return folder


def inputs(
    pictures: Sequence[Image.Image], prompt: Sequence[int] = (), side: int = SIDE, most: int = 9
) -> dict[str, Any]:
    """What the makers' code gives the model for pictures."""
    whole, local, counts, grids = [], list[Any](), list[int](), list[list[int]]()
    for picture in pictures:
        wide, high = grid(*picture.size, most)
        tiles = picture.resize((wide * TILE, high * TILE), Image.Resampling.BICUBIC) if wide else picture
        for number in range(wide * high):
            left, top = number % wide * TILE, number // wide * TILE
            local.append(_values(tiles.crop((left, top, left + TILE, top + TILE))))
        counts.append(wide * high)
        grids.append([wide, high])
        whole.append(_values(ImageOps.pad(picture, (side, side), color=(127, 127, 127))))
    found = {"pixel_values": torch.stack(whole), "num_local_patches": counts, "patches_grid": grids}
    return found | ({"pixel_values_local": torch.stack(local)} if local else {})


def grid(width: int, height: int, most: int = 9) -> tuple[int, int]:
    """The tiles side by side and one above another: the closest in shape, of equal ones the later that is not
    too large.
    """
    if width <= TILE and height <= TILE:
        return 0, 0
    shapes = [(w, h) for w in range(1, 10) for h in range(1, 10) if 2 <= w * h <= most]
    best, least = (1, 1), float("inf")
    for w, h in sorted(shapes, key=lambda each: each[0] * each[1]):
        away = abs(width / height - w / h)
        if away < least or (away == least and width * height > 0.5 * TILE**2 * w * h):
            best, least = (w, h), away
    return best


def _values(picture: Image.Image) -> torch.Tensor:
    pixels = np.asarray(picture.convert("RGB"), np.float32) / 255
    return torch.from_numpy((pixels - 0.5) / 0.5).permute(2, 0, 1)
