"""Conversations being imported or exported: plain records between the store and files of any program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from desktop.store.attachments.pictures import StoredPicture
from desktop.store.conversations.folders import FolderContents
from desktop.store.conversations.personas import Persona
from desktop.store.conversations.records import CHAT
from desktop.store.conversations.tool_calls import StoredCall
from engine.lazy_dataclass import dataclass

__all__ = ["Broken", "ConversationRecord", "Event", "Imported", "LeftOut", "MessageRecord", "Progress"]


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message of a tree.

    `key` names it within its conversation and is the same in every export; `parent` None is the top.
    `created_at` is seconds since 1970, None if the file does not say. `part` marks a piece of a reply (a
    thought, a tool call) that is merged with the assistant's messages around it. `raw` is JSON of what `text`
    cannot fully express. `author` is the name of who wrote it, empty for the plain model or user. `text` is
    the result of a `call`.
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
    call: StoredCall | None = None


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """One whole conversation.

    `source` and `key` together identify it permanently: a later import recognises it by them. In `messages`,
    parents come before their children, and siblings in the order they were created. Times are seconds since
    1970, None if the file does not say. `folder` is the names of its folders, outermost first; `persona` is
    who answers, with the id 0, or None; `deleted_at` is when it was moved to the trash; `cast` is what
    `participants.portable` returns; `kind` is that of `Conversation`. `left_out` lists what the file says
    about the conversation that has no counterpart here, as sentences without full stops, for the import's
    report. `pictures` are those of the messages, by their keys; `whole_texts` are the names and texts of
    files of which messages have a part. `folder_contents` has what each of `folder` gives, if that is known;
    a folder that exists already keeps its own.
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
    local_only: bool = False
    pictures: Mapping[str, StoredPicture] = field(default_factory=dict)
    folder_contents: tuple[FolderContents, ...] = ()
    whole_texts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is: `done` of `total` bytes."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Imported:
    """A conversation that is now in the store.

    `outcome` is "new"; "extended" (it was here and `messages` are new or changed); "known" (it was here,
    nothing was new) or "deleted" (it was in the trash, where it stays).
    """

    conversation_id: int
    title: str
    source: str
    outcome: str
    messages: int


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that could not be read: its place in the file, and a sentence that says why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something readable without a counterpart here, as a sentence without its full stop.

    `count` is the number of chats, or of `files`, that it concerns.
    """

    what: str
    count: int
    files: bool = False


Event = Progress | Imported | Broken | LeftOut
