"""Inglenook's engine: answers from a language model, without any window.

    from engine import ChatRequest, Message, Text, finished, open_chat

    chat = finished(open_chat("model.gguf"))
    for event in chat.stream(ChatRequest((Message("user", "Hello!"),)), threading.Event()):
        if isinstance(event, Text):
            print(event.text, end="")

Nothing heavy is imported until it is used: names are looked up in their modules on first access.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "engine.core": (
        "Alternative", "ChatEvent", "ChatRequest", "ChatSource", "Done", "Foreseen", "Loading", "Message", "ModelInfo", "Prefill",
        "PromptSize", "Rendered", "Running", "Stats", "Text", "TokenInfo", "Trimmed",
    ),
    "engine.settings": (
        "CacheSettings", "ConstraintSettings", "GuidanceSettings", "LoadSettings", "OutputSettings", "SamplerSettings",
        "SpeculationSettings", "StopSettings",
    ),
    "engine.errors": (
        "BadCheckpoint", "BadSetting", "BadTemplate", "BenchmarkError", "Cancelled", "ContextTooLong", "DeviceLost", "DownloadError",
        "EngineError", "ModelNotFound", "NotEnoughMemory", "NotFinite", "NothingAllowed", "NotSupportedYet", "UnsupportedModel",
    ),
    "engine.chat": ("LocalChat", "finished", "open_chat"),
    "engine.models.paged": ("PagedCache",),
    "engine.generator.runner": ("Guidance",),
    "engine.generator.streaming": ("StreamingGenerator",),
    "engine.text.stops.conditions": ("Loop", "MaxTokens", "MinTokens", "StopRegex", "StopStrings", "StopTokens", "TimeLimit"),
    "engine.constraint.prefix": ("PrefixFilter",),
    "engine.constraint.select": ("SelectFilter",),
    "engine.constraint.grammar": ("GrammarFilter",),
    "engine.models": ("describe",),
}  # fmt: skip

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
