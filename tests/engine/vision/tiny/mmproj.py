"""mmproj files as llama.cpp's converter writes them, beside a model of which there is little but headers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Tensors = Mapping[str, np.ndarray[Any, Any]]
MEAN, DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
"""CLIP's, of each colour."""


def add_key(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    """Write one key with the type that llama.cpp's converter gives such a value."""
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, np.int32):
        writer.add_int32(name, int(value))
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, list(value))


def write_file(path: Path, architecture: str, keys: Mapping[str, Any], tensors: Tensors) -> Path:
    """A GGUF file with these keys and tensors, in F32. Returns `path`."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in keys.items():
        add_key(writer, name, value)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_mmproj(
    folder: Path, architecture: str, width: int, keys: Mapping[str, Any], tensors: Tensors,
    model_keys: Mapping[str, Any] = {},
) -> Path:  # fmt: skip
    """A model of this width in `folder`, whose file has headers and a table of tokens, and its mmproj file,
    whose keys below "clip.vision." lack that. Returns the path of the model.
    """
    whole = {
        "clip.has_vision_encoder": True, "clip.vision.image_mean": MEAN, "clip.vision.image_std": DEVIATION,
    }  # fmt: skip
    for name, value in keys.items():
        whole[name if name.startswith("clip.") else f"clip.vision.{name}"] = value
    write_file(folder / "mmproj-model-f32.gguf", "clip", whole, tensors)
    return write_model(folder / "model-f32.gguf", architecture, width, model_keys)


def write_model(
    path: Path, architecture: str, width: int, model_keys: Mapping[str, Any] = {}, **more: Any
) -> Path:
    """A model of this width, whose file has headers, `more` keys under their whole names, whose dots are
    written "__", and a table of tokens. Returns `path`.
    """
    own = {
        "embedding_length": width, "block_count": 1, "context_length": 64, "feed_forward_length": 64,
        "attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-5, **model_keys,
    }  # fmt: skip
    named = {f"{architecture}.{name}": value for name, value in own.items()}
    named |= {name.replace("__", "."): value for name, value in more.items()}
    return write_file(path, architecture, named, {"token_embd.weight": np.zeros((64, width))})
