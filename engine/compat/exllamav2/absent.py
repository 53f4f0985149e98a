"""Names and modules of ExLlamaV2 that are not here: using one says so in a sentence."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from engine.compat.absent import absent_name

_INNER = "it is an inner part of ExLlamaV2, which this engine does not have"
MODULES = dict.fromkeys(
    ("architecture", "attn", "attn_params", "compat", "conversion", "device", "embedding", "experimental",
     "ext", "hadamard", "headnorm", "layernorm", "linear", "mlp", "module", "moe_mlp", "mrope",
     "parallel_decoder", "pos_embedding", "rmsnorm", "rope", "stloader", "tensor_p", "generator.ngram"),
    _INNER,
) | dict.fromkeys(
    ("vlm", "generator.dynamic_embeddings"), "pictures are not supported yet; use a script for text"
)  # fmt: skip
"""Modules of ExLlamaV2 that are not here -> why."""

UTIL = dict.fromkeys(
    ("SeqTensor", "timed", "cuda_sync_active", "get_basic_progress", "list_live_tensors", "set_snapshot",
     "diff_snapshot", "print_vram_usage", "print_vram_usage_peak", "get_visible_devices",
     "get_nvidia_gpu_memory", "get_amd_gpu_memory", "get_all_gpu_memory", "integer_split", "unpack_4bit",
     "pack_4bit"),
    _INNER,
)  # fmt: skip
"""Names of `exllamav2.util` that are not here -> why."""

LAYERS = dict.fromkeys(
    ("ExLlamaV2Attention", "ExLlamaV2Embedding", "ExLlamaV2LayerNorm", "ExLlamaV2Linear", "ExLlamaV2MLP",
     "ExLlamaV2Module", "ExLlamaV2MoEMLP", "ExLlamaV2RMSNorm", "_torch_device"),
    _INNER,
)  # fmt: skip
"""Names that scripts import from `exllamav2.model` and that are not here -> why."""


class _Absent(ModuleType):
    """A module that is not here; any name can be imported from it, and none used (`absent_name`)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = self.__name__.removeprefix(__package__ + ".")
        return absent_name(f"`{name}` of `{module}`", MODULES[module])


def absent_modules(package: str) -> None:
    """Let `package` refuse the modules that are not here, whoever imports them."""
    for name in MODULES:
        sys.modules[f"{package}.{name}"] = _Absent(f"{__package__}.{name}")
