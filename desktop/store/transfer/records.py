"""Conversations on their way in or out: plain records between the store and the files of this and other
programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from desktop.store.conversations.personas import Persona
from desktop.store.conversations.records import CHAT

__all__ = ["Broken", "ConversationRecord", "Event", "Imported", "LeftOut", "MessageRecord", "Progress"]


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message of a tree.

    `key` names it within its conversation and stays the same from file to file; `parent` None is the top.

    `created_at` is seconds since 1970, None where the file does not say. `part` marks a piece of a reply (a
    thought, a use of a tool) that is read as one with the assistant's messages around it. `raw` is JSON of
    what `text` cannot show in full. `author` is the name of who said it, empty for nobody in particular.
    """

    key: str
    parent: str | None
    role: str
    text: str
    created_at: float | None = None
    state: str = "complete"
    stats: Mapping[str, Any] = field(default_factory=dict)
    shown_child: str | None = None
    deleted: bool = False
    tokens: bytes = b""
    raw: Any = None
    part: bool = False
    author: str = ""


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """One whole conversation.

    `source` and `key` together name it for good: importing it again finds it by them.

    Parents stand before their children in `messages`, and siblings in the order they were made. Times are
    seconds since 1970, None where the file does not say. `folder` is the names of the folders it is in,
    outermost first; `persona` is who answers, with the id 0, None for nobody; `deleted_at` is when it was
    thrown away; `cast` is the cast (`cast.portable`); `kind` is that of `Conversation`. `left_out` names
    what the file says of the conversation and this program has no place for, a sentence without its full stop
    each: an import tells of it.
    """

    source: str
    key: str
    title: str = ""
    created_at: float | None = None
    updated_at: float | None = None
    messages: tuple[MessageRecord, ...] = ()
    shown_root: str | None = None
    system_prompt: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    model_path: str = ""
    auto_title: bool = False
    deleted: bool = False
    folder: tuple[str, ...] = ()
    pinned: bool = False
    persona: Persona | None = None
    inherits_prompt: bool = True
    deleted_at: float | None = None
    cast: Mapping[str, Any] = field(default_factory=dict)
    kind: str = CHAT
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is: `done` of `total` bytes."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Imported:
    """A conversation that is in the store now.

    `outcome` is "new"; "extended" (it was here, `messages` new ones came to it); "known" (it was here,
    nothing new) or "deleted" (it was here and lies in the trash, where it was left).
    """

    conversation_id: int
    title: str
    source: str
    outcome: str
    messages: int


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that could not be read: where it stands in the file, and one sentence why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something readable that has no place here, as a sentence without its full stop, and of how many
    chats or files it is told.
    """

    what: str
    count: int
    of: str = "chat"


Event = Progress | Imported | Broken | LeftOut
