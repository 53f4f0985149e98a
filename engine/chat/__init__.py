"""Chats with a model in this process: `open_chat` loads it, and `LocalChat` answers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from engine.chat.opening import finished, open_chat

if TYPE_CHECKING:
    from engine.chat.embedding import text_vector
    from engine.chat.local import LocalChat

__all__ = ["LocalChat", "finished", "open_chat", "text_vector"]

_LATER = {"LocalChat": "engine.chat.local", "text_vector": "engine.chat.embedding"}
"""Imported on first use: they are most of the engine, of which nothing is needed before a model is opened."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'engine.chat' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
