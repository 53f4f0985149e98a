"""AutoRound folders, which hold matrices as other tools pack them and name the packing.

"auto_round:auto_gptq" is GPTQ's, "auto_round:auto_awq" AutoAWQ's, and "auto_round" GPTQ's with zero points as
they are. "auto_round:llm_compressor" and the names of floats are that of compressed-tensors.
Source: auto-round, `inference/convert_model.py` and `export_to_autoround` (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.packed.methods.awq import wrap_awq
from engine.weights.packed.methods.compressed_tensors import wrap_compressed
from engine.weights.packed.methods.gptq import wrap_gptq
from engine.weights.tensor import FileTensor
from engine.words import _

_READERS = {
    "": "gptq_v2", "exllamav2": "gptq_v2", "triton": "gptq_v2", "gptq": "gptq", "auto_gptq": "gptq",
    "gptqmodel": "gptq_v2", "awq": "awq", "auto_awq": "awq",
    **dict.fromkeys(
        ("llm_compressor", "fp8", "fp8_static", "mxfp8", "mxfp4", "nvfp4", "mx_fp", "nv_fp"), "compressed"
    ),
}  # fmt: skip
"""How matrices are packed, by what follows "auto_round:"; a kernel's name may follow that."""


def wrap_auto_round(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    packing = str(settings.get("packing_format") or settings.get("backend") or "")
    reader = _READERS.get(packing.removeprefix("auto_round").removeprefix(":").split(":")[0])
    if reader is None or (reader != "compressed" and settings.get("data_type", "int") != "int"):
        raise UnsupportedModel(
            _(
                "config.json says that AutoRound packed the weights as {packing!r} of the type {type!r}, "
                "which cannot be read; 'auto_round', 'auto_round:auto_gptq' and 'auto_round:auto_awq' of "
                "the type 'int' can. Choose such a variant of this model, or a GGUF file.",
                packing=packing[:40],
                type=str(settings.get("data_type"))[:40],
            )
        )
    if reader == "awq":
        return wrap_awq(tensors, settings)
    if reader == "compressed":
        return wrap_compressed(tensors, {})
    return wrap_gptq(tensors, {**settings, "checkpoint_format": reader})
