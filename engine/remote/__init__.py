"""Answers from OpenAI-compatible servers: vLLM, SGLang, llama.cpp, Ollama, LM Studio, hosted ones.

    provider = Provider("lab", "Lab", "http://127.0.0.1:8000/v1")
    for sentence in (probing := probe(provider, "", "m", stop)): ...
    chat = RemoteChat(provider, "m", capabilities, key)

What a server can do is found out by `probe`, once for each model, and kept as `Capabilities`; nothing is
assumed. `RemoteChat` is a `ChatSource` like a local model. Modules:

    provider      a server: its name, its address, the settings for it
    capabilities  what a server does with a model
    keys          API keys, in the system's keyring
    exchange      one HTTP request on a thread of its own, which another thread can end
    client        small requests: the list of models, tokens of a text
    trouble       what went wrong, as a sentence
    probe         finds the capabilities by a few tiny requests
    request       a `ChatRequest` as JSON
    chunks        the events of a stream as text, tokens and usage
    gate          stop conditions that the server lacks
    reply         the events of one reply
    chat          RemoteChat
"""

from __future__ import annotations

from engine.remote.capabilities import Capabilities
from engine.remote.provider import (
    MOST_WAIT,
    PRESETS,
    Preset,
    Provider,
    model_address,
    shown_name,
    split_address,
)

__all__ = [
    "MOST_WAIT", "PRESETS", "Capabilities", "Preset", "Provider", "model_address", "shown_name",
    "split_address",
]  # fmt: skip
