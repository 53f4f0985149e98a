"""What the store hands out: frozen records of a conversation, a message and a search hit, and the
automatic title.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from desktop.store.attachments.message_format import auto_source
from desktop.store.conversations.participants import PLAIN, UNNAMED, Author, Cast

__all__ = [
    "CHAT",
    "HIDDEN",
    "NOTEBOOK",
    "STATES",
    "Conversation",
    "ConversationSummary",
    "SearchHit",
    "StoredMessage",
    "auto_title",
]

STATES = ("complete", "running", "stopped", "failed")
"""Every value `StoredMessage.state` can have."""
TITLE_CHARACTERS = 48
CHAT, NOTEBOOK = "chat", "notebook"
"""The kinds of conversations. A notebook has one message, of role "assistant": its text is the document."""

HIDDEN = "hidden"
"""The role of messages that are shown and never sent to the model; imports bring them."""


class ConversationSummary(NamedTuple):
    """A row of the sidebar or of the trash; times are seconds since 1970.

    A tuple, because 10,000 are made at once.
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
    """One conversation without its messages.

    `settings` maps a settings class name to the values that this conversation changed; `model_path` is the
    model that answered last; times are seconds since 1970. An empty `system_prompt` takes that of the persona
    or of a folder where `inherits_prompt`, and is none otherwise.
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


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of the tree; it is variant `variant_index` (from 0) of `variant_count` with the same
    parent.

    `stats` is plain JSON: how the reply ended, its counts and times, notices about it.
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


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that contains the words; `snippet` is the text around the first of them, on one line.

    `spans` are the places of words in the snippet, (first, behind) in characters; `place` is the character of
    the message's text where the first of them begins.
    """

    message_id: int
    conversation_id: int
    title: str
    snippet: str
    updated_at: float
    spans: tuple[tuple[int, int], ...] = ()
    place: int = 0


def auto_title(text: str) -> str:
    """The first line of the user's own words with something in it, shortened at a word to 48 characters;
    of files alone, their names.
    """
    line = next((" ".join(part.split()) for part in auto_source(text).splitlines() if part.strip()), "")
    line = re.sub(r"^(?:#{1,6}|>|[*-])\s+(?=\S)", "", line)
    if len(line) <= TITLE_CHARACTERS:
        return line
    cut = line[: TITLE_CHARACTERS - 1]
    words = cut.rsplit(" ", 1)[0] if " " in cut and not line[TITLE_CHARACTERS - 1].isspace() else cut
    return words.rstrip(" ,;:.-") + "…"
