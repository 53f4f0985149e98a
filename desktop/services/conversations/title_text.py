"""What a model is asked for a chat's title, and what of its answer can be one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from desktop.blocks import THINKING_TAGS
from desktop.blocks.plain_words import plain_words
from desktop.store.attachments.message_format import split
from desktop.store.conversations.records import StoredMessage, auto_title
from engine.core import ChatRequest, Message
from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)

__all__ = ["later_title_request", "title_of", "title_request"]

_ASK = (
    "Write a title of three to six words for this conversation, in its language. Reply with the title only."
)
_BEGUN = 'Title: "'
"""The answer begins with this, so that a small model writes a title at once, one that thinks does not think,
and the closing quotation mark ends it.
"""
_FIRST, _LAST, _EACH = 2, 4, 600
"""Of a longer chat, its first and its last messages are read, and of each these characters: a chat of any
length has a title soon, and fits in the context of any model.
"""
_MOST_TOKENS = 24
_MOST_CHARACTERS = 80
"""A longer answer is a sentence, not a title."""
_QUOTES = "\"'“”„‟«»‹›‘’‚「」『』"
_LEFT_MARKS = re.compile(r"(?<!\w)[*`]++(?!\s)|(?<!\s)[*`]++(?!\w)|(?<!\w)_(?=[^\W_])|(?<=[^\W_])_(?!\w)")
"""Marks without a pair, and single underscores around words; not those in names such as `__init__`."""
_LEAST_LETTERS = 3
_COMMON = frozenset((
    "about", "and", "are", "can", "chat", "conversation", "discussion", "for", "from", "guide", "has",
    "have", "help", "how", "its", "let", "not", "our", "question", "simple", "that", "the", "their",
    "them", "this", "title", "user", "what", "whats", "when", "where", "which", "who", "why", "will",
    "with", "you", "your",
))  # fmt: skip
"""Words that say nothing about what a chat is about."""
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""Characters of scripts in which a word may be shorter than three characters, or words are not separated."""


def title_request(request: ChatRequest, reply: str) -> ChatRequest:
    """The request for a title after `reply`, the answer to `request`: what the model has read already, and
    one question more. It goes on only while nothing else is written, with the same draft model and adapters.
    """
    begun = request.messages[:-1] if request.continue_last else request.messages
    return dataclasses.replace(
        request,
        messages=(*begun, Message("assistant", reply), Message("user", _ASK), Message("assistant", _BEGUN)),
        sampler=SamplerSettings(temperature=0.0),
        stops=StopSettings(max_tokens=_MOST_TOKENS, stop_strings=('"', "\n"), when_full="stop"),
        constraint=ConstraintSettings(heal=False),
        guidance=GuidanceSettings(),
        output=OutputSettings(),
        continue_last=True,
        continue_ids=(),
        report_prompt=False,
        priority=-1,
    )


def later_title_request(
    path: Sequence[StoredMessage], adapters: AdapterSettings, speculation: SpeculationSettings
) -> tuple[ChatRequest, str, str]:
    """The request for a title of a chat with the messages `path` by now, and what of them is the user's and
    what the model's, for `title_of`. The chat is one message, whoever takes part in it.
    """
    written = [each for each in path if each.role in ("user", "assistant")]
    chosen = written if len(written) <= _FIRST + _LAST else [*written[:_FIRST], *written[-_LAST:]]
    read = [(each.role, each.text[split(each.text)[1] :].strip()[:_EACH]) for each in chosen]
    text = "\n\n".join(f"{role}: {words}" for role, words in read if words)
    request = ChatRequest((Message("user", text),), adapters=adapters, speculation=speculation)
    asked, said = ("\n".join(words for role, words in read if role == each) for each in ("user", "assistant"))
    found = title_request(request, "")
    messages = (Message("user", f"{text}\n\n{_ASK}"), found.messages[-1])
    return dataclasses.replace(found, messages=messages), asked, said


def title_of(
    answer: str, reason: str, question: str, reply: str, tags: Iterable[tuple[str, str]] = ()
) -> str:
    """The title in a model's `answer`, which ended for `reason`; "" if it cannot be one: it thinks, was cut
    off, is too long, or has too little in common with the `question` and the `reply` of the conversation.
    `tags` are those around the model's thoughts.
    """
    if reason not in ("stop_string", "stop_token") or any(
        mark in answer for pair in (*tags, *THINKING_TAGS) for mark in pair
    ):
        return ""
    text = plain_words(re.sub(r"<\|[^|<>]{0,80}\|>", "", answer))
    text = _LEFT_MARKS.sub("", text)
    text = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    text = re.sub(r"^title\s*[:\-–]\s*", "", text.strip(_QUOTES + " "), flags=re.IGNORECASE)
    text = text.strip(_QUOTES + " .,;:-–—|/\\")
    if len(text) > _MOST_CHARACTERS or not _is_about(text, question, reply):
        return ""
    return auto_title(text)


def _is_about(title: str, question: str, reply: str) -> bool:
    """Whether a title names something of the question, or mostly what the reply is about."""
    title = re.sub(r"['’]", "", title.casefold())
    question, reply = question.casefold(), reply.casefold()
    pairs = [title[at : at + 2] for at in range(len(title) - 1) if _UNSPACED.fullmatch(title[at : at + 2])]
    if any(pair in question for pair in pairs) or sum(pair in reply for pair in pairs) > 1:
        return True
    words = [word for word in re.findall(r"\w+", title) if word not in _COMMON and not _UNSPACED.search(word)]
    stems = [re.compile(r"\b" + re.escape(word[: max(_LEAST_LETTERS, len(word) // 2)])) for word in words
             if len(word) >= _LEAST_LETTERS]  # fmt: skip
    asked = sum(stem.search(question) is not None for stem in stems)
    found = sum(stem.search(f"{question}\n{reply}") is not None for stem in stems)
    return (asked > 0 and 3 * found >= len(stems)) or (found > 1 and 2 * found >= len(stems))
