"""Writes LoRA adapters as GGUF files, as llama.cpp's convert_lora_to_gguf.py does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tiny import _add_key
from tests.tiny_quants import quantise

Pair = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def write_gguf_adapter(
    path: Path,
    pairs: Mapping[str, Pair],
    architecture: str = "llama",
    type_name: str = "F32",
    others: Mapping[str, npt.NDArray[np.float32]] | None = None,
    **metadata: Any,
) -> Path:
    """Write (A, B) of each tensor in `type_name`, and `others` by their full names. `metadata` has further
    keys with "__" for ".", and None leaves a standard key out. Returns `path`.
    """
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    keys = {"general.type": "adapter", "adapter.type": "lora"}
    for key, value in (keys | {name.replace("__", "."): value for name, value in metadata.items()}).items():
        _add_key(writer, key, value)
    for name, sides in pairs.items():
        for side, values in zip("ab", sides, strict=True):
            data = quantise(np.ascontiguousarray(values, np.float32), type_name)
            kind = gguf.GGMLQuantizationType[type_name]
            writer.add_tensor(f"{name}.lora_{side}", data, raw_dtype=kind)
    for name, values in (others or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
