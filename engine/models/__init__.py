"""Decoders, written once against `Ops`; no module here knows a device."""

from __future__ import annotations

from engine.models.base import Model
from engine.models.config import ModelConfig
from engine.models.describe import describe
from engine.models.load import ARCHITECTURES, Architecture, read_config, read_model

__all__ = ["ARCHITECTURES", "Architecture", "Model", "ModelConfig", "describe", "read_config", "read_model"]
