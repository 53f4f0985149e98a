"""A reply made again: the prompt as it is reported, the passes it was read in, and the same tokens with the
same probabilities.
"""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import PAGE_TOKENS, ChatRequest, Done, Message, Rendered, Text, TokenInfo, Tool
from engine.generator.decode import driven
from engine.generator.runner import SequenceRunner
from engine.kv_cache.pages import PageTable
from engine.kv_cache.readings import Readings, cut, planned
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.engine.generator.fakes import make
from tests.tiny import TINY, write_folder

WARM = SamplerSettings(temperature=1.0, repetition_penalty=1.15, frequency_penalty=0.2, presence_penalty=0.1)


def reported(chat: LocalChat, request: ChatRequest) -> tuple[list[TokenInfo], Done, Rendered | None]:
    events = list(chat.stream(request, threading.Event()))
    prompt = next((event for event in events if isinstance(event, Rendered)), None)
    done = events[-1]
    assert isinstance(done, Done)
    return [token for event in events if isinstance(event, Text) for token in event.tokens], done, prompt


def bits(tokens: list[TokenInfo]) -> list[tuple[int, float, float]]:
    return [(token.id, token.probability, token.raw_probability) for token in tokens]


def again(request: ChatRequest, done: Done, prompt: Rendered) -> ChatRequest:
    return replace(
        request,
        messages=(),
        replayed=prompt,
        report_prompt=False,
        sampler=replace(request.sampler, seed=done.stats.seed),
    )


def talk(chat: LocalChat, request: ChatRequest, turns: int) -> list[tuple[list[TokenInfo], Done, Rendered]]:
    """Some turns with random seeds; each is replayed at once and must be the same in every bit."""
    messages, found = request.messages, []
    for turn in range(turns):
        asked = replace(request, messages=messages)
        tokens, done, prompt = reported(chat, asked)
        assert prompt is not None
        assert prompt.exact
        assert len(prompt.ids) == done.stats.prompt_tokens
        found.append((tokens, done, prompt))
        repeated, end, _ = reported(chat, again(asked, done, prompt))
        assert bits(repeated) == bits(tokens)
        assert (end.reason, end.trigger, end.stats.cached_tokens) == (done.reason, done.trigger, 0)
        text = chat.tokenizer.decode([token.id for token in tokens])
        messages = (
            *messages,
            Message("assistant", text),
            Message("user", f"And what comes after that, number {turn}?"),
        )
    assert found[-1][1].stats.cached_tokens > 0, "the replays took what the chat had in the cache"
    return found


def test_passes_are_planned_cut_and_remembered() -> None:
    assert planned(0, 10, 4) == [(0, 4), (4, 4), (8, 1), (9, 1)]
    assert planned(9, 10, 4) == [(9, 1)]
    assert planned(10, 10, 4) == []
    passes = planned(0, 10, 4)
    cut(passes, 5)
    assert passes == [(0, 4), (4, 4)]
    known = Readings()
    known.remember("a", [1, 2, 3], [(0, 3)])
    known.remember("a", [1, 2, 4], [(0, 1), (1, 2)])
    assert known.of("a", [1, 2, 3, 9], 3) == [(0, 3)]
    assert known.of("a", [1, 2, 8], 2) == [(0, 1), (1, 2)]
    assert known.of("a", [1, 2, 8], 1) == [(0, 1)]
    assert known.of("b", [1, 2, 3], 2) == [(0, 0)] == known.of("a", [7], 1)
    assert known.of("b", [7], 0) == []


def test_the_passes_of_the_latest_sequences_are_remembered() -> None:
    known, passes = Readings(), [(0, 1)]
    for token in [*range(128), 0, 128]:  # the first one is used again, so the second goes
        known.remember("a", [token], passes)
    assert [token for token in range(129) if known.of("a", [token], 1) != passes] == [1]
    known.remember("a", [], [(0, 9)])
    assert known.of("a", [0], 1) == passes


def test_passes_that_are_replayed_and_those_that_were_not_known() -> None:
    """What was not known of a cached beginning is read as if it were new; no pass has more rows than this
    cache runs at once.
    """
    generator, model = make(rows=4)
    source = SequenceRunner(generator.cache, [*range(20, 35)], replayed=[[(0, 3), (3, 0), (12, 9), (14, 1)]])
    source.open()
    assert source.reading() == (((0, 3), (3, 4), (7, 4), (11, 1), (12, 4), (14, 1)),)
    assert [event.done for event in driven(source.prefill(None), generator.cache)] == [
        0,
        3,
        7,
        11,
        12,
        14,
        15,
    ]
    assert model.program.ran == [3, 4, 4, 1, 4, 1], "rows that were taken back are run again"
    source.close()


def test_a_replay_takes_nothing_from_the_cache_and_leaves_nothing() -> None:
    generator, model = make(rows=4)
    ids, table = [*range(20, 35)], generator.cache.table
    for replayed in ((), [planned(0, 15, 4)], [planned(0, 15, 3)]):
        before, begun = table.cached, len(model.program.ran)
        source = SequenceRunner(generator.cache, ids, replayed=replayed)
        source.open()
        assert source.cached == 0
        list(driven(source.prefill(None), generator.cache))
        source.close()
        assert model.program.ran[begun:] == [rows for _, rows in (replayed or [planned(0, 15, 4)])[0]]
        assert table.cached == (before if replayed else 1)
        assert table.found(ids) == 15


def test_what_would_be_found_is_reported_without_a_change() -> None:
    rng, table = random.Random(3), PageTable(12)
    stored = [rng.randrange(5) for _ in range(3 * PAGE_TOKENS)]
    for length in (40, PAGE_TOKENS + 7, 3 * PAGE_TOKENS):
        with table.open(stored[:length]) as lease:
            lease.reserve(length)
            lease.extend(stored[lease.length : length])
    for length in (1, 39, PAGE_TOKENS, PAGE_TOKENS + 3, 3 * PAGE_TOKENS):
        expected = [*stored[:length], 9, 9]
        reported_length = table.found(expected, leave=1)
        assert reported_length == length == table.found(expected, leave=1)
        assert table.found(expected, key="other", leave=1) == 0
        with table.open(expected, leave=1) as lease:
            assert lease.length == reported_length
    assert table.found(stored[:40], leave=1) == 39
    assert table.found([], leave=1) == 0


@pytest.fixture
def chat(tmp_path: Path):
    found = finished(
        open_chat(
            write_folder(tmp_path / "tiny", TINY.but(context_length=1024)), LoadSettings(backend="reference")
        )
    )
    yield found
    found.generator.cache.table.check()
    found.close()


def test_replays_prompts_and_foresight(chat: LocalChat) -> None:
    request = ChatRequest(
        (Message("system", "Be brief."), Message("user", "Who is there? <|im_end|>")),
        WARM,
        StopSettings(max_tokens=12),
    )
    assert reported(chat, request)[2] is None, "nobody asked for the prompt"
    request = replace(
        request, report_prompt=True, messages=(request.messages[0], Message("user", "Who lives here? " * 9))
    )
    before = chat.foresee(request)
    (_, done, prompt), *_ = talk(chat, request, 2)
    assert (before.prompt_tokens, before.cached_tokens) == (
        done.stats.prompt_tokens,
        done.stats.cached_tokens,
    )
    assert sum(before.messages) == before.prompt_tokens
    assert len(before.messages) == 2
    assert before.messages[1] > before.messages[0]
    assert chat.foresee(request).cached_tokens == before.prompt_tokens - 1
    assert chat.foresee(replace(request, messages=())).prompt_tokens == 0
    words = {id: data for id, data, _ in prompt.vocabulary}
    assert b"Who lives here?" in b"".join(words[id] for id in prompt.ids)
    special = {id for id, _, control in prompt.vocabulary if control}
    assert special
    assert special <= chat.tokenizer.special_ids


@pytest.mark.parametrize("system", [(), (Message("system", "Be brief."),)])
def test_foresight_counts_the_messages_that_are_kept(chat: LocalChat, system: tuple[Message, ...]) -> None:
    long = (Message("user", "Who lives here? " * 30), Message("assistant", "Nobody does. " * 30))
    messages = (*system, *long * 6, Message("user", "Sure?"))
    found = chat.foresee(ChatRequest(messages, stops=StopSettings(max_tokens=12)))
    assert 0 < found.dropped_messages < len(messages)
    assert len(found.messages) == len(messages) - found.dropped_messages
    assert sum(found.messages) == found.prompt_tokens
    largest = max(found.messages)
    assert found.messages[-1] < largest / 4
    assert (found.messages[0] < largest / 4) == bool(system), "the system message is never left out"


def test_foresight_tells_the_definitions_of_tools_from_the_messages(chat: LocalChat) -> None:
    """Whatever stands beside them: those of the same tools always count as much."""
    system, question = Message("system", "Be brief."), Message("user", "Who lives here? " * 3)
    for messages in (
        (question,),
        (system, question),
        (system, question, Message("assistant", "I do."), question),
    ):
        plain = ChatRequest(messages)
        without = chat.foresee(plain)
        assert without.tools == 0
        for tools in (
            (Tool("clock"),),
            (Tool("clock"), Tool("files", "Lists all files.", '{"type": "object"}')),
        ):
            found = chat.foresee(replace(plain, tools=tools))
            assert found.tools == found.prompt_tokens - without.prompt_tokens > 0
            assert found.messages == without.messages
    assert chat.foresee(replace(plain, tools=(Tool("clock"),), tool_choice="none")).tools == 0


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"guidance": GuidanceSettings("Be rude.", 1.6)},
        {"speculation": SpeculationSettings("ngram", adaptive=False)},
        {"constraint": ConstraintSettings(banned_strings=("a", "e"))},
    ],
)
def test_replays_with_other_settings(chat: LocalChat, settings: dict) -> None:
    question = (Message("user", "One two one two one two. " * 12),)
    talk(chat, ChatRequest(question, WARM, StopSettings(max_tokens=24), report_prompt=True, **settings), 2)


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.parametrize("method", ["none", "ngram"])
def test_the_starter_says_it_again_bit_for_bit_after_a_restart(starter_path: Path, method: str) -> None:
    cache = CacheSettings(context_length=2048)
    request = ChatRequest(
        (Message("system", "You are a storyteller."), Message("user",
        "Tell me about the fox and the hound by the fire. " * 20)), WARM,
        StopSettings(max_tokens=70), speculation=SpeculationSettings(method), report_prompt=True,
    )  # fmt: skip
    first = finished(open_chat(starter_path, LoadSettings(), cache))
    found = talk(first, request, 3)
    first.close()
    second = finished(open_chat(starter_path, LoadSettings(), cache))
    for tokens, done, prompt in reversed(found):
        assert bits(reported(second, again(request, done, prompt))[0]) == bits(tokens)
    tokens, done, prompt = found[-1]
    other = reported(
        second, replace(again(request, done, prompt), sampler=replace(WARM, seed=done.stats.seed + 1))
    )[0]
    assert bits(other) != bits(tokens)
    second.close()
