"""Decoders, written once against `Ops`; no module here knows a device.

How to add an architecture: `engine.models.architectures`.
"""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.base import Model
from engine.models.config import ModelConfig
from engine.models.load import read_config, read_model
from engine.models.quantising import preparation

__all__ = [
    "Architecture", "Model", "ModelConfig", "preparation", "read_config", "read_model",
]  # fmt: skip
