"""Colours for code, found with Pygments in idle slices of about 1 ms, and cached."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

if TYPE_CHECKING:
    from pygments.lexer import Lexer

__all__ = ["CodeColours", "IdleRunner", "Span"]

Span = tuple[int, int, str]
"""(start, length, style) in a line, in UTF-16 units as Qt counts; style is a field of `TranscriptColours`."""

SLICE = 0.001
_REST_MS = 100
"""Milliseconds without work after each `IdleRunner.rest`."""
_MAX_CODE = 60_000
_STYLES = (
    ("Comment", "comment"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Name.Function", "name"),
    ("Name.Class", "name"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "name"),
    ("Name.Decorator", "name"),
    ("Name.Builtin", "name"),
    ("Generic.Inserted", "added"),
    ("Generic.Deleted", "removed"),
    ("Generic.Heading", "name"),
)


class IdleRunner(QObject):
    """Runs generators in slices while the event loop is idle; a new job replaces the old one of its key."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._jobs: OrderedDict[object, Iterator[None]] = OrderedDict()
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._work)

    def run(self, key: object, job: Iterator[None]) -> None:
        """Work on `job` in idle time, after the jobs that are waiting already."""
        self._jobs.pop(key, None)
        self._jobs[key] = job
        self._timer.start()

    def cancel(self, key: object) -> None:
        """Cancel the job with this key, if there is one."""
        self._jobs.pop(key, None)
        if not self._jobs:
            self._timer.stop()

    def rest(self) -> None:
        """Do nothing for a moment, because the next frames need all of the time."""
        self._timer.setInterval(_REST_MS)  # starting a running timer restarts it

    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._jobs

    def _work(self) -> None:
        self._timer.setInterval(0)
        end = perf_counter() + SLICE
        while self._jobs and perf_counter() < end:
            key, job = next(iter(self._jobs.items()))
            for _ in job:
                if perf_counter() >= end:
                    break
            else:
                if self._jobs.get(key) is job:
                    del self._jobs[key]
        if not self._jobs:
            self._timer.stop()


class CodeColours:
    """The spans of code by line, cached for the last 256 pieces of code shown."""

    def __init__(self, runner: IdleRunner) -> None:
        self.runner = runner
        self._compiled: set[type[Lexer]] = set()
        self._known: OrderedDict[tuple[str, str], tuple[tuple[Span, ...], ...]] = OrderedDict()

    def get(self, language: str, code: str) -> tuple[tuple[Span, ...], ...] | None:
        """The spans if they are known."""
        found = self._known.get((language, code))
        if found is not None:
            self._known.move_to_end((language, code))
        return found

    def find(self, key: object, language: str, code: str, done: Callable[[], None]) -> None:
        """Find the spans in idle time, then call `done`; nothing happens for an unknown language or very
        long code.
        """
        if language and code and len(code) <= _MAX_CODE:
            self.runner.run(key, self._lex(language, code, done))

    def _lex(self, language: str, code: str, done: Callable[[], None]) -> Iterator[None]:
        from pygments.lexers import find_lexer_class_by_name
        from pygments.util import ClassNotFound

        yield
        try:
            made = find_lexer_class_by_name(language)
        except ClassNotFound:
            return
        yield
        if made not in self._compiled:
            yield from _compile(made)
            self._compiled.add(made)
        lexer = made()
        yield
        lines: list[list[Span]] = [[]]
        column = 0
        wide = not code.isascii()
        for _, token, value in lexer.get_tokens_unprocessed(code):
            style = _style(str(token)[6:])
            for number, part in enumerate(value.split("\n")):
                if number:
                    lines.append([])
                    column = 0
                length = len(part) + (sum(letter > "\uffff" for letter in part) if wide else 0)
                if style and part:
                    lines[-1].append((column, length, style))
                column += length
            yield
        self._known[(language, code)] = tuple(tuple(line) for line in lines)
        while len(self._known) > 256:
            self._known.popitem(last=False)
        done()


def _compile(lexer: type[Lexer]) -> Iterator[None]:
    """Compile the expressions of a lexer one by one. Its first instance would compile all of them at once,
    which takes some 50 ms; it finds them in the cache of `re` instead.
    """
    from pygments.lexer import Future, RegexLexer

    states = lexer.get_tokendefs() if issubclass(lexer, RegexLexer) else {}
    for rules in states.values():
        for rule in rules:
            if type(rule) is tuple:
                expression = rule[0].get() if isinstance(rule[0], Future) else rule[0]
                re.compile(expression, lexer.flags)
                yield


def _style(token: str) -> str:
    return next((style for start, style in _STYLES if token.startswith(start)), "")
