"""The quantisation methods of folders that can be read, with the function that joins each one's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.packed.float4 import wrap_floats
from engine.weights.packed.methods.aqlm import wrap_aqlm
from engine.weights.packed.methods.auto_round import wrap_auto_round
from engine.weights.packed.methods.awq import wrap_awq
from engine.weights.packed.methods.bitnet import wrap_bitnet
from engine.weights.packed.methods.bitsandbytes import wrap_bitsandbytes
from engine.weights.packed.methods.compressed_tensors import wrap_compressed
from engine.weights.packed.methods.exl2 import wrap_exl2
from engine.weights.packed.methods.exl3 import wrap_exl3
from engine.weights.packed.methods.gemma import wrap_gemma
from engine.weights.packed.methods.gptq import wrap_gptq
from engine.weights.packed.methods.hqq import wrap_hqq
from engine.weights.packed.methods.mlx import wrap_metal, wrap_mlx
from engine.weights.packed.methods.quanto import wrap_quanto
from engine.weights.packed.methods.torchao import wrap_torchao
from engine.weights.packed.methods.vptq import wrap_vptq
from engine.weights.packed.mxfp4 import wrap_mxfp4
from engine.weights.safetensors.json import read_json_object
from engine.weights.tensor import FileTensor
from engine.words import _

Tensors = Mapping[str, FileTensor]
Settings = Mapping[str, Any]
Wrap = Callable[[Tensors, Settings], dict[str, RawTensor]]

METHODS: dict[str, Wrap] = {
    "fp8": wrap_floats,
    "fbgemm_fp8": wrap_floats,
    "mxfp8": wrap_floats,
    "modelopt": wrap_floats,
    "quark": wrap_floats,
    "mxfp4": wrap_mxfp4,
    "gptq": wrap_gptq,
    "awq": wrap_awq,
    "exl2": wrap_exl2,
    "exl3": wrap_exl3,
    "compressed-tensors": wrap_compressed,
    "bitnet": wrap_bitnet,
    "bitsandbytes": wrap_bitsandbytes,
    "auto-round": wrap_auto_round,
    "mlx": wrap_mlx,
    "hqq": wrap_hqq,
    "torchao": wrap_torchao,
    "aqlm": wrap_aqlm,
    "quanto": wrap_quanto,
    "vptq": wrap_vptq,
    "gemma": wrap_gemma,
    "metal": wrap_metal,
}
"""By `quant_method`: a function from the files' tensors and the quantization_config to the tensors by the
names of the plain model, "X.weight". It raises `BadCheckpoint` or `UnsupportedModel`. The list "model_types"
is added to the quantization_config: those of the config and its text_config; and "config", the latter if
there is one.
"""

_OWN_FILES = (
    ("quantize_config.json", "gptq"),
    ("quant_config.json", "awq"),
    ("hf_quant_config.json", "modelopt"),
    ("quanto_qmap.json", "quanto"),
)
"""The files in which tools wrote the settings, and their methods."""


def quantisation_settings(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The quantization_config of config.json, or of an older tool's own file; None for plain weights.

    Raises `BadCheckpoint`.
    """
    settings = config.get("quantization_config", config.get("compression_config", config.get("quantization")))
    if settings is not None:
        if not isinstance(settings, dict):
            raise BadCheckpoint(
                _(
                    "{folder}: quantization_config is not a table of settings. Download it again.",
                    folder=folder / "config.json",
                )
            )
        # MLX names no method.
        plain = "quant_method" not in settings and {"bits", "group_size"} <= settings.keys()
        return {**settings, "quant_method": "mlx"} if plain else settings
    for name, method in _OWN_FILES:
        if (folder / name).is_file():
            own = read_json_object(folder / name)
            inner = own.get("quantization")
            return {"quant_method": method} | (inner if isinstance(inner, dict) else own)
    return None


def is_readable(method: str) -> bool:
    """Whether weights that are quantised by this `quant_method` can be read."""
    return _short(method) in METHODS


def _short(method: str) -> str:
    """AutoRound's name without its maker's."""
    return method.removeprefix("intel/")


def wrap_quantised(tensors: dict[str, FileTensor], config: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors by the names of the plain model; plain weights are unchanged.

    Raises `UnsupportedModel` for a method that is not in `METHODS`, and what the method's function raises.
    """
    settings = config.get("quantization_config")
    if settings is None:
        return (
            wrap_floats(tensors, {})
            if any(tensor.type.startswith("F8_E") for tensor in tensors.values())
            else dict(tensors)
        )
    method = settings.get("quant_method")
    wrap = METHODS.get(_short(method)) if isinstance(method, str) else None
    if wrap is None:
        raise UnsupportedModel(
            _(
                "config.json says that the weights are quantised by {method!r}, which cannot be "
                "read; {methods} can. Choose such a variant of this model, an unquantised one, or "
                "a GGUF file.",
                method=str(method)[:40],
                methods=", ".join(METHODS),
            )
        )
    text = config.get("text_config")
    types = [part.get("model_type") for part in (config, text) if isinstance(part, dict)]
    inner = text if isinstance(text, dict) else config
    return wrap(tensors, {**settings, "model_types": types, "config": inner})
