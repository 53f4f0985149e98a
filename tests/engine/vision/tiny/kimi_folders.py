"""Tiny models of Kimi's: as transformers has them, in folders as the makers publish them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file

from tests.engine.vision.tiny.encoding import randomise
from tests.engine.vision.tiny.whole_models import TEXT

PATCH, SIDE, MOST, LONGEST = 14, 6, 64, 20
"""Pixels of a patch; the learned positions of a side; patches of a picture and of a side at most."""
VISION = {
    "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2,
    "patch_size": PATCH,
}  # fmt: skip
DEEPSEEK = {
    **TEXT, "model_type": "deepseek_v3", "num_key_value_heads": 2, "q_lora_rank": None, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 2,
    "n_routed_experts": 4, "moe_intermediate_size": 16, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "tie_word_embeddings": False,
}  # fmt: skip
PROCESSOR_VL = {
    "in_token_limit": MOST, "patch_size": PATCH, "pad_input": True, "image_mean": [0.5] * 3,
    "image_std": [0.4] * 3,
}  # fmt: skip
PROCESSOR_K2_5 = {
    "media_proc_cfg": {
        "in_patch_limit": MOST, "patch_size": PATCH, "patch_limit_on_one_side": LONGEST,
        "image_mean": [0.5] * 3, "image_std": [0.4] * 3,
    },
}  # fmt: skip
_PARTS = {
    ".attn.proj.": ".wo.", ".norm1.": ".norm0.", ".norm2.": ".norm1.", ".mlp.fc1.": ".mlp.fc0.",
    ".mlp.fc2.": ".mlp.fc1.", "layers.": "encoder.blocks.", "final_layernorm": "encoder.final_layernorm",
    "pos_emb.position_embeddings": "pos_emb.weight",
}  # fmt: skip


def model(size: int = 64, image: int = 3, video: int = 4, width: int = 32) -> Any:
    """A model of `size` tokens, of this width, with these ids for a token of a picture and of a video."""
    from transformers import Kimi_K25Config, Kimi_K25ForConditionalGeneration

    config = Kimi_K25Config(
        vision_config={**VISION, "pos_emb_height": SIDE, "pos_emb_width": SIDE},
        text_config={**DEEPSEEK, "vocab_size": size, "hidden_size": width}, projection_hidden_size=64,
        image_token_id=image, video_token_id=video, tie_word_embeddings=False,
    )  # fmt: skip
    return randomise(Kimi_K25ForConditionalGeneration(config))


def publish(made: Any, folder: Path, *, vl: bool) -> Path:
    """The folder of Kimi K2.5, or with `vl` that of Kimi-VL. Returns `folder`."""
    vision: dict[str, Any] = {"init_pos_emb_height": SIDE, "init_pos_emb_width": SIDE, "patch_size": PATCH}
    for name, value in VISION.items():
        vision[name if vl or name == "patch_size" else "vt_" + name] = value
    config = {
        "architectures": ["KimiVLForConditionalGeneration" if vl else "KimiK25ForConditionalGeneration"],
        "model_type": "kimi_vl" if vl else "kimi_k25", "tie_word_embeddings": False,
        "vision_config": {**vision, "merge_kernel_size": [2, 2]},
        "text_config": made.config.text_config.to_dict(),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    settings = PROCESSOR_VL if vl else PROCESSOR_K2_5
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    tensors = {name: value.numpy() for name, value in made.state_dict().items()}
    save_file(_published(tensors, vl), folder / "model.safetensors")
    return folder


def _published(tensors: Mapping[str, np.ndarray[Any, Any]], vl: bool) -> dict[str, np.ndarray[Any, Any]]:
    found: dict[str, np.ndarray[Any, Any]] = {}
    joined: dict[str, list[np.ndarray[Any, Any]]] = {}
    for name, value in tensors.items():
        name = name.removeprefix("model.")
        if name.startswith("vision_tower."):
            for old, new in _PARTS.items():
                name = name.replace(old, new, 1)
            if ".attn." in name:
                before, part, end = name.partition(".attn.")[0], name.split(".")[-2], name.split(".")[-1]
                value = value if part == "v_proj" else _in_pairs(value)
                joined.setdefault(f"{before}.wqkv.{end}", []).append(value)
                continue
        elif name.startswith("mm_projector."):
            first, second = ("linear_1", "linear_2") if vl else ("proj.0", "proj.2")
            name = name.replace("in_proj", first).replace("out_proj", second)
            name = name.replace("mm_projector", "multi_modal_projector") if vl else name
        elif name.startswith("lm_head"):
            name = "language_model." + name
        else:
            name = name.replace("language_model.", "language_model.model.")
        found[name] = np.ascontiguousarray(value)
    return found | {name: np.concatenate(values) for name, values in joined.items()}


def _in_pairs(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows of two heads, whose rotated halves are apart, with the numbers of each pair together."""
    heads = values.reshape(2, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)


def size(width: int, height: int, longest: int = LONGEST) -> tuple[int, int, int, int]:
    """The width and height of a picture that is made smaller, and those once it is padded."""
    wide, high = max(1.0, width // PATCH), max(1.0, height // PATCH)
    side = longest * PATCH
    scale = min(1.0, (MOST / (wide * high)) ** 0.5, side / height, side / width)
    width, height = (max(1, int(each * scale)) for each in (width, height))
    return width, height, width + -width % (2 * PATCH), height + -height % (2 * PATCH)


def pixels(pictures: Sequence[Image.Image], prompt: Sequence[int] = ()) -> Mapping[str, Any]:
    """What transformers' model takes of pictures."""
    found, grids = list[np.ndarray[Any, Any]](), list[tuple[int, int, int]]()
    for picture in pictures:
        width, height, wide, high = size(*picture.size)
        canvas = Image.new("RGB", (wide, high))
        shrunk = picture.resize((width, height), Image.Resampling.BICUBIC)
        canvas.paste(picture if picture.size == (width, height) else shrunk)
        values = (np.asarray(canvas, np.float32) / 255 - 0.5) / 0.4
        rows, columns = high // PATCH, wide // PATCH
        cells = values.reshape(rows, PATCH, columns, PATCH, 3).transpose(0, 2, 4, 1, 3)
        found.append(cells.reshape(-1, 3, PATCH, PATCH))
        grids.append((1, rows, columns))
    return {"pixel_values": torch.from_numpy(np.concatenate(found)), "image_grid_thw": torch.tensor(grids)}
