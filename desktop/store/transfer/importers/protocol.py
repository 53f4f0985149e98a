"""The interface of every format, and how a reader reports what it could not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from desktop.store.transfer.records import ConversationRecord
from engine.printable import one_line

__all__ = ["Format", "LineFormat", "Note", "Unreadable"]

Note = Callable[[str, str], None]
"""Called with the place within the conversation and a sentence, for a message that had to be left out."""


class Unreadable(Exception):
    """An entry of the right format without a readable conversation; `str(error)` is one sentence."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class Format(Protocol):
    """A program's file format in which one JSON value is one conversation.

    `source` identifies the program in the store permanently; `label` is shown to the user.
    """

    source: str
    label: str

    def recognises(self, value: Any) -> bool:
        """Whether this JSON value is a conversation of this format, judging by its content."""

    def read(self, value: Any, note: Note) -> ConversationRecord:
        """The conversation in it; damaged messages are reported to `note`.

        Raises `Unreadable` if nothing of it can be read.
        """


class LineFormat(Protocol):
    """A format in which a conversation is a sequence of JSON values, one per line.

    `beside` is the name of a file in the same folder that tells about the conversation, if there is one.
    """

    source: str
    label: str
    beside: str

    def begins(self, value: Any) -> bool:
        """Whether a conversation begins with this value."""

    def continues(self, value: Any) -> bool:
        """Whether this value continues the current conversation."""

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        """The conversation made of these values, for the first of which `begins` is true; `about` is the
        object in the file `beside` them, empty without one.

        Raises `Unreadable` like `Format.read`.
        """
