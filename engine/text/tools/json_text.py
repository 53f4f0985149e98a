"""Reading JSON character by character, and passing it on so that what was passed on can always be closed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator

__all__ = ["BLANKS", "QUOTES", "Chars", "JsonReader", "Malformed", "Reading", "quoted"]

Reading = Generator[None, str]
"""Takes one character a time (`send`) and ends when the text that it reads is complete."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {
    "true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null",
}  # fmt: skip
_ESCAPED = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
_BARE = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
BLANKS = " \t\r\n"
QUOTES = frozenset("\"'")
"""Around strings; models that think of Python write the second one."""
_DEEPEST = 100


def quoted(text: str) -> str:
    """`text` as a JSON string; half a surrogate pair, which has no UTF-8, stays escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


class Malformed(Exception):
    """The text is not what it should be."""


class Chars:
    """The characters of a text that is still growing; the last ones can be put back."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        """Every character since this was last cleared, but not what was put back."""
        self._back = ""

    @property
    def text(self) -> str:
        """All that has come since `taken` was last cleared, what was put back included."""
        return "".join(self.taken) + self._back

    @property
    def left(self) -> str:
        """What was put back and not read again."""
        return self._back

    def next(self) -> Generator[None, str, str]:
        """The next character."""
        char, self._back = self._back[:1], self._back[1:]
        if not char:
            char = yield
        self.taken.append(char)
        return char

    def back(self, text: str) -> None:
        """Put back the last characters, which were `text`."""
        del self.taken[max(0, len(self.taken) - len(text)) :]
        self._back = text + self._back

    def after_blanks(self) -> Generator[None, str, str]:
        """The next character that is not white space."""
        while (char := (yield from self.next())) in BLANKS:
            pass
        return char

    def another(self, end: str, *, first: bool) -> Generator[None, str, bool]:
        """Whether an item of a list comes before the character `end`; reads that, or the comma that stands
        before each but the `first`. Raises `Malformed`.
        """
        char = yield from self.after_blanks()
        if first and char != end:
            self.back(char)
        elif char not in (",", end):
            raise Malformed
        elif char == ",":
            char = yield from self.after_blanks()
            if char != end:
                self.back(char)
        return char != end

    def literal(self, text: str) -> Generator[None, str, None]:
        """Read exactly `text`, whatever the white space in both. Raises `Malformed`."""
        for expected in "".join(text.split()):
            if (yield from self.after_blanks()) != expected:
                raise Malformed

    def beginning(self, text: str) -> Generator[None, str, str]:
        """As much of `text` as follows."""
        for place, expected in enumerate(text):
            char = yield from self.next()
            if char != expected:
                self.back(char)
                return text[:place]
        return text

    def until(self, end: str, found: str = "") -> Generator[None, str, str]:
        """The text before `end` (not empty), which is read too; `found` has been read before."""
        while not found.endswith(end):
            found += yield from self.next()
        return found[: -len(end)]


class JsonReader:
    """Reads one JSON value and writes it again, in Python's usual spacing. The text may have Python's quotes
    and words, and a comma after the last member or item.

    What it has written so far is always the beginning of a JSON text that `close` completes: names and commas
    wait for the value that follows them, numbers until they are complete.
    """

    def __init__(self, chars: Chars, write: Callable[[str], None]) -> None:
        self._chars = chars
        self._write = write
        self._open: list[str] = []

    def close(self) -> None:
        """Write what completes the value. It must have been begun."""
        self._write("".join(reversed(self._open)))
        self._open.clear()

    def value(self, prefix: str = "") -> Generator[None, str, None]:
        """Read a value; `prefix` is written before it. Raises `Malformed`."""
        char = yield from self._chars.after_blanks()
        if char == "{":
            yield from self._members(prefix)
        elif char == "[":
            yield from self._items(prefix)
        elif char in QUOTES:
            self.open(prefix + '"', '"')
            yield from self._string(char)
        elif char in _BARE:
            self._write(prefix + (yield from self._word(char)))
        else:
            raise Malformed

    def _members(self, prefix: str) -> Generator[None, str, None]:
        self.open(prefix + "{", "}")
        between = ""
        while (name := (yield from self.member(first=not between))) is not None:
            yield from self.value(between + quoted(name) + ": ")
            between = ", "
        self.shut()

    def member(self, first: bool) -> Generator[None, str, str | None]:
        """The name of an object's next member, up to its value; None at the object's end. Raises
        `Malformed`.
        """
        if not (yield from self._chars.another("}", first=first)):
            return None
        name = yield from self.string()
        yield from self._chars.literal(":")
        return name

    def _items(self, prefix: str) -> Generator[None, str, None]:
        self.open(prefix + "[", "]")
        between = ""
        while (yield from self._chars.another("]", first=not between)):
            yield from self.value(between)
            between = ", "
        self.shut()

    def string(self) -> Generator[None, str, str]:
        """A string, decoded. Raises `Malformed`."""
        quote = yield from self._chars.after_blanks()
        if quote not in QUOTES:
            raise Malformed
        parts: list[str] = []
        inner = JsonReader(self._chars, parts.append)
        inner.open('"', '"')
        yield from inner._string(quote)
        return str(json.loads("".join(parts)))

    def open(self, text: str, end: str) -> None:
        """Write the beginning of a string, list or object, to be ended by `end`."""
        if len(self._open) >= _DEEPEST:
            raise Malformed
        self._write(text)
        self._open.append(end)

    def add(self, text: str) -> None:
        """Write characters of the string under way."""
        self._write(json.dumps(text, ensure_ascii=False)[1:-1])

    def shut(self) -> None:
        """Write the end of what was opened last."""
        self._write(self._open.pop())

    def until(self, trail: str, end: str, held: str = "") -> Generator[None, str, None]:
        """Read characters of the string under way up to `end`, before which `trail` may stand; those that may
        belong to them wait. Those of `held` have been read before.
        """
        whole = trail + end
        while True:
            held += yield from self._chars.next()
            if held.endswith(end):
                self.add(held[: -len(end)].removesuffix(trail))
                return
            kept = next(
                n
                for n in range(min(len(held), len(whole)), -1, -1)
                if whole.startswith(held[len(held) - n :]) or end.startswith(held[len(held) - n :])
            )
            self.add(held[: len(held) - kept])
            held = held[len(held) - kept :]

    def _string(self, quote: str) -> Generator[None, str, None]:
        """The rest of a string after its first quote."""
        while (char := (yield from self._chars.next())) != quote:
            if char != "\\":
                self.add(char)
                continue
            char = yield from self._chars.next()
            if char == "u":
                digits = ""
                while len(digits) < 4:
                    digits += yield from self._chars.next()
                if not _HEX.issuperset(digits):
                    raise Malformed
                self._write("\\u" + digits)
            elif char in _ESCAPED:
                self._write("\\" + char)
            elif char == quote:  # of Python, which JSON does not escape
                self.add(char)
            else:  # such as \d of a regular expression, written without care
                self.add("\\" + char)
        self.shut()

    def _word(self, char: str) -> Generator[None, str, str]:
        word = ""
        while char in _BARE:
            word += char
            char = yield from self._chars.next()
        self._chars.back(char)
        if word in _WORDS:
            return _WORDS[word]
        if not _NUMBER.fullmatch(word):
            raise Malformed
        return word
