"""Many conversations with one model: each turn reads only what is new, and says what a fresh cache would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import PAGE_TOKENS as P
from engine.core import ChatRequest, Done, Message, Stats, Text
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    SamplerSettings,
    StopSettings,
)
from tests.tiny import TINY, write_folder

GREEDY, WARM = SamplerSettings(temperature=0.0), SamplerSettings(temperature=1.3, seed=5)
SYSTEM = Message(
    "system", "You are a fox by the fire. Be brief, be warm, and answer in the words of the question. " * 3
)
LONG = "The quick brown fox jumps over the lazy dog. " * 8


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "tiny", TINY.but(context_length=2048))


def opened(path: Path, context: int = 2048, memory: int = 0) -> LocalChat:
    return finished(
        open_chat(
            path, LoadSettings(backend="reference"), CacheSettings(context_length=context, memory=memory)
        )
    )


@pytest.fixture
def chat(path: Path) -> Iterator[LocalChat]:
    chat = opened(path)
    yield chat
    chat.generator.cache.table.check()
    chat.close()


class Harness:
    """Asks a chat, checks each reply against a fresh cache's, and knows what was run so far and how much
    of it.
    """

    def __init__(self, chat: LocalChat, path: Path) -> None:
        self.chat, self.fresh = chat, opened(path)
        # every prompt with its reply, but for a last token that was drawn and not run
        self.known: list[list[int]] = []
        # replies of whole characters: their ids can be found again from their text
        tokenizer = self.chat.tokenizer
        plain = [token for token in range(tokenizer.vocab_size) if tokenizer.token_bytes(token).isascii()]
        self.plain = ConstraintSettings(
            allowed_tokens=tuple(token for token in plain if token not in tokenizer.special_ids)
        )

    def ask(
        self,
        messages: list[Message],
        sampler: SamplerSettings = GREEDY,
        tokens: int = 30,
        *,
        least: int = 0,
        complete: bool = True,
        **more: Any,
    ) -> tuple[str, Stats]:
        """The reply and its counts; `complete` says that nothing was forgotten: then only what no earlier
        run began with is read.
        """
        more = {"constraint": self.plain} | more
        request = ChatRequest(
            tuple(messages), sampler, StopSettings(max_tokens=tokens, min_tokens=least), **more
        )
        text, ids, done = reply(self.chat, request)
        self.fresh.generator.cache.table.forget()
        assert (text, ids) == reply(self.fresh, request)[:2]
        stats, prompt = done.stats, self.chat._text(request).prompts.build(request).ids
        if not request.guidance.negative_prompt:
            assert stats.cached_tokens + stats.prefill_tokens == stats.prompt_tokens == len(prompt)
            cached = max((common(prompt, run) for run in self.known), default=0)
            assert not complete or stats.cached_tokens == min(cached, len(prompt) - 1)
        self.known.append([*prompt, *ids] if done.reason == "stop_token" else [*prompt, *ids[:-1]])
        return text, stats


@pytest.fixture
def harness(chat: LocalChat, path: Path) -> Iterator[Harness]:
    harness = Harness(chat, path)
    yield harness
    harness.fresh.close()


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def reply(chat: LocalChat, request: ChatRequest) -> tuple[str, list[int], Done]:
    events = list(chat.stream(request, threading.Event()))
    texts = [event for event in events if isinstance(event, Text)]
    done = events[-1]
    assert isinstance(done, Done)
    return (
        "".join(event.text for event in texts),
        [token.id for event in texts for token in event.tokens],
        done,
    )


def user(text: str) -> Message:
    return Message("user", text)


def test_switching_between_chats_reads_the_new_message_only(harness):
    talks = [[SYSTEM], [SYSTEM], [Message("system", "Another one.")]]
    for question in ("Hello there! " + LONG, "And the dog?", "1 2 3 " + LONG, "Good night!"):
        for number, messages in enumerate(talks):
            messages.append(user(f"{number} {question}"))
            text, stats = harness.ask(messages)
            messages.append(Message("assistant", text))
            if len(messages) > 4:
                new = len(
                    harness.chat.tokenizer.encode(
                        f"<|im_end|>\n<|im_start|>user\n{number} "
                        f"{question}<|im_end|>\n<|im_start|>assistant\n"
                    )
                )
                assert stats.prefill_tokens <= new + 1
    assert all(len(run) > P for run in harness.known[-3:])


def test_regenerating_and_a_changed_sampler_read_one_token(harness):
    messages = [SYSTEM, user("Hello! " + LONG)]
    texts = {
        harness.ask(messages, sampler)[0]
        for sampler in (GREEDY, WARM, SamplerSettings(temperature=1.3, seed=6), GREEDY)
    }
    assert len(texts) == 3
    assert harness.ask(messages, WARM)[1].prefill_tokens == 1


@pytest.mark.slow
def test_an_edited_message_costs_what_follows_it_and_every_version_stays(harness):
    first = [SYSTEM, user("Hello! " + LONG)]
    first.append(Message("assistant", harness.ask(first)[0]))
    versions = [[*first, user(question)] for question in ("Who are you?", "Who is it? " + LONG)]
    for messages in versions:
        messages.append(Message("assistant", harness.ask(messages)[0]))
        messages.append(user("So?"))
        harness.ask(messages)
    edited = [SYSTEM, user("Hallo! " + LONG), *versions[0][2:]]
    harness.ask(edited)
    for messages in versions:
        assert harness.ask(messages)[1].prefill_tokens == 1


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("tokens", [2, 7, 300])
def test_the_token_that_ended_a_reply_is_read_with_the_next_message(harness, tokens):
    """TinyChat's `start_pos` leaves it out; here it is read, and nothing before it."""
    (end,) = harness.chat.tokenizer.encode("<|im_end|>", special=True)
    ends = replace(
        harness.plain, allowed_tokens=(*harness.plain.allowed_tokens, end), logit_bias=(f"{end} = 1000",)
    )
    messages = [SYSTEM, user("Hello there! " + LONG)]
    for question in ("And then?", "Good night!"):
        text, stats = harness.ask(messages, tokens=tokens, least=tokens // 2, constraint=ends)
        assert stats.new_tokens == tokens // 2 + 1
        before = harness.known[-1]
        messages += [Message("assistant", text), user(question)]
        asked = ChatRequest(tuple(messages))
        prompt = harness.chat._text(asked).prompts.build(asked).ids
        assert prompt[: len(before) + 1] == [*before, end]
        assert harness.ask(messages, tokens=tokens, least=tokens // 2, constraint=ends)[
            1
        ].prefill_tokens == len(prompt) - len(before)


@pytest.mark.slow
def test_stopping_anywhere_then_this_or_another_question(harness):
    harness.chat.generator.cache.rows = 64
    questions = ["Hello there! " + LONG * 2, "Hello there! " + LONG + "And you?", "How are you?"]
    for steps in range(1, 12):
        stop, messages = threading.Event(), [SYSTEM, user(f"{steps} " + questions[steps % 3])]
        for count, _ in enumerate(harness.chat.stream(ChatRequest(tuple(messages), WARM), stop), 1):
            if count == steps:
                stop.set()
        harness.chat.generator.cache.table.check()
        assert harness.ask(messages, tokens=6, complete=False)[1].prefill_tokens < 600
        harness.ask([SYSTEM, user(f"{steps} " + questions[(steps + 1) % 3])], tokens=6, complete=False)


@pytest.mark.slow
def test_the_conversation_not_touched_for_longest_goes_first(path):
    chat = opened(path, context=768, memory=2)  # a page is 256 KiB: eight of them
    assert chat.generator.cache.store.page_count == 8
    harness = Harness(chat, path)
    talks = [[user(f"{number} {LONG}{LONG}")] for number in range(4)]  # two pages each
    for messages in talks[:3]:
        harness.ask(messages)
    harness.ask(talks[0])
    harness.ask(talks[3])  # eight pages are full now
    assert harness.ask(talks[0], complete=False)[1].prefill_tokens == 1
    assert harness.ask([user("new " + LONG + LONG)], complete=False)[1].cached_tokens < 10
    left = [
        harness.ask(messages, complete=False)[1].cached_tokens for messages in (talks[0], talks[3], talks[1])
    ]
    assert min(left[:2]) > P
    assert left[2] < P
    chat.generator.cache.table.check()
    chat.close()
    harness.fresh.close()


@pytest.mark.slow
def test_both_rows_of_guidance_are_found_again(harness):
    guided = GuidanceSettings(negative_prompt="Be long. " + LONG, cfg_scale=1.5)
    messages = [SYSTEM, user("Hello there! " + LONG)]
    for turn, question in enumerate(("And then?", "Good night!", "")):
        text, stats = harness.ask(messages, guidance=guided, complete=False)
        if turn:
            assert stats.prefill_tokens < 120 < stats.cached_tokens
        messages += [Message("assistant", text), user(question)]
    assert harness.ask(messages[:-2], guidance=guided, complete=False)[1].prefill_tokens == 2
    harness.ask(messages[:-2])  # without guidance: the positive row's cache serves


@pytest.mark.slow
def test_a_conversation_longer_than_the_context_ends_there_and_another_goes_on(path):
    chat = opened(path, context=512, memory=6)
    assert chat.generator.cache.store.page_count == 24
    events = list(
        chat.stream(
            ChatRequest((user("Hello! " + LONG),), GREEDY, StopSettings(max_tokens=0, min_tokens=2000)),
            threading.Event(),
        )
    )
    done = events[-1]
    assert isinstance(done, Done)
    assert done.reason == "context_full"
    assert done.stats.context_tokens - 512 in (0, 1)  # a last token may be drawn that no longer has a place
    assert (
        reply(
            chat, ChatRequest((user("Hello! " + LONG), user("Go on.")), GREEDY, StopSettings(max_tokens=5))
        )[2].stats.cached_tokens
        > 230
    )
    chat.close()
