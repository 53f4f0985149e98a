"""Pictures in the cache: replies about them do not depend on what is cached, drafted, or runs beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.chat.local import LocalChat
from engine.chat.opening import finished, open_chat
from engine.core import ChatRequest, Done, Loading, Message, Text, Waiting
from engine.errors import BadPicture
from engine.generator.runner import SequenceRunner
from engine.kv_cache.lease import Lease
from engine.settings import (
    CacheSettings,
    GuidanceSettings,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.engine.vision.tiny.chats import GREEDY, Reply, asked, opened
from tests.engine.vision.tiny.families import FAMILIES
from tests.engine.vision.tiny.paligemma_prefix import KINDS as PREFIXES

TOKENS = 24
KINDS = ("qwen2_vl", "gemma3", "qwen3_5", "idefics3", "mllama", "paligemma", "hunyuan_vl")
"""With sections of rotary positions, in both directions, with states, of several spans, looked at by layers
of their own, in a prefix, and with the number of the picture among their positions.
"""
QUICK = ("qwen2_vl", "gemma3", "qwen3_5", "mllama")
PICTURES = [asked("What do they show?", (60, 40), (33, 70))]
TEXT = [Message("user", "Tell me something about the quick brown fox, and nothing else.")]


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in KINDS],
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return {**FAMILIES, **PREFIXES}[request.param](tmp_path_factory.mktemp("model")).folder


@pytest.fixture
def chat(folder: Path) -> Iterator[LocalChat]:
    found = opened(folder)
    yield found
    found.close()


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[int]:
    """The tokens of a reply about pictures, without anything else."""
    found = opened(folder)
    try:
        return Reply(found, PICTURES, TOKENS).ids
    finally:
        found.close()


def ids_of(events: list[Any]) -> list[int]:
    return [token.id for event in events if isinstance(event, Text) for token in event.tokens]


def together(chat: LocalChat, requests: Sequence[ChatRequest]) -> list[list[int]]:
    """The tokens of replies that are written at the same time."""
    streams = [(chat.stream(request, threading.Event()), list[Any]()) for request in requests]
    running = list(streams)
    while running:
        for one in list(running):
            event = next(one[0], None)
            if event is None:
                running.remove(one)
            else:
                one[1].append(event)
    return [ids_of(events) for _stream, events in streams]


def test_replies_beside_each_other_are_those_alone(chat: LocalChat, alone: list[int]) -> None:
    text = Reply(chat, TEXT, TOKENS).ids
    requests = [
        ChatRequest(tuple(messages), GREEDY, StopSettings(max_tokens=TOKENS, min_tokens=TOKENS))
        for messages in (PICTURES, TEXT, PICTURES, [asked("And what is this one?", (20, 20))])
    ]
    found = together(chat, requests)
    assert found[0] == found[2] == alone
    assert found[1] == text
    assert found[3] == Reply(chat, [asked("And what is this one?", (20, 20))], TOKENS).ids


def test_a_reply_after_others_took_the_cache_is_the_same(folder: Path, alone: list[int]) -> None:
    chat = opened(folder)
    try:
        first = Reply(chat, PICTURES, TOKENS)
        for number in range(12):
            Reply(chat, [Message("user", f"{number} " + "so it goes on and on " * 90)], 2)
        again = Reply(chat, PICTURES, TOKENS)
        assert again.ids == first.ids == alone
    finally:
        chat.close()


def test_drafts_change_nothing(chat: LocalChat, folder: Path, alone: list[int]) -> None:
    model = SpeculationSettings(method="model", draft_model=str(folder))
    for speculation in (SpeculationSettings(method="ngram"), model):
        reply = Reply(chat, PICTURES, TOKENS, speculation=speculation)
        assert reply.ids == alone


def test_sampled_tokens_and_penalties(chat: LocalChat) -> None:
    sampler = SamplerSettings(
        temperature=0.8, seed=5, repetition_penalty=1.2, frequency_penalty=0.3, dry_multiplier=0.5
    )
    first, again = (Reply(chat, PICTURES, TOKENS, sampler=sampler) for _unused in range(2))
    assert first.ids == again.ids
    plain = SamplerSettings(temperature=0.8, seed=5)
    assert (
        Reply(chat, PICTURES, TOKENS, sampler=plain).ids == Reply(chat, PICTURES, TOKENS, sampler=plain).ids
    )


def test_guidance_reads_the_pictures_in_both_rows(chat: LocalChat, alone: list[int]) -> None:
    guidance = GuidanceSettings(cfg_scale=1.5, negative_prompt="Be wrong.")
    guided = Reply(chat, PICTURES, TOKENS, guidance=guidance)
    assert guided.ids == Reply(chat, PICTURES, TOKENS, guidance=guidance).ids
    assert guided.ids != alone


def test_a_reply_is_replayed(chat: LocalChat, alone: list[int]) -> None:
    first = Reply(chat, PICTURES, TOKENS)
    again = Reply(chat, PICTURES, TOKENS, replayed=first.rendered)
    assert again.ids == alone
    assert again.cached == 0
    bare = Reply(chat, [Message("user", "")], TOKENS, replayed=first.rendered)  # they are in memory
    assert bare.ids == alone


def test_a_replay_without_its_pictures_is_refused(folder: Path) -> None:
    first, second = opened(folder), opened(folder)
    try:
        rendered = Reply(first, PICTURES, 2).rendered
        with pytest.raises(BadPicture, match="no longer in memory"):
            Reply(second, [Message("user", "")], 2, replayed=rendered)
        assert Reply(second, PICTURES, 2, replayed=rendered).ids
    finally:
        first.close()
        second.close()


def test_stop_ends_the_reply_while_a_picture_is_looked_at(chat: LocalChat) -> None:
    stop = threading.Event()
    request = ChatRequest((asked("What?", (90, 90)),), GREEDY, StopSettings(max_tokens=5))
    seen: list[Any] = []
    for event in chat.stream(request, stop):
        seen.append(event)
        if isinstance(event, Waiting | Loading):
            stop.set()
    assert isinstance(seen[-1], Done)
    assert seen[-1].reason == "cancelled"
    assert not ids_of(seen)


def test_a_broken_picture_is_refused_in_a_sentence(chat: LocalChat) -> None:
    broken = asked("What?", (20, 20))
    (picture,) = broken.pictures
    cut = replace(broken, pictures=(replace(picture, data=picture.data[:60]),))
    with pytest.raises(BadPicture):
        Reply(chat, [cut], 2)
    assert Reply(chat, TEXT, 2).ids


def test_caches_that_are_kept_on_disk_have_pictures(folder: Path) -> None:
    cache = CacheSettings(context_length=2048, dtype="fp32", keep_on_disk=True)
    for cached in (False, True):
        chat = finished(open_chat(folder, LoadSettings(backend="cpu", threads=2), cache))
        try:
            reply = Reply(chat, [asked("long " * 300, (60, 40), (33, 70))], TOKENS)
            assert (reply.cached > 256) == cached
        finally:
            chat.close()


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("length", [1, 24, 30, 45, 60])
def test_a_picture_of_which_the_cache_has_a_part_is_read_on(
    chat: LocalChat, alone: list[int], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one whose tokens attend to each other, all of it is read again."""
    Reply(chat, PICTURES, 1)
    cache = chat.generator.cache
    opens = cache.open

    def cut(ids: Sequence[int], key: str = "") -> Lease:
        lease = opens(ids, key)
        lease.truncate(min(lease.length, length))
        return lease

    monkeypatch.setattr(cache, "open", cut)
    reply = Reply(chat, PICTURES, TOKENS)
    assert reply.ids == alone
    assert reply.cached <= length


@pytest.mark.slow_after(1)
def test_a_suspended_reply_about_pictures_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More chats than the cache can hold together are answered as each alone."""
    settings = CacheSettings(context_length=1024, dtype="fp32", memory=1)
    suspended: list[SequenceRunner] = []
    suspend = SequenceRunner.suspend

    def counted(runner: SequenceRunner) -> None:
        suspended.append(runner)
        suspend(runner)

    monkeypatch.setattr(SequenceRunner, "suspend", counted)
    chat = finished(open_chat(folder, LoadSettings(backend="cpu", threads=2), settings))
    try:
        count = 1 + chat.generator.cache.store.page_count // 3
        messages = [[asked(f"{number} " * 30, (60, 40), (33, 70))] for number in range(count)]
        tokens = 530 - len(Reply(chat, messages[0], 1).rendered.ids)
        assert tokens > 280  # so that each reply needs two more pages while it is written
        expected = [Reply(chat, each, tokens).ids for each in messages]
        requests = [
            ChatRequest(tuple(each), GREEDY, StopSettings(max_tokens=tokens, min_tokens=tokens))
            for each in messages
        ]
        assert together(chat, requests) == expected
        assert suspended
    finally:
        chat.close()


def test_a_picture_in_tiles_takes_few_passes(tmp_path: Path) -> None:
    """The marks of tiles are read in one pass with these, and so are the ends of lines."""
    for kind in ("idefics3", "mistral3"):
        chat = opened(FAMILIES[kind](tmp_path / kind).folder)
        try:
            reply = Reply(chat, [asked("What?", (60, 40))], 1)
            assert len(reply.rendered.passes[0]) == 4  # text before, the picture, text after, the last token
        finally:
            chat.close()
