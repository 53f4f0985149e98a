"""Twins of a GGUF file: the same model with float matrices, as the exact oracle and as a larger target of
drafting.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

TYPES = {"F32": np.float32, "F16": np.float16}


def write_twin(source: Path, target: Path, kind: str = "F32") -> None:
    """Write every tensor dequantised to `kind` of `TYPES`; vectors are always F32, as llama.cpp requires."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        form = field.types[0]
        writer.add_key_value(
            name, field.contents(), form, field.types[-1] if form == gguf.GGUFValueType.ARRAY else None
        )
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        writer.add_tensor(tensor.name, values.astype(TYPES[kind] if len(shape) > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
