"""From files to tensors: containers (GGUF, safetensors folders) and the formats of the weights in them."""

from __future__ import annotations

from engine.weights.checkpoint import Checkpoint, open_checkpoint
from engine.weights.format import Format
from engine.weights.gguf.table import GGUF_FORMATS
from engine.weights.tensor import FileTensor

FORMATS: tuple[Format, ...] = GGUF_FORMATS
"""Every type that quantised or plain weights in a GGUF file come in."""

__all__ = ["FORMATS", "Checkpoint", "FileTensor", "Format", "open_checkpoint"]
