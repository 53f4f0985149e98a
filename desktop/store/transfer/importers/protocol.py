"""What every format gives, and how a reader tells what it could not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from desktop.store.transfer.records import ConversationRecord
from engine.printable import one_line

__all__ = ["Format", "LineFormat", "Note", "Unreadable"]

Note = Callable[[str, str], None]
"""Called with the place within the conversation and a sentence, for a message that had to be left out."""


class Unreadable(Exception):
    """An entry of the right format that holds no conversation; `str(error)` is one sentence."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class Format(Protocol):
    """A program's file format in which one JSON value is one conversation.

    `source` names the program in the store for good; `label` is for people.
    """

    source: str
    label: str

    def recognises(self, value: Any) -> bool:
        """Whether this JSON value is a conversation of this format, by what it holds."""

    def read(self, value: Any, note: Note) -> ConversationRecord:
        """The conversation in it; damaged messages go to `note`.

        Raises `Unreadable` when nothing of it can be read.
        """


class LineFormat(Protocol):
    """A format in which a conversation is a row of JSON values, one a line."""

    source: str
    label: str

    def begins(self, value: Any) -> bool:
        """Whether a conversation begins with this value."""

    def continues(self, value: Any) -> bool:
        """Whether this value goes on with the conversation that is being read."""

    def read_lines(self, values: Sequence[Any], note: Note) -> ConversationRecord:
        """The conversation of all its values, the first of which `begins`.

        Raises `Unreadable` as `Format.read` does.
        """
