"""What the store returns: frozen records of a conversation, a message and a search hit; automatic titles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from desktop.blocks.plain_words import plain_words
from desktop.store.attachments.message_format import auto_source
from desktop.store.conversations.participants import PLAIN, UNNAMED, Author, Cast
from desktop.store.conversations.tool_calls import StoredCall
from engine.lazy_dataclass import dataclass

__all__ = [
    "CHAT",
    "HIDDEN",
    "JSON",
    "LANGUAGE",
    "NOTEBOOK",
    "STATES",
    "Conversation",
    "ConversationSummary",
    "SearchHit",
    "StoredMessage",
    "auto_title",
    "code_language",
]

STATES = ("complete", "running", "stopped", "failed")
"""The possible values of `StoredMessage.state`."""
TITLE_CHARACTERS = 48
_BEGINNING = 4000
_ONLY_MARKS = "*-_=~`>#|+: "
"""A line of these alone is a rule or opens a block."""
"""Characters of a message among which its title is looked for first."""
CHAT, NOTEBOOK = "chat", "notebook"
"""The kinds of conversation. A notebook has a single message with the role "assistant": its document."""

LANGUAGE, JSON = "language", "json"
"""The key, in the record of a reply, of the language of its code, and its value, if it had to be JSON."""

HIDDEN = "hidden"
"""The role of messages that are shown but never sent to the model; only imports create them."""


class ConversationSummary(NamedTuple):
    """A row of the sidebar or the trash; times are seconds since 1970.

    A named tuple, because 10,000 are created at once.
    """

    id: int
    title: str
    updated_at: float
    folder_id: int | None = None
    pinned: bool | int = False
    deleted_at: float | None = None
    kind: str = CHAT


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its messages.

    `settings` maps the name of a settings class to the values that this conversation changes. `model_path` is
    the model that answered last; times are seconds since 1970. Where `inherits_prompt`, an empty
    `system_prompt` stands for that of the persona or a folder. Nothing of one that is `local_only` may be
    sent to a server.
    """

    id: int
    title: str
    created_at: float
    updated_at: float
    deleted: bool
    settings: Mapping[str, Mapping[str, Any]]
    system_prompt: str
    model_path: str
    folder_id: int | None = None
    pinned: bool = False
    persona_id: int | None = None
    inherits_prompt: bool = True
    cast: Cast = PLAIN
    kind: str = CHAT
    local_only: bool = False


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of the tree: variant `variant_index` (from 0) of the `variant_count` children of its
    parent.

    `stats` is plain JSON: how the reply ended, its counts and times, notices about it. A message
    with a `call` has the role "tool", and its text is the result that the model reads.
    """

    id: int
    conversation_id: int
    parent_id: int | None
    role: str
    text: str
    state: str
    created_at: float
    stats: Mapping[str, Any]
    variant_index: int = 0
    variant_count: int = 1
    author: Author = UNNAMED
    call: StoredCall | None = None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that contains the words; `snippet` is the text around the first of them, on one line.

    `spans` are the words in the snippet as (start, end) in characters; `place` is where the first of them
    begins in the message's text.
    """

    message_id: int
    conversation_id: int
    title: str
    snippet: str
    updated_at: float
    spans: tuple[tuple[int, int], ...] = ()
    place: int = 0


def code_language(role: str, stats: Mapping[str, Any]) -> str:
    """The language of a reply that is no Markdown but code as a whole; "" for any other message."""
    return JSON if role == "assistant" and stats.get(LANGUAGE) == JSON else ""


def auto_title(text: str) -> str:
    """A title of at most 48 characters: the user's first line with text, without marks of Markdown, cut
    between words; else the file names.
    """
    source = auto_source(text)
    lines = (*plain_words(source[:_BEGINNING]).splitlines(), *source.splitlines())
    written = [" ".join(part.split()) for part in lines if part.strip()]
    line = next((part for part in written if part.strip(_ONLY_MARKS)), next(iter(written), ""))
    line = re.sub(r"^[*-]\s+(?:\[[ xX]\]\s+)?(?=\S)", "", line)
    if len(line) <= TITLE_CHARACTERS:
        return line
    cut = line[: TITLE_CHARACTERS - 1]
    words = cut.rsplit(" ", 1)[0] if " " in cut and not line[TITLE_CHARACTERS - 1].isspace() else cut
    return words.rstrip(" ,;:.-") + "…"
