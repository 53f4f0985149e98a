"""What takes the calls of a reply and numbers them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core import CallPiece, Tool
from engine.text.tools.json_text import Chars, JsonReader, Malformed
from engine.text.tools.values import parameters_of

__all__ = ["CallSink", "Piece", "new_call_id"]

Piece = str | CallPiece
"""A piece of a reply: text, or part of a call."""


def new_call_id() -> str:
    """An id that no other call has."""
    return f"call_{secrets.token_hex(12)}"


class CallSink:
    """Numbers the calls of one reply and makes pieces of them; neighbouring pieces become one."""

    def __init__(self, tools: Sequence[Tool], *, several: bool = True) -> None:
        self._parameters = {tool.name: parameters_of(tool) for tool in tools}
        self._several = several
        self._pieces: list[Piece] = []
        self._arguments: JsonReader | None = None
        self._written = False  # something of them
        self._chars: Chars | None = None
        self.count = 0
        """Calls begun so far."""

    def reads(self, chars: Chars) -> None:
        """The characters that the arguments of the next calls are read from."""
        self._chars = chars

    @property
    def begun(self) -> bool:
        """Whether a call has begun and not ended."""
        return self._arguments is not None

    def begin(self, name: str) -> JsonReader:
        """A call begins; its arguments are written by this reader. Raises `Malformed` for no such tool, or if
        there is to be no further call.
        """
        if not self.offers(name) or self._chars is None or (self.count and not self._several):
            raise Malformed
        index = self.count
        self.count += 1
        self._pieces.append(CallPiece(index, new_call_id(), name))
        self._arguments = JsonReader(self._chars, lambda text: self._write(index, text))
        self._written = False
        self._chars.taken.clear()
        return self._arguments

    def end(self) -> None:
        """The call is over; what its arguments lack to be JSON is added."""
        if self._arguments is None:
            return
        self._arguments.close()
        if not self._written:
            self._write(self.count - 1, "{}")
        self.cut()

    def cut(self) -> None:
        """The reply has ended; the arguments are left as they are."""
        self._arguments = None
        if self._chars is not None:
            self._chars.taken.clear()

    def offers(self, name: str) -> bool:
        """Whether a tool has this name."""
        return name in self._parameters

    def may_offer(self, text: str) -> bool:
        """Whether the name of a tool begins with this text."""
        return any(name.startswith(text) for name in self._parameters)

    def parameters(self, name: str) -> Mapping[str, Any]:
        """The schema of a tool's arguments."""
        return self._parameters.get(name, {})

    def text(self, text: str) -> None:
        """A piece of text."""
        if text and self._pieces and isinstance(self._pieces[-1], str):
            self._pieces[-1] += text
        elif text:
            self._pieces.append(text)

    def take_over(self, pieces: Sequence[Piece]) -> None:
        """Pieces that another sink has made, of calls of which this one has none."""
        self._pieces += pieces
        self.count += sum(bool(isinstance(piece, CallPiece) and piece.name) for piece in pieces)

    def taken(self) -> list[Piece]:
        """The pieces since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _write(self, index: int, text: str) -> None:
        self._written = self._written or bool(text)
        if text and self._chars is not None:
            self._chars.taken.clear()  # passed on
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, CallPiece) and last.index == index:
            self._pieces[-1] = CallPiece(index, last.id, last.name, last.arguments + text)
        elif text:
            self._pieces.append(CallPiece(index, arguments=text))
