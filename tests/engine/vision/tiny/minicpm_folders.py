"""Tiny models of MiniCPM-V: a tower of transformers, a resampler of torch, and folders with these."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.engine.vision.tiny.encoding import Floats, randomise

PATCH, SIDE, MOST, QUERIES, WIDTH, TOWER = 14, 56, 5, 6, 256, 48
"""Pixels of a patch and of a slice, slices at most, tokens of each, the width of these and of the tower."""
VISION = {
    "hidden_size": TOWER, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 140, "patch_size": PATCH,
}  # fmt: skip
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
}  # fmt: skip
PROCESSOR = {
    "max_slice_nums": MOST, "scale_resolution": SIDE, "patch_size": PATCH, "use_image_id": True,
    "norm_mean": [0.5] * 3, "norm_std": [0.5] * 3,
}  # fmt: skip


class Resampler(torch.nn.Module):
    """MiniCPM-V's, of torch's own parts."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.query = torch.nn.Parameter(torch.zeros(QUERIES, width))
        self.kv_proj = torch.nn.Linear(TOWER, width, bias=False)
        self.attn = torch.nn.MultiheadAttention(width, width // 128, batch_first=True)
        self.ln_q, self.ln_kv, self.ln_post = (torch.nn.LayerNorm(width, eps=1e-6) for _ in range(3))
        self.proj = torch.nn.Parameter(torch.zeros(width, width))

    def forward(self, states: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        x = self.ln_kv(self.kv_proj(states))
        grid = torch.zeros(rows, columns, len(self.query[0]))
        quarter = grid.shape[2] // 4
        for pair in range(quarter):
            rate = 10000 ** (-pair / quarter)
            for row in range(rows):
                grid[row, :, 2 * quarter + pair] = math.sin(row * rate)
                grid[row, :, 3 * quarter + pair] = math.cos(row * rate)
            for column in range(columns):
                grid[:, column, pair] = math.sin(column * rate)
                grid[:, column, quarter + pair] = math.cos(column * rate)
        keys = x + grid.reshape(1, rows * columns, -1)
        found, _weights = self.attn(self.ln_q(self.query)[None], keys, x)
        return self.ln_post(found)[0] @ self.proj


class Model(torch.nn.Module):
    """The encoder of a picture's crops; `vision` are changes to its tower."""

    def __init__(self, **vision: Any) -> None:
        from transformers import Idefics3VisionConfig
        from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionTransformer

        super().__init__()
        self.vpm = randomise(Idefics3VisionTransformer(Idefics3VisionConfig(**VISION | vision)))
        self.resampler = randomise(Resampler())

    def rows(self, crop: Image.Image) -> Floats:
        """The tokens of a crop."""
        values = (torch.from_numpy(np.asarray(crop, np.float32)) / 255 - 0.5) / 0.5
        rows, columns = crop.height // PATCH, crop.width // PATCH
        mask = torch.ones(1, rows, columns, dtype=torch.bool)
        with torch.no_grad():
            found = self.vpm(values.permute(2, 0, 1)[None], patch_attention_mask=mask).last_hidden_state
            made: Floats = self.resampler(found, rows, columns).numpy()
        return made


def qwen2(size: int) -> Any:
    """A text model with so many tokens."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(**TEXT, vocab_size=size, tie_word_embeddings=False)
    return randomise(Qwen2ForCausalLM(config))


def save(model: Model, folder: Path, text: Any = None, **processor: Any) -> Path:
    """The folder as its makers publish it, with a text model or without. Returns `folder`."""
    config = {
        "architectures": ["MiniCPMV"], "model_type": "minicpmv", "query_num": QUERIES,
        "vision_config": VISION, "slice_config": {"max_slice_nums": MOST}, "version": 2.6, **TEXT,
        "vocab_size": 64 if text is None else text.config.vocab_size, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | processor), "utf-8")
    tensors = model.state_dict()
    if text is not None:
        tensors |= {"llm." + name: values for name, values in text.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def fitting(width: float, height: float, grow: bool) -> tuple[int, int]:
    """The size of a crop."""
    if grow or width * height > SIDE * SIDE:
        shape = width / height
        height = int(SIDE / shape**0.5)
        width = int(height * shape)
    return max(PATCH, round(width / PATCH) * PATCH), max(PATCH, round(height / PATCH) * PATCH)


def grid(width: int, height: int) -> tuple[int, int] | None:
    """Slices side by side, and one above another."""
    about = min(math.ceil(width * height / SIDE**2), MOST)
    if about <= 1:
        return None
    best, least = (1, 1), math.inf
    for count in (about - 1, about, about + 1):
        if count == 1 or count > MOST:
            continue
        for wide in range(1, count + 1):
            if count % wide == 0:
                error = abs(math.log(width / height) - math.log(wide / (count // wide)))
                if error < least:
                    best, least = (wide, count // wide), error
    return best


def crops(image: Image.Image) -> list[Image.Image]:
    """The whole picture, and its slices."""
    found, resample = grid(*image.size), Image.Resampling.BICUBIC
    if found is None:
        return [image.resize(fitting(*image.size, True), resample)]
    wide, high = found
    each = fitting(max(1, round(image.width / wide)), max(1, round(image.height / high)), True)
    large = image.resize((each[0] * wide, each[1] * high), resample)
    slices = [
        large.crop((each[0] * x, each[1] * y, each[0] * (x + 1), each[1] * (y + 1)))
        for y in range(high)
        for x in range(wide)
    ]
    return [image.resize(fitting(*image.size, False), resample), *slices]
