"""Whole turns of a conversation: what is read again, what is left out, how a reply ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import STOP_REASONS, ChatRequest, Done, Message, ModelInfo, Prefill, Text, Trimmed
from engine.errors import BadSetting, BadTemplate, ContextTooLong
from engine.settings import SamplerSettings, StopSettings
from engine.text.template.encoding import encode_chat
from engine.text.template.template import ChatTemplate
from tests.engine.generator.fakes import (
    FakeModel,
    Scripted,
    fresh_reply,
    make_dynamic,
    random_logits,
    tokenizer,
)
from tests.engine.text.template.chat_templates import CHATML

GREEDY = SamplerSettings(temperature=0.0)
INFO = ModelInfo("", "fake", "fake", "gguf", 1, 32.0, 4, 1, 4096, 700, 8, (2,), True)


def fake_chat(answering: Any = random_logits, context: int = 1024) -> tuple[LocalChat, FakeModel]:
    generator, model = make_dynamic(answering, context)
    return LocalChat(INFO, generator, ChatTemplate(CHATML, None, None)), model


def ask(chat: LocalChat, messages: list[Message], tokens: int = 12, **more: Any) -> tuple[str, list[Any]]:
    """The reply's text and all events."""
    continued = more.pop("continue_last", False)
    request = ChatRequest(tuple(messages), GREEDY, StopSettings(max_tokens=tokens, **more), continued)
    events = list(chat.stream(request, threading.Event()))
    assert isinstance(events[-1], Done)
    assert events[-1].reason in STOP_REASONS
    assert sum(isinstance(event, Done) for event in events) == 1
    return "".join(event.text for event in events if isinstance(event, Text)), events


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def plain_ids(events: list[Any]) -> list[int]:
    return [token.id for event in events if isinstance(event, Text) for token in event.tokens]


class AsciiWords:
    """Random answers out of ids that are whole words: text that the tokenizer splits otherwise than the
    model did.
    """

    def __init__(self) -> None:
        self.allowed = [
            i
            for i in range(10, 700)
            if tokenizer().piece(i).isascii() and tokenizer().piece(i).strip().isalpha()
        ]

    def __call__(self, sequence: list[int]) -> Any:
        logits = random_logits(sequence)
        logits[self.allowed] += 100.0
        return logits


def test_a_turn_is_the_templates_prompt_and_the_models_reply():
    chat, _ = fake_chat()
    messages = [Message("system", "Be brief."), user("Hello")]
    text, events = ask(chat, messages)
    ids = encode_chat(tokenizer(), chat.template, messages)[1]
    assert plain_ids(events) == fresh_reply(ids, 12)
    assert text == tokenizer().decode(fresh_reply(ids, 12))
    assert events[0] == Prefill(0, len(ids), 0)
    assert len(ids) == events[-1].stats.prompt_tokens


def test_every_later_turn_reads_only_what_is_new():
    """The replies are in tokens the tokenizer would not give, so this also needs them back as they were."""
    chat, _ = fake_chat(AsciiWords(), context=4096)
    messages = [user("Tell me about foxes. " * 20)]
    unlike = 0
    for turn in range(6):
        text, events = ask(chat, messages, 40)
        stats, ids = events[-1].stats, plain_ids(events)
        unlike += tokenizer().encode(text) != ids
        if turn:
            # The last token of the reply, its end, the question, and the next reply's beginning.
            new = 1 + len(
                tokenizer().encode(
                    f"<|im_end|>\n<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n", special=True
                )
            )
            assert stats.prefill_tokens == new
            assert stats.cached_tokens == stats.prompt_tokens - new
        messages += [assistant(text), user(str(turn + 1))]
    assert unlike, "the test is empty when the tokenizer agrees with the model"


def test_regenerate_and_edit():
    chat, _ = fake_chat()
    messages = [user("first " * 50), assistant("one"), user("second " * 50)]
    text, events = ask(chat, messages)
    whole = events[-1].stats.prefill_tokens
    again, events = ask(chat, messages)
    assert again == text
    assert events[-1].stats.prefill_tokens == 1
    messages[2] = user("second " * 40 + "third")
    edited, events = ask(chat, messages)
    ids = encode_chat(tokenizer(), chat.template, messages)[1]
    assert edited == tokenizer().decode(fresh_reply(ids, 12))
    assert 0 < events[-1].stats.prefill_tokens < 30 < whole


def test_stop_in_the_middle_then_continue():
    chat, model = fake_chat()
    messages = [user("Hello")]
    ids = encode_chat(tokenizer(), chat.template, messages)[1]
    stop = threading.Event()
    events = []
    for event in chat.stream(ChatRequest(tuple(messages), GREEDY), stop):
        events.append(event)
        if len(plain_ids(events)) >= 5:
            stop.set()
    assert events[-1].reason == "cancelled"
    runs = len(model.program.ran)
    reply = plain_ids(events)
    assert reply == fresh_reply(ids, len(reply))
    assert runs <= len(reply) + 1
    partial = "".join(event.text for event in events if isinstance(event, Text))
    more, events = ask(chat, [*messages, assistant(partial)], 5, continue_last=True)
    if "\ufffd" not in partial and partial == partial.strip():
        assert plain_ids(events) == fresh_reply(ids + reply, 5)
    assert more


def test_continuing_needs_a_reply():
    chat, _ = fake_chat()
    with pytest.raises(BadSetting, match="no reply to continue"):
        ask(chat, [user("Hello")], continue_last=True)


def test_dropping_the_oldest_turns():
    chat, _ = fake_chat(AsciiWords(), context=1024)
    system = Message("system", "Always rhyme.")
    messages, dropped, kept_cut = [system], [], 0
    for turn in range(14):
        messages.append(user(f"{turn} " + "fox " * 60))
        text, events = ask(chat, messages, 60)
        trimmed = [event.dropped_messages for event in events if isinstance(event, Trimmed)]
        dropped.append(sum(trimmed))
        assert isinstance(events[0], Trimmed) == bool(trimmed)
        rest = [system, *messages[1 + dropped[-1] :]]
        assert events[-1].stats.prompt_tokens <= 1024 - 60
        assert events[-1].stats.prompt_tokens == pytest.approx(
            len(encode_chat(chat.tokenizer, chat.template, rest)[1]), abs=200
        )
        assert events[-1].reason == "max_tokens"
        if turn and dropped[-1] == dropped[-2]:
            kept_cut += 1
            assert events[-1].stats.prefill_tokens < 150
        messages.append(assistant(text))
    assert dropped == sorted(dropped)
    assert dropped[-1] > 0
    assert all(count % 2 == 0 for count in dropped), "a question goes with its reply"
    assert kept_cut >= 3


def test_stopping_when_full():
    chat, _ = fake_chat(context=256)
    long = [user("fox " * 300)]
    with pytest.raises(ContextTooLong, match="holds 256"):
        ask(chat, long, when_full="stop")
    with pytest.raises(ContextTooLong, match="shorten it by"):
        ask(chat, long, when_full="drop_oldest")
    fits = [user("fox " * 100), assistant("x"), user("go on")]
    _, events = ask(chat, fits, 0, when_full="stop")
    assert events[-1].reason == "context_full"
    assert events[-1].stats.context_tokens == 257
    assert not any(isinstance(event, Trimmed) for event in events)


def test_the_fallback_templates_end_is_a_stop_string():
    ids = tokenizer().encode("Yes<|im_end|>\nmore")
    assert tokenizer().eos_token_id not in ids
    template = ChatTemplate(CHATML, None, None, is_fallback=True, stop_strings=("<|im_end|>",))
    prompt = encode_chat(tokenizer(), template, [user("?")])[1]
    generator, _ = make_dynamic(Scripted(len(prompt), ids))
    text, events = ask(LocalChat(INFO, generator, template), [user("?")])
    assert (text, events[-1].reason, events[-1].trigger) == ("Yes", "stop_string", "<|im_end|>")


def test_the_models_own_end_and_the_users_stop_tokens():
    chat, _ = fake_chat()
    prompt = encode_chat(tokenizer(), chat.template, [user("?")])[1]
    word = tokenizer().encode("the quick brown fox")
    for stop_ids, reason in (((), "<|im_end|>"), ((word[-1],), tokenizer().decode(word[-1:]))):
        generator, _ = make_dynamic(Scripted(len(prompt), [*word, tokenizer().eos_token_id or 0]))
        text, events = ask(LocalChat(INFO, generator, chat.template), [user("?")], stop_token_ids=stop_ids)
        assert (events[-1].reason, events[-1].trigger) == ("stop_token", reason)
        assert text == tokenizer().decode(word[:-1] if stop_ids else word)


def test_no_messages():
    chat, _ = fake_chat()
    with pytest.raises(BadTemplate, match="no message"):
        ask(chat, [])


def test_closing_an_abandoned_reply_gives_the_pages_back():
    chat, model = fake_chat()
    events = chat.stream(ChatRequest((user("Hello"),), GREEDY), threading.Event())
    while not isinstance(next(events), Text):
        pass
    events.close()  # type: ignore[attr-defined]
    table = chat.generator.cache.table
    assert table.free + table.idle == table.page_count
    chat.close()
    assert model.closed


def test_a_late_goodbye_of_an_old_reply_leaves_the_new_one_alone():
    chat, _ = fake_chat()
    request = ChatRequest((user("Hello"),), GREEDY, StopSettings(max_tokens=12))
    old = chat.stream(request, threading.Event())
    while not isinstance(next(old), Text):
        pass
    new = chat.stream(request, threading.Event())
    first = next(new)
    old.close()  # type: ignore[attr-defined]
    assert [first, *new][-1].reason == "max_tokens"
