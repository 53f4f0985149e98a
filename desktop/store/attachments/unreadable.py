"""The error of files that cannot be attached."""

from __future__ import annotations

from engine.printable import one_line

__all__ = ["Unreadable"]


class Unreadable(Exception):
    """A file that cannot be attached; the message is one sentence for the user."""

    def __str__(self) -> str:
        return one_line(super().__str__())
