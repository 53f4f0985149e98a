"""Tiny random models that read pictures, made and run by `transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.tiny import write_tokenizer

Floats = npt.NDArray[np.float32]
Tensors = dict[str, Floats]
TEXT: Mapping[str, Any] = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 307, "max_position_embeddings": 512, "pad_token_id": 1,
    "bos_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
"""The text model of them all."""


def model_of(config: Any, seed: int = 5) -> Any:
    """The model of a config of `transformers` with random weights whose outputs depend on all of them."""
    import torch
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=random)
            if name.endswith("bias"):
                values *= 0.3
            elif parameter.ndim == 1:
                values = 1 + 0.2 * values
            elif "pos" in name or "embed_tokens" in name:
                values *= 0.5
            else:
                values *= 1.5 * parameter[0].numel() ** -0.5
            parameter.copy_(values)
    return model


def write_model(
    folder: Path, model: Any, processor: Any, change: Callable[[dict[str, Any]], None] = lambda config: None
) -> Path:
    """Write the model with its processor; `change` may give config.json another form. Returns `folder`."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    write_tokenizer(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    return folder


def tensors_of(model: Any) -> Tensors:
    """The weights by the names of the model's folder."""
    from safetensors.torch import load_file  # noqa: F401  (the names that `save_pretrained` writes)

    return {name: values.numpy() for name, values in model.state_dict().items()}


def picture(width: int, height: int, seed: int = 0) -> bytes:
    """A PNG file of smooth random colours."""
    small = np.random.default_rng(seed + 7 * width + height).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


def pixels(data: bytes) -> Image.Image:
    """A picture file as `transformers` takes it."""
    return Image.open(BytesIO(data)).convert("RGB")
