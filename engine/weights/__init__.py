"""From files to tensors: containers (GGUF, safetensors folders) and the formats of the weights in them."""

from __future__ import annotations

from engine.weights.checkpoint import Checkpoint, open_checkpoint
from engine.weights.gguf import GGUF_FORMATS, Format
from engine.weights.tensor import FileTensor

FORMATS: tuple[Format, ...] = GGUF_FORMATS
"""Every readable tensor type."""

__all__ = ["FORMATS", "Checkpoint", "FileTensor", "Format", "open_checkpoint"]
