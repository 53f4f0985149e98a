"""What the host does for each token of a chat's reply, in calls: on the CPU the model waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatEvent, ChatRequest, Message, Text
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from tests.work import calls_in

pytestmark = pytest.mark.real_model

BEGINNING, COUNTED = 8, 32
"""Tokens before those whose calls are counted, and the number of those."""


@pytest.fixture(scope="module")
def chat(starter_path: Path) -> Iterator[LocalChat]:
    loading = open_chat(
        str(starter_path), LoadSettings(backend="cpu", threads=1), CacheSettings(context_length=512)
    )
    with closing(finished(loading)) as chat:
        yield chat


def written(events: Iterator[ChatEvent], count: int) -> None:
    """Read a reply's events until `count` more tokens are written."""
    while count > 0:
        event = next(events)
        if type(event) is Text:
            count -= len(event.tokens)
    assert not count


def calls(chat: LocalChat, sampler: SamplerSettings) -> float:
    """Calls of Python and C functions for each token."""
    request = ChatRequest((Message("user", "Tell me about the sea."),), sampler, StopSettings(max_tokens=64))
    with closing(chat.stream(request, threading.Event())) as events:  # type: ignore[type-var]
        written(events, BEGINNING)
        return calls_in(lambda: written(events, COUNTED)) / COUNTED


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["one step at a time", "eight steps in a row"])
@pytest.mark.parametrize(
    ("sampler", "most"),
    [(SamplerSettings(seed=1, temperature=0.0), 70), (SamplerSettings(seed=1), 75)],
    ids=["greedy", "default settings"],
)
def test_calls_for_a_token(
    chat: LocalChat, sampler: SamplerSettings, most: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the model's scores to the event with the token's text, and to the next pass. The second reply,
    since the first one learns the texts of its tokens.
    """
    monkeypatch.setattr("engine.generator.decode.RUNNING_SECONDS", 1e9)  # a slow machine would get more
    monkeypatch.setattr("engine.backends.cpu.decode_loop._LONGEST_S", seconds)
    calls(chat, sampler)
    assert calls(chat, sampler) <= (most if seconds == 0.0 else most - 10)
