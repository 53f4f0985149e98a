"""What a model's headers say of it: `ModelConfig`, and a value for each part that only some models have."""

from __future__ import annotations

from engine.models.config.model import ModelConfig

__all__ = ["ModelConfig"]
