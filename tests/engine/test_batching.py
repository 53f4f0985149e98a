"""Jobs on real kernels of the CPU: each gives the same tokens with the same probabilities, bit for bit, as
when it runs alone, whatever runs beside it and however its prompt is divided.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Message, Text, TokenInfo, Waiting
from engine.generator.dynamic import DynamicGenerator, Failed, Job
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.streaming import StreamingGenerator
from engine.models.paged import PagedCache
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.tiny import TINY, write_folder


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalChat]:
    folder: Path = write_folder(tmp_path_factory.mktemp("tiny"), TINY)
    loading = open_chat(folder, LoadSettings(backend="cpu", threads=2), CacheSettings(context_length=1024))
    chat = finished(loading)
    yield chat
    chat.close()


def bits(tokens: Sequence[TokenInfo]) -> list[tuple[int, float, float]]:
    return [(token.id, token.probability, token.raw_probability) for token in tokens]


def alone(chat: LocalChat, request: GenerationRequest) -> list[tuple[int, float, float]]:
    """The tokens of a request that runs alone, and that finds nothing in the cache."""
    cache = chat.generator.cache
    cache.table.forget()
    generator = StreamingGenerator(chat.generator.model, cache, chat.tokenizer)
    tokens = [t for event in generator.stream(request) if isinstance(event, Text) for t in event.tokens]
    cache.table.forget()
    return bits(tokens)


def request(seed: int, length: int, tokens: int, **more: Any) -> GenerationRequest:
    dice = random.Random(seed)
    sampler = SamplerSettings(seed=seed, temperature=dice.choice([0.0, 0.9]), repetition_penalty=1.1)
    ids = dice.choices(range(20, 300), k=length)
    return GenerationRequest(ids, sampler, StopSettings(max_tokens=tokens), **more)


def kinds(count: int) -> list[GenerationRequest]:
    """Requests of every kind and of very different lengths."""
    lengths = [3, 40, 257, 600, 9, 300, 66, 520]
    more: list[dict[str, Any]] = [
        {},
        {"speculation": SpeculationSettings(method="ngram", draft_tokens=3)},
        {"guidance": Guidance(tuple(range(30, 75)), 1.5)},
        {"constraint": ConstraintSettings(format="regex", pattern="[a-z ]{5,60}")},
        {"constraint": ConstraintSettings(banned_strings=("e", "th"))},
        {
            "guidance": Guidance(tuple(range(30, 50)), 1.2),
            "speculation": SpeculationSettings(method="ngram", draft_tokens=7, adaptive=False),
        },
    ]
    return [request(n, lengths[n % 8], 12 + n, **more[n % 6]) for n in range(count)]


def together(generator: DynamicGenerator, jobs: Sequence[Job]) -> dict[Job, list[TokenInfo]]:
    found: dict[Job, list[TokenInfo]] = {job: [] for job in jobs}
    generator.enqueue(jobs)
    while generator.num_remaining_jobs:
        for job, event, _ in generator.iterate():
            assert not isinstance(event, Failed), event.error
            if isinstance(event, Text):
                found[job] += event.tokens
        generator.cache.table.check()
    return found


def test_eight_jobs_have_the_bits_of_each_alone(chat: LocalChat) -> None:
    asked = kinds(8)
    expected = [alone(chat, each) for each in asked]
    found = together(chat.generator, [Job(each) for each in asked])
    assert [bits(tokens) for tokens in found.values()] == expected


@pytest.mark.slow
@pytest.mark.parametrize("cache_type", ["q8", "q4"])
def test_quantised_caches_and_sixteen_jobs(chat: LocalChat, cache_type: str) -> None:
    """Quantised keys and values, prompts in chunks of 64 rows, batches of more rows than one pass takes."""
    model = chat.generator.model
    cache = PagedCache(model, CacheSettings(context_length=1024, dtype=cache_type))
    try:
        generator = DynamicGenerator(model, cache, chat.tokenizer, max_chunk_size=64)
        asked = kinds(16)
        single = StreamingGenerator(model, cache, chat.tokenizer)
        expected = []
        for each in asked:
            cache.table.forget()
            events = single.stream(each)
            expected.append(bits([t for event in events if isinstance(event, Text) for t in event.tokens]))
        cache.table.forget()
        found = together(generator, [Job(each) for each in asked])
        assert [bits(tokens) for tokens in found.values()] == expected
    finally:
        cache.close()


def test_replies_of_a_chat_in_turns(chat: LocalChat) -> None:
    """What the window does: several replies are open, each is asked in turn, one is stopped, one closed."""
    texts = ["Hello there!", "The quick brown fox", "How are you?", "One two three"]
    sampler = SamplerSettings(temperature=0.0)
    requests = [
        ChatRequest((Message("user", text),), sampler, StopSettings(max_tokens=20), priority=n == 1)
        for n, text in enumerate(texts)
    ]

    def said(events: Sequence[Any]) -> str:
        return "".join(event.text for event in events if isinstance(event, Text))

    chat.generator.cache.table.forget()
    expected = [said(list(chat.stream(each, threading.Event()))) for each in requests]
    chat.generator.cache.table.forget()
    stops = [threading.Event() for _ in requests]
    streams = [chat.stream(each, stop) for each, stop in zip(requests, stops, strict=True)]
    found: list[list[Any]] = [[] for _ in requests]
    going = list(range(4))
    while going:
        for n in list(going):
            event = next(streams[n], None)
            if event is None:
                going.remove(n)
            elif not isinstance(event, Waiting):
                found[n].append(event)
            if n == 2 and sum(isinstance(event, Text) for event in found[2]) == 5:
                stops[2].set()
            if n == 3 and sum(isinstance(event, Text) for event in found[3]) == 5 and 3 in going:
                streams[3].close()  # type: ignore[attr-defined]
                going.remove(3)
    assert [said(events) for events in found[:2]] == expected[:2]
    assert [type(events[-1]) for events in found[:3]] == [Done] * 3
    assert found[2][-1].reason == "cancelled"
    assert expected[3].startswith(said(found[3]))
    assert not any(page.refs for page in chat.generator.cache.table.pool.pages)
