"""Answers that are nothing but calls of Python, as models write them whose form is another one."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from engine.core import Tool
from engine.text.tools.calls import CallReader
from engine.text.tools.form import CallForm
from engine.text.tools.json_text import Chars, Malformed, Reading
from engine.text.tools.sink import CallSink, Piece

__all__ = ["WholeCalls"]

_FENCE = "```"
_LANGUAGES = ("", "python", "py", "tool_code", "tool_call")


class WholeCalls:
    """Holds the beginning of an answer for as long as all of it may be calls of offered tools: `a(x=1)`,
    several with line breaks, commas or semicolons between them, or a list `[a(x=1), b()]`; perhaps in a code
    block.

    Such text may be prose as well, so that only its end tells. Unless `several`, one call is all.
    """

    def __init__(self, tools: Sequence[Tool], *, several: bool) -> None:
        self.text = ""
        """All that is held."""
        self.complete = False
        """Whether the text, if it ends here, is calls."""
        self._chars, self._sink = Chars(), CallSink(tools, several=several)
        self._sink.reads(self._chars)
        self._reading = self._calls()
        next(self._reading)

    def take(self, char: str) -> bool:
        """Take another character; False if there is more than calls."""
        self.text += char
        try:
            self._reading.send(char)
        except (Malformed, StopIteration):
            return False
        return True

    def pieces(self) -> list[Piece]:
        """The calls of a `complete` text."""
        return self._sink.taken()

    def _calls(self) -> Reading:
        char = yield from self._chars.after_blanks()
        if fenced := char == _FENCE[0]:
            yield from self._language()
            char = yield from self._chars.after_blanks()
        if char == "[":
            yield from self._list()
            char = yield from self._rest(fenced)
        else:
            char = yield from self._lines(char, fenced)
        if fenced:
            self._chars.back(char)
            yield from self._chars.literal(_FENCE)
            self.complete = True
            char = yield from self._chars.after_blanks()
        raise Malformed

    def _rest(self, fenced: bool) -> Generator[None, str, str]:
        """White space after the calls, and the character after it."""
        self.complete = not fenced
        return (yield from self._chars.after_blanks())

    def _language(self) -> Reading:
        """The rest of the line that begins a code block."""
        line = ""
        while not line.endswith("\n"):
            line += yield from self._chars.next()
            if not any(f"{_FENCE}{one}\n".startswith(_FENCE[0] + line) for one in _LANGUAGES):
                raise Malformed

    def _list(self) -> Reading:
        first = True
        while (yield from self._chars.another("]", first=first)):
            yield from self._call((yield from self._chars.after_blanks()))
            first = False
        if first:
            raise Malformed

    def _lines(self, char: str, fenced: bool) -> Generator[None, str, str]:
        """Calls one after another, and the first character after them that is not white space."""
        while True:
            yield from self._call(char)
            char = yield from self._rest(fenced)
            if char in ",;":
                char = yield from self._chars.after_blanks()
            if not self._sink.may_offer(char):
                return char
            self.complete = False

    def _call(self, char: str) -> Reading:
        """A call whose name begins with `char`."""
        name = char
        while self._sink.may_offer(name):
            name += yield from self._chars.next()
        if name[-1] != "(":
            raise Malformed
        self._chars.back(name)
        yield from CallReader(CallForm("python"), self._chars, self._sink).calls()
