"""Free completion: a text goes on without a template, whatever its length."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from engine.core import ChatRequest, Done, Message, Prefill, Trimmed
from engine.errors import BadSetting, ContextTooLong
from engine.settings import GuidanceSettings, SamplerSettings, StopSettings
from tests.engine.generator.fakes import fresh_reply, tokenizer
from tests.engine.test_chat import GREEDY, fake_chat, plain_ids


def request(text: str, tokens: int = 8, **more: Any) -> ChatRequest:
    stops = StopSettings(max_tokens=tokens, when_full=more.pop("when_full", "drop_oldest"))
    return ChatRequest((Message("document", text),), GREEDY, stops, plain=True, **more)


def run(chat: Any, asked: ChatRequest) -> list[Any]:
    return list(chat.stream(asked, threading.Event()))


def bos() -> list[int]:
    return tokenizer().encode("", add_bos=tokenizer().add_bos)


def test_the_text_alone_is_the_prompt() -> None:
    chat, _ = fake_chat()
    ids = [*bos(), *tokenizer().encode("Once upon a time")]
    events = run(chat, request("Once upon a time"))
    assert events[0] == Prefill(0, len(ids), 0)
    assert plain_ids(events) == fresh_reply(ids, 8)


def test_control_tokens_of_the_text_are_control_tokens() -> None:
    chat, _ = fake_chat()
    ids = [*bos(), *tokenizer().encode("<|im_start|>user\nHi", special=True)]
    assert tokenizer().encode("<|im_start|>") != tokenizer().encode("<|im_start|>", special=True)
    assert plain_ids(run(chat, request("<|im_start|>user\nHi"))) == fresh_reply(ids, 8)


def test_exact_tokens_stand_for_the_text() -> None:
    chat, _ = fake_chat()
    ids = tokenizer().encode("time")[:1] + [5, 6, 7]
    assert plain_ids(run(chat, request("whatever", continue_ids=tuple(ids)))) == fresh_reply(
        [*bos(), *ids], 8
    )


def test_a_text_beyond_the_context_loses_its_beginning_in_steps() -> None:
    chat, _ = fake_chat(context=256)
    words = "word " * 400
    ids = tokenizer().encode(words)
    events = run(chat, request(words))
    trimmed = next(event for event in events if isinstance(event, Trimmed))
    assert (trimmed.dropped_messages, trimmed.dropped_tokens % 32) == (0, 0)
    assert plain_ids(events) == fresh_reply([*bos(), *ids[trimmed.dropped_tokens :]], 8)
    longer = run(chat, request(words + "more"))
    # the cut stays, and with it what is cached
    assert next(event for event in longer if isinstance(event, Trimmed)) == trimmed
    done = longer[-1]
    assert isinstance(done, Done)
    assert done.stats.cached_tokens > 128


@pytest.mark.parametrize("words", range(350, 390, 8))
def test_the_reply_to_a_text_beyond_the_context_has_its_room(words: int) -> None:
    """What it may have, up to a quarter of the context."""
    chat, _ = fake_chat(context=256)
    done = run(chat, request("word " * words, tokens=64))[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.stats.new_tokens) == ("max_tokens", 64)


def test_a_text_beyond_the_context_is_refused_where_nothing_may_be_left_out() -> None:
    chat, _ = fake_chat(context=256)
    with pytest.raises(ContextTooLong, match="shorten it"):
        run(chat, request("word " * 400, when_full="stop"))


def test_a_negative_prompt_guides_it_as_a_completion_of_ids() -> None:
    chat, _ = fake_chat()
    asked = request("Once upon a time", guidance=GuidanceSettings(cfg_scale=2.0, negative_prompt="Never"))
    written = plain_ids(run(chat, asked))
    other, _ = fake_chat()
    ids = [*bos(), *tokenizer().encode("Once upon a time")]
    assert written == plain_ids(list(other.complete(ids, asked, threading.Event())))
    assert written != fresh_reply(ids, 8)


def test_nothing_to_go_on_from_is_said() -> None:
    chat, _ = fake_chat()
    with pytest.raises(BadSetting, match="no text"):
        run(chat, ChatRequest((), SamplerSettings(), plain=True))


def test_a_conversation_goes_on_as_if_nothing_had_been_completed() -> None:
    chat, _ = fake_chat()
    messages = (Message("user", "Hello"),)
    asked = ChatRequest(messages, GREEDY, StopSettings(max_tokens=8))
    before = plain_ids(run(chat, asked))
    run(chat, request("Once upon a time"))
    assert plain_ids(run(chat, asked)) == before
    assert plain_ids(run(chat, dataclasses.replace(asked, plain=True))) != before
