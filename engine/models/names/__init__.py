"""Names of tensors: what an architecture's names are, and the usual ones, which most of them share."""

from __future__ import annotations

from engine.models.names.in_memory import delta_in_memory, experts_in_mlp
from engine.models.names.rwkv import RwkvNames, ShiftNames
from engine.models.names.tensors import LatentNames, NarrowNames, NetworkNames, RecurrentNames, TensorNames
from engine.models.names.usual import (
    GGUF,
    HF,
    LATENT_GGUF,
    LATENT_HF,
    MAMBA_GGUF,
    MIXTURE,
    SCAN_GGUF,
    SHARING,
    mamba_names,
    scan_names,
    with_experts,
    with_shared,
)

__all__ = [
    "GGUF", "HF", "LATENT_GGUF", "LATENT_HF", "MAMBA_GGUF", "MIXTURE", "SCAN_GGUF", "SHARING", "LatentNames",
    "NarrowNames", "NetworkNames", "RecurrentNames", "RwkvNames", "ShiftNames", "TensorNames",
    "delta_in_memory", "experts_in_mlp", "mamba_names", "scan_names", "with_experts", "with_shared",
]  # fmt: skip
