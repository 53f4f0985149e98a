"""Whole replies on the CUDA backend: the generator, its sampler and its filters, drafting and guidance, as
on the reference.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Message, Text
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.simt.fake_machine import FakeMachine, install
from tests.tiny import TINY, write_gguf

CACHE = CacheSettings(context_length=512, memory=1, dtype="fp32")
GREEDY = SamplerSettings(temperature=0.0)
DRAWN = SamplerSettings(temperature=0.9, top_k=40, top_p=0.95, min_p=0.02, seed=11)
ASK = (Message("user", "the dog and the fox, the dog and the fox"),)

FEW = ConstraintSettings(allowed_tokens=tuple(range(60, 70)))
"""So few words that the text repeats itself."""
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
NGRAMS = SpeculationSettings(method="ngram", draft_tokens=7, adaptive=False)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("m") / "m.gguf", TINY, "F32")


@pytest.fixture(scope="module")
def machine() -> Iterator[FakeMachine]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


@pytest.fixture(scope="module")
def chats(machine: FakeMachine, path: Path) -> Iterator[tuple[LocalChat, LocalChat]]:
    """On the device, and on the reference."""
    both = tuple(
        finished(open_chat(path, LoadSettings(backend=name), CACHE)) for name in ("cuda", "reference")
    )
    yield both[0], both[1]
    for chat in both:
        chat.close()
    assert machine.taken == [0]


class Reply:
    """All that a reply tells, but for times."""

    def __init__(
        self, chat: LocalChat, messages: tuple[Message, ...] = ASK, tokens: int = 16, **settings: Any
    ) -> None:
        stops = settings.pop("stops", StopSettings(max_tokens=tokens))
        request = ChatRequest(messages, settings.pop("sampler", GREEDY), stops, **settings)
        self.events = list(chat.stream(request, threading.Event()))
        done = self.events[-1]
        assert isinstance(done, Done)
        texts = [event for event in self.events if isinstance(event, Text)]
        self.text = "".join(event.text for event in texts)
        self.tokens = [token for event in texts for token in event.tokens]
        self.ids = [token.id for token in self.tokens]
        self.reason, self.stats = done.reason, done.stats

    @property
    def reported(self) -> Any:
        return self.text, self.ids, self.reason


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "drawn": {"sampler": DRAWN},
    "drawn from all": {"sampler": replace(DRAWN, top_k=0, top_p=1.0, min_p=0.0)},
    "penalties": {"sampler": replace(DRAWN, repetition_penalty=1.3, repetition_range=20,
    frequency_penalty=0.4, presence_penalty=0.2)},
    "dry": {"sampler": replace(DRAWN, dry_multiplier=1.0)},
    "xtc": {"sampler": replace(DRAWN, xtc_probability=0.7)},
    "mirostat": {"sampler": replace(DRAWN, mirostat=True)},
    "curves": {"sampler": replace(DRAWN, smoothing_factor=0.3, typical=0.9, tail_free=0.95, top_a=0.1,
    top_n_sigma=2.0)},
    "schema": {
        "constraint": ConstraintSettings(format="json_schema", pattern=json.dumps(SCHEMA)),
        "sampler": DRAWN,
    },
    "regex": {"constraint": ConstraintSettings(format="regex", pattern=r"[a-z]{4} [0-9]+")},
    "bans": {"constraint": ConstraintSettings(banned_strings=("e", "a", " t"))},
    "bias": {"constraint": ConstraintSettings(logit_bias=("70 = 2", "80 = -5"), banned_tokens=(90, 91, 92))},
    "begins": {"constraint": ConstraintSettings(begin_with="The dog")},
    "stop strings": {"stops": StopSettings(max_tokens=40, stop_strings=("e", "o", "u"), keep_stop=True)},
    "min tokens": {"stops": StopSettings(max_tokens=20, min_tokens=10)},
    "guidance": {"guidance": GuidanceSettings("Say nothing.", 1.6)},
    "alternatives": {"output": OutputSettings(alternatives=5)},
    "alternatives, drawn": {"output": OutputSettings(alternatives=5), "sampler": DRAWN},
    "healing": {
        "messages": (*ASK, Message("assistant", "The quick bro")), "continue_last": True,
        "constraint": ConstraintSettings(heal=True),
    },
    "n-grams": {"speculation": NGRAMS, "constraint": FEW, "tokens": 24},
    "n-grams, drawn": {"speculation": NGRAMS, "constraint": FEW, "sampler": DRAWN, "tokens": 24},
}  # fmt: skip


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("name", CASES)
def test_as_on_the_reference(chats: tuple[LocalChat, LocalChat], name: str) -> None:
    """In float32 both compute the same but for the order of sums, and these seeds come near no border."""
    found, expected = (Reply(chat, **CASES[name]) for chat in chats)
    assert found.reported == expected.reported
    again = Reply(chats[0], **CASES[name])
    assert again.reported == found.reported
    assert (found.stats.drafted_tokens > 0) == ("speculation" in CASES[name])
    for token, other in zip(found.tokens, expected.tokens, strict=True):
        assert token.healed == other.healed
        assert [one.id for one in token.alternatives] == [one.id for one in other.alternatives]
