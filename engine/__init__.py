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

adapter: a LoRA adapter, low-rank matrices that are added to a model's linear layers.
architecture: the kind of a model (Llama, Qwen 3): how to read its headers, the names of its tensors, its
parts.
backend: an implementation of the operations that holds weights and runs programs: CPU, CUDA, or the reference
(torch).
block table: the numbers of the pages that hold a sequence, in order.
cache type: the number format of the keys and values in the KV cache.
chat template: the Jinja template that turns messages into a prompt.
checkpoint: the files of a model, opened but not loaded.
command: one function of the program `inglenook-engine`.
decode: to generate the next token by a pass; a decode loop does so on the device, sampling included, without
the host.
drafting: guessing several tokens that the model then checks in one pass; a draft model or repeated text
supplies the guesses.
filter: a constraint on the text of a reply: the set of tokens that may come next.
kernel: one compiled function that computes on a device.
KV cache: the keys and values of all positions that attention looks back at, stored in pages.
lease: the claim of one sequence on the pages of the KV cache that hold it.
logits: the scores of all tokens of the vocabulary for the next position, before sampling.
lowering: turning the nodes of a recorded pass into the kernel calls that a backend replays.
node: one operation of a recorded pass before it is lowered; fusion makes one node of several.
page: the keys and values of 256 consecutive positions.
pass: one run of the whole model over some rows, each a position of a sequence.
prefill: reading the prompt, in large batches of rows.
prefix index: finds the pages that already hold the beginning of a prompt.
program: a recorded pass, ready to be replayed.
proposal: a guessed token, which counts if the target chooses the same.
rope: rotary position embedding, which rotates queries and keys by their positions.
sampler step: one change of the distribution from which a token is sampled: top-k, temperature, penalties.
sequence: the tokens of one reply while it is generated, with what decides when it ends.
stage: operations of a pass that run at the same time on the threads of the CPU.
stop condition: what ends a reply.
survey: reading the headers of a model to check it and to estimate its memory, without loading weights.
turn: a message of the user or the model in a chat.
weight layout: how a matrix is packed in the memory of a device for its kernels.
weight spec: the shape, layout and size of a matrix, known from its header alone.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "engine.core": (
        "Alternative", "CallPiece", "ChatEvent", "ChatRequest", "ChatSource", "Done", "Foreseen", "Loading",
        "Message",
        "ModelInfo", "Picture", "Prefill",
        "PromptSize", "Rendered", "Running", "Stats", "Text", "TokenInfo", "Tool", "ToolCall",
        "Trimmed", "Waiting",
    ),
    "engine.settings": (
        "CacheSettings", "ConstraintSettings", "GuidanceSettings", "LoadSettings", "OutputSettings",
        "SamplerSettings",
        "SpeculationSettings", "StopSettings",
    ),
    "engine.errors": (
        "BadCheckpoint", "BadPicture", "BadSetting", "BadTemplate", "BenchmarkError", "Cancelled",
        "ContextTooLong", "DeviceLost", "DownloadError",
        "EngineError", "ModelNotFound", "NotEnoughMemory", "NotFinite", "NothingAllowed", "NotSupportedYet",
        "RemoteError", "UnsupportedModel",
    ),
    "engine.chat": ("LocalChat", "finished", "open_chat", "text_vector"),
    "engine.models.paged": ("PagedCache",),
    "engine.generator.dynamic": ("DynamicGenerator", "Job"),
    "engine.generator.dynamic_async": ("AsyncDynamicGenerator",),
    "engine.generator.runner": ("Guidance",),
    "engine.generator.streaming": ("StreamingGenerator",),
    "engine.text.stops.conditions": ("Loop", "MaxTokens", "MinTokens", "StopRegex", "StopStrings",
    "StopTokens", "TimeLimit"),
    "engine.constraint.prefix": ("PrefixFilter",),
    "engine.constraint.select": ("SelectFilter",),
    "engine.constraint.grammar": ("GrammarFilter",),
    "engine.vision.describe": ("describe",),
}  # fmt: skip

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
