"""Inglenook's engine: answers from a language model, without any window.

    from engine import ChatRequest, Message, Text, finished, open_chat

    chat = finished(open_chat("model.gguf"))
    for event in chat.stream(ChatRequest((Message("user", "Hello!"),)), threading.Event()):
        if isinstance(event, Text):
            print(event.text, end="")

Nothing heavy is imported until it is used: names are looked up in their modules on first access.

Words
-----
Each has one meaning here.

architecture: the make of a model (Llama, Qwen 3): how its headers are read, what its tensors are called,
which parts it has.
backend: a device that holds weights and runs programs: the CPU, one or several GPUs, the reference (torch).
cache type: the number format in which keys and values are kept.
checkpoint: a model's files, opened but not loaded.
command: what `inglenook-engine` can be told to do.
decode: a pass that gives the next token; a decode loop does so on the device, the draw included, without the
host in between.
drafting: guessing several tokens that the model then checks in one pass; the guesses come from a draft model
or from repeats.
filter: a constraint on the text of a reply, as the set of tokens that may come next.
kernel: one compiled function that computes on a device.
lowering: turning the nodes of a recorded pass into the calls of kernels that a backend replays.
node: one operation of a recorded pass, before a backend lowers it; fusion makes one node of several.
page: the keys and values of a fixed number of positions; a block table says which pages hold a sequence.
pass: one run of the whole model over some rows, each a position of a sequence.
prefill: reading the prompt, in passes of many rows.
prefix index: finds the pages that already hold the beginning of a prompt.
program: a recorded pass, ready to be replayed.
proposal: a guessed token, with the distribution that it was drawn from.
sampler step: one change of the distribution that a token is drawn from: top-k, temperature, penalties.
sequence: the tokens of one reply while it is written, with what decides when it ends.
stage: operations of a pass that run side by side on the CPU's threads.
stop condition: what ends a reply.
weight layout: how a matrix lies in a device's memory, packed for its kernels.
weight spec: the shape, layout and size of a matrix, known from its header alone.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "engine.core": (
        "Alternative", "ChatEvent", "ChatRequest", "ChatSource", "Done", "Foreseen", "Loading", "Message",
        "ModelInfo", "Prefill",
        "PromptSize", "Rendered", "Running", "Stats", "Text", "TokenInfo", "Trimmed",
    ),
    "engine.settings": (
        "CacheSettings", "ConstraintSettings", "GuidanceSettings", "LoadSettings", "OutputSettings",
        "SamplerSettings",
        "SpeculationSettings", "StopSettings",
    ),
    "engine.errors": (
        "BadCheckpoint", "BadSetting", "BadTemplate", "BenchmarkError", "Cancelled", "ContextTooLong",
        "DeviceLost", "DownloadError",
        "EngineError", "ModelNotFound", "NotEnoughMemory", "NotFinite", "NothingAllowed", "NotSupportedYet",
        "UnsupportedModel",
    ),
    "engine.chat": ("LocalChat", "finished", "open_chat"),
    "engine.models.paged": ("PagedCache",),
    "engine.generator.runner": ("Guidance",),
    "engine.generator.streaming": ("StreamingGenerator",),
    "engine.text.stops.conditions": ("Loop", "MaxTokens", "MinTokens", "StopRegex", "StopStrings",
    "StopTokens", "TimeLimit"),
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
