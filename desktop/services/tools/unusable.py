"""The error of a configuration with which nothing can be started."""

from __future__ import annotations

from engine.errors import EngineError

__all__ = ["UnusableConfig"]


class UnusableConfig(EngineError):
    """A program is not installed, or a placeholder has no value."""
