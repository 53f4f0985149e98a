"""Texts of control tokens inside messages stay text: characters for private use stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["ContentGuard", "texts_in"]

_PRIVATE_USE = range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFD)


def texts_in(value: Any) -> Iterable[str]:
    """All strings in a value of any depth."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            stack += value


class ContentGuard:
    """Replaces parts of messages by private-use characters not used elsewhere; `literal` maps them back."""

    def __init__(self, tokenizer: Tokenizer, texts: Iterable[str]) -> None:
        used = set[str]().union(*texts)  # the characters of all: a loop over megabytes takes a second
        self._free = (chr(code) for code in chain(*_PRIVATE_USE) if chr(code) not in used)
        self._pattern = tokenizer.special_pattern
        self._starts, self._ends = tokenizer.special_starts, tokenizer.special_ends
        self._mark_of: dict[str, str] = {}
        self.literal: dict[int, str] = {}

    def _mark(self, piece: str) -> str:
        if not piece:
            return ""
        if piece not in self._mark_of:
            self._mark_of[piece] = mark = next(self._free)
            self.literal[ord(mark)] = piece
        return self._mark_of[piece]

    def inside(self, value: Any, key: str = "") -> Any:
        """A copy of a message or tool, of any depth, with the texts of control tokens replaced."""
        if isinstance(value, str):
            return self.edges(self.whole(value)) if key == "content" else self.whole(value)
        if isinstance(value, Mapping):
            return {
                self.whole(name) if isinstance(name, str) else name: self.inside(part, str(name))
                for name, part in value.items()
            }
        return [self.inside(part, key) for part in value] if isinstance(value, (list, tuple)) else value

    def whole(self, text: str) -> str:
        """`text` with the texts of control tokens replaced."""
        return self._pattern.sub(lambda match: self._mark(match[0]), text)

    def edges(self, text: str) -> str:
        """`text` with a beginning or end replaced that could join its neighbours to a control token."""
        core = text.strip()  # templates often trim their input
        if not core:
            return text
        before, after = text[: text.index(core)], text[text.index(core) + len(core) :]
        head = self._ends.at_end(core[::-1], len(core))
        tail = self._starts.at_end(core, len(core) - head)
        middle = core[head : len(core) - tail]
        return before + self._mark(core[:head]) + middle + self._mark(core[len(core) - tail :]) + after
