"""From a request to ids: what is reported of each message, negative prompts, replies that go on, and what is
refused.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import ChatRequest, Message
from engine.errors import BadSetting, ContextTooLong
from engine.generator.prompt.prompt import Prompts
from engine.generator.request import Guidance
from engine.settings import GuidanceSettings, SamplerSettings, StopSettings
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.generator.fakes import tokenizer
from tests.engine.text.template.chat_templates import CHATML
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata

TALK = (
    Message("system", "Be kind."),
    Message("user", "the quick"),
    Message("assistant", "brown fox"),
    Message("user", "now?"),
)


def prompts(template: str = CHATML, context: int = 1000, reader: Tokenizer | None = None) -> Prompts:
    return Prompts(reader or tokenizer(), ChatTemplate(template, None, None), context)


def request(*messages: Message, when_full: str = "stop", **more: Any) -> ChatRequest:
    return ChatRequest(messages, SamplerSettings(), StopSettings(when_full=when_full), **more)


@pytest.mark.slow
@given(st.lists(st.text(alphabet="ab the", max_size=40), min_size=1, max_size=6), st.integers(0, 400))
def test_the_shares_of_messages_add_up(texts: list[str], total: int) -> None:
    """Each has its own tokens and as much of the rest as others, but for rounding; where the prompt leaves
    something out, less.
    """
    messages = [Message("user", text) for text in texts]
    shares, own = prompts().shares(messages, total), [len(tokenizer().encode(text)) for text in texts]
    assert sum(shares) == total
    rest = (total - sum(own)) / len(own)
    for share, tokens in zip(shares, own, strict=True):
        expected = tokens + rest if rest >= 0 else tokens * total / sum(own)
        assert abs(share - expected) <= 1


def test_a_negative_prompt_of_a_completion_begins_as_a_text_does() -> None:
    reader = Tokenizer.from_gguf(byte_level_metadata(**{"tokenizer.ggml.add_bos_token": True}))
    assert reader.add_bos
    assert reader.encode("", add_bos=True) != []
    for words in ("not this", ""):
        asked = request(Message("document", "a text"), plain=True, guidance=GuidanceSettings(words, 2.0))
        guidance = prompts(reader=reader).build(asked).guidance
        assert guidance == Guidance(tuple(reader.encode(words, add_bos=True)), 2.0)
    asked = request(Message("document", "a text"), plain=True, guidance=GuidanceSettings("", 2.0))
    assert prompts().build(asked).guidance == Guidance(tuple(tokenizer().encode("a text")[-1:]), 2.0), (
        "the last token where there is none"
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request(plain=True), "no text to continue"),
        (request(Message("document", ""), plain=True), "no text to continue"),
        (request(continue_last=True), "no reply to continue"),
        (request(*TALK, continue_last=True), "no reply to continue"),
    ],
)
def test_nothing_to_go_on_from(asked: ChatRequest, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        prompts().build(asked)


def test_what_does_not_fit_names_what_is_too_long() -> None:
    size = len(prompts().build(request(*TALK)).ids)
    assert len(prompts(context=size).build(request(*TALK)).ids) == size
    with pytest.raises(ContextTooLong, match=f"The chat has {size} tokens, but the context holds {size - 1}"):
        prompts(context=size - 1).build(request(*TALK))
    wordy = request(*TALK, guidance=GuidanceSettings("be rude " * 9, 2.0))
    guidance = prompts().build(wordy).guidance
    assert guidance is not None
    longer = len(guidance.negative_ids)
    assert longer > size
    assert prompts(context=longer).build(wordy).guidance == guidance
    with pytest.raises(ContextTooLong, match=f"With the negative prompt the chat has {longer} tokens"):
        prompts(context=longer - 1).build(wordy)


def test_what_is_continued_is_known_by_its_ids() -> None:
    state = (*TALK, Message("assistant", "in the forest"))
    reply = tokenizer().encode("in the forest")
    prompt = prompts().build(request(*state, continue_last=True))
    assert (prompt.ids[-prompt.given :], prompt.given) == (reply, len(reply))
    ids = (60, 61)
    prompt = prompts().build(request(*state, continue_last=True, continue_ids=ids))
    assert (tuple(prompt.ids[-2:]), prompt.given) == (ids, 2)
    assert prompts().build(request(*TALK)).given == 0


def test_a_template_that_begins_otherwise_with_each_message_still_says_what_is_continued() -> None:
    counts = "{{ messages | length }}:" + CHATML
    reply = Message("assistant", "a much longer reply than the others")
    prompt = prompts(counts).build(request(*TALK, reply, continue_last=True))
    assert prompt.given == len(tokenizer().encode(reply.content))
