"""Reads tensors from files: containers (GGUF, safetensors folders) and the formats of their weights."""

from __future__ import annotations

from engine.weights.checkpoint import Checkpoint, open_checkpoint
from engine.weights.format import Format
from engine.weights.gguf.table import GGUF_FORMATS
from engine.weights.tensor import FileTensor

FORMATS: tuple[Format, ...] = GGUF_FORMATS
"""The types of weights in GGUF files."""

__all__ = ["FORMATS", "Checkpoint", "FileTensor", "Format", "open_checkpoint"]
