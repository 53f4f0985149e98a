"""What crosses the engine's border: messages, requests, the events of a stream, and statistics.

Everything here is frozen and holds only str, int, float and tuples, so that it can cross threads freely; a
`Priority` may be changed by any thread.

Shape letters used in all docstrings: T rows (tokens of one step), V vocabulary, E model width, H query heads,
G key/value heads, D head dimension, F feed-forward width, L layers, P pages, N out features, K in features.
"""

from __future__ import annotations

from engine.core.chat_source import ChatSource
from engine.core.events import (
    STOP_REASONS,
    Alternative,
    CallPiece,
    ChatEvent,
    Done,
    Downloaded,
    Downloading,
    Loading,
    Prefill,
    Running,
    Stats,
    Text,
    TokenInfo,
    Trimmed,
    Waiting,
)
from engine.core.model_info import ModelInfo, WorkSpace, assistant_alone
from engine.core.requests import (
    TOOL_CHOICES,
    ChatRequest,
    Foreseen,
    Message,
    Picture,
    Priority,
    PromptSize,
    Rendered,
    Tool,
    ToolCall,
    picture_words,
)
from engine.core.thinking import nearest_level

__all__ = [
    "FIRST_PICTURE_ID", "PAGE_TOKENS", "STOP_REASONS", "TOOL_CHOICES", "Alternative", "CallPiece",
    "ChatEvent", "ChatRequest", "ChatSource",
    "Done", "Downloaded", "Downloading", "Foreseen", "Loading", "Message", "ModelInfo",
    "Picture", "Prefill", "Priority", "PromptSize", "Rendered", "Running", "Stats", "Text",
    "TokenInfo", "Tool", "ToolCall", "Trimmed", "Waiting", "WorkSpace", "assistant_alone", "nearest_level",
    "picture_words",
]  # fmt: skip

FIRST_PICTURE_ID = 1 << 24
"""The ids of picture tokens begin here, past all vocabularies."""
PAGE_TOKENS = 256
"""Token positions in one page of the key/value cache."""
