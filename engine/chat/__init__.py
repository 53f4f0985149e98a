"""Chats with a model in this process: `open_chat` loads it, and `LocalChat` answers."""

from __future__ import annotations

from engine.chat.embedding import text_vector
from engine.chat.local import LocalChat
from engine.chat.opening import finished, open_chat

__all__ = ["LocalChat", "finished", "open_chat", "text_vector"]
