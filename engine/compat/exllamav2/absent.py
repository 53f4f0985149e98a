"""Names and modules of ExLlamaV2 that are not here: using one says so in a sentence."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from engine.compat.absent import absent_name

_INNER = "it is an inner part of ExLlamaV2, which this engine does not have"
MODULES = dict.fromkeys(
    ("architecture", "attn", "attn_params", "compat", "conversion", "device", "embedding", "experimental",
     "ext", "hadamard", "headnorm", "layernorm", "linear", "mlp", "module", "moe_mlp", "mrope",
     "parallel_decoder", "pos_embedding", "rmsnorm", "rope", "stloader", "tensor_p", "fasttensors",
     "generator.ngram", "tokenizer.base", "tokenizer.hf"),
    _INNER,
) | dict.fromkeys(
    ("vlm", "vlm.mmprojector", "vlm.util", "vlm.vision_tower", "vlm.processor", "vlm.processor.pixtral",
     "vlm.processor.qwen2", "vlm.processor.siglip", "generator.dynamic_embeddings"),
    "it is an inner part of ExLlamaV2's vision tower; use ExLlamaV2VisionTower",
) | dict.fromkeys(
    ("server.websocket", "server.websocket_actions"),
    "run `inglenook-engine serve MODEL`, which serves other programs over HTTP",
)  # fmt: skip
"""Modules of ExLlamaV2 that are not here -> why."""

UTIL = dict.fromkeys(
    ("SeqTensor", "timed", "cuda_sync_active", "list_live_tensors", "set_snapshot",
     "diff_snapshot", "print_vram_usage", "print_vram_usage_peak", "get_visible_devices",
     "get_nvidia_gpu_memory", "get_amd_gpu_memory", "get_all_gpu_memory", "integer_split", "unpack_4bit",
     "pack_4bit"),
    _INNER,
)  # fmt: skip
"""Names of `exllamav2.util` that are not here -> why."""

LAYERS = dict.fromkeys(
    ("ExLlamaV2Attention", "ExLlamaV2Embedding", "ExLlamaV2LayerNorm", "ExLlamaV2Linear", "ExLlamaV2MLP",
     "ExLlamaV2Module", "ExLlamaV2MoEMLP", "ExLlamaV2ParallelDecoder", "ExLlamaV2PosEmbedding",
     "ExLlamaV2RMSNorm", "_torch_device"),
    _INNER,
)  # fmt: skip
"""Names that scripts import from `exllamav2.model` and that are not here -> why."""

TOKENIZERS = dict.fromkeys(("ExLlamaV2TokenizerBase", "ExLlamaV2TokenizerHF"), _INNER)
"""Names of `exllamav2.tokenizer` that are not here -> why."""


_TOWER = ("ExLlamaV2MMEmbedding", "ExLlamaV2VisionTower")


class _Absent(ModuleType):
    """A module that is not here; any name can be imported from it, and none used (`absent_name`) but those of
    the vision tower.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _TOWER:  # where their parts would be
            return getattr(importlib.import_module(f"{__package__}.vision"), name)
        module = self.__name__.removeprefix(__package__ + ".")
        return absent_name(f"`{name}` of `{module}`", MODULES[module])


def absent_modules(package: str) -> None:
    """Let `package` refuse the modules that are not here, whoever imports them."""
    for name in MODULES:
        sys.modules[f"{package}.{name}"] = _Absent(f"{__package__}.{name}")


def share_names(package: str, modules: Sequence[str]) -> None:
    """Let scripts import from `modules` of `package` what these do not define but the packages offer.

    In ExLlamaV2, a module also has the names that it imports, and scripts take them from there, such as the
    cache from `exllamav2.model`.
    """
    for name in modules:
        module = importlib.import_module(f"{package}.{name}")
        vars(module)["__getattr__"] = _sharing(module, vars(module).get("__getattr__"))


def _sharing(module: ModuleType, own: Any) -> Any:
    """The `__getattr__` of a module: the names of the packages, then what its `own` one gives."""

    def get(name: str) -> Any:
        for package in (__package__, f"{__package__}.generator"):
            offered = importlib.import_module(package)
            if name.startswith("ExLlamaV2") and name in offered.__all__:
                return getattr(offered, name)
        if own is not None:
            return own(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    return get
