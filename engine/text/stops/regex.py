"""Regular expressions over growing text, with the results of a search of the whole text.

The `regex` package can report that an attempt reached the end of the text ("partial"), but it tries for a
complete match first, and tests such as `$` treat the current end as final. So the search uses a modified
expression that never matches completely: an empty group after the original records whether it was completed
before the end was reached, and every test that looks ahead first reads a character there.
"""

from __future__ import annotations

from typing import Any

from engine.errors import BadSetting
from engine.words import N_, _, translate

LONGEST_MATCH = 1024
"""Characters after which an attempt is decided as if the text ended there, so that no more is held back."""

_SECONDS = 1.0
_ANY = "(?s:.)"
_READ = f"(?={_ANY}|)"  # always true, but needs a next character
# `$` is true before a line break only if that is the last character
_READ_PAST_LINE = rf"(?=\n{_ANY}|{_ANY}|)"
_TESTS = {
    "$": f"(?:{_READ_PAST_LINE}$)", r"\Z": rf"(?:{_READ}\Z)", r"\z": rf"(?:{_READ}\z)",
    r"\b": rf"(?:{_READ}\b)", r"\B": rf"(?:{_READ}\B)", r"\m": rf"(?:{_READ}\m)", r"\M": rf"(?:{_READ}\M)",
    r"\X": rf"(?:\X{_READ})", r"\R": rf"(?:\R{_READ})",
}  # fmt: skip


class Expression:
    """A regular expression (syntax of the `regex` package) with nonempty matches.

    `^` is the beginning of the text, `$` its end or, in multi-line mode, that of a line. Look-behind works
    for at least `LONGEST_MATCH` characters. Raises `BadSetting` for an invalid expression, and from its
    methods for one that takes more than a second.
    """

    def __init__(self, pattern: str) -> None:
        import regex  # here: most chats have no such condition

        self.pattern = pattern
        try:
            self._whole = regex.compile(pattern)
        except regex.error as error:
            words, place = N_("The stop expression {pattern!r} cannot be read: {msg}; correct it."), 0
            if error.pos is not None:
                words = N_(
                    "The stop expression {pattern!r} cannot be read: {msg} at character {pos}; correct it."
                )
                place = error.pos + 1
            raise BadSetting(translate(words, pattern=pattern, msg=error.msg, pos=place)) from None
        except (OverflowError, RecursionError, MemoryError):
            raise BadSetting(
                _("The stop expression {pattern!r} is too large; simplify it.", pattern=pattern[:40])
            ) from None
        if self._whole.flags & regex.REVERSE:
            raise BadSetting(
                _(
                    "The stop expression {pattern!r} searches backwards, but a reply is only read "
                    "forwards; remove (?r).",
                    pattern=pattern,
                )
            )
        flags = self._whole.flags
        body = _open_ended(
            pattern, verbose=bool(flags & regex.VERBOSE), multiline=bool(flags & regex.MULTILINE)
        )
        # A comment at the end of a verbose expression must not swallow what follows.
        body += "\n" if flags & regex.VERBOSE else ""
        self._open = regex.compile(f"(?:{body})(){_ANY}*+(?!)")
        self._completed = self._open.groups

    def advance(self, text: str, start: int) -> tuple[int, tuple[int, int] | None]:
        """Search `text`, which will grow, from index `start`.

        Returns the first index at which a match may still begin, and the match (start, end) once it is
        certain; a longer text gives the same answer.
        """
        while start < len(text):
            end = min(len(text), start + LONGEST_MATCH)
            attempt = self._attempt(text, start, end)
            if attempt is None or attempt[0] >= end:
                start = end
                continue
            at, stop = attempt
            if stop is None and at > start:
                start = at  # it may read further than earlier attempts
            elif stop is None and end - at < LONGEST_MATCH:
                return at, None
            else:
                stop = self._as_it_stands(text[:end], at) if stop is None else stop
                if stop > at:
                    return at, (at, stop)
                start = at + 1
        return start, None

    def last(self, text: str, start: int) -> tuple[int, int] | None:
        """The first match (start, end) from index `start` in the complete `text`."""
        while start < len(text):
            found = self._timed(self._whole.search, text, start)
            if found is None:
                return None
            if found.end() > found.start():
                return found.start(), found.end()
            start = found.start() + 1
        return None

    def _attempt(self, text: str, start: int, end: int) -> tuple[int, int | None] | None:
        """The first start in text[:end] that does not fail, and the end of its match (None: undecided)."""
        found = self._timed(self._open.match, text, start, end, partial=True)
        if found is None:
            found = self._timed(self._open.search, text, start + 1, end, partial=True)
        if found is None:
            return None
        completed = found.start(self._completed)
        return found.start(), completed if completed >= 0 else None

    def _as_it_stands(self, text: str, start: int) -> int:
        found = self._timed(self._whole.match, text, start)
        return start if found is None else int(found.end())

    def _timed(self, search: Any, text: str, *place: int, **options: bool) -> Any:
        try:
            return search(text, *place, timeout=_SECONDS, **options)
        except TimeoutError:
            raise BadSetting(
                _(
                    "The stop expression {pattern!r} takes too long on this reply; simplify it.",
                    pattern=self.pattern,
                )
            ) from None


def _open_ended(pattern: str, *, verbose: bool, multiline: bool) -> str:
    """`pattern` with every test that looks ahead modified to read a character first.

    The package skips a repeated group at the end of the text without reading, so such groups also read.
    """
    out: list[str] = []
    groups: list[int] = []  # the indices in `out` where open groups begin
    at = 0
    while at < len(pattern):
        size = _part(pattern, at, verbose)
        part = pattern[at : at + size]
        at += size
        if part in (r"\K", r"\G", "(?R", "(?0"):
            raise BadSetting(
                _(
                    "The stop expression {pattern!r} contains {part}, which is not supported; remove it.",
                    pattern=pattern,
                    part=part,
                )
            )
        if part[0] == "(" and part[-1] != ")":
            groups.append(len(out))
        elif part == ")" and groups:
            first = groups.pop()
            if _repeated(pattern, at, verbose):
                out[first] = f"{_READ}(?:{out[first]}"
                part = f"){_READ})"
        elif part == "$" and multiline:
            part = f"(?:{_READ}$)"
        out.append(_TESTS.get(part, part))
    return "".join(out)


def _part(pattern: str, at: int, verbose: bool) -> int:
    """Length of the part at `at`: an escape, a set, a comment, the opening of a group, or one character."""
    if pattern[at] == "\\":
        return 2
    if pattern[at] == "[":
        return _set_size(pattern, at)
    if pattern.startswith("(?#", at) or (verbose and pattern[at] == "#"):
        end = pattern.find(")" if pattern[at] == "(" else "\n", at)
        return (end + 1 if end >= 0 else len(pattern)) - at
    return 3 if pattern.startswith("(?", at) and not pattern.startswith("(?(", at) else 1


def _set_size(pattern: str, at: int) -> int:
    """Length of the set at `at`; a bracket right after its beginning and [:names:] belong to it."""
    end = at + (2 if pattern.startswith("[^", at) else 1)
    end += pattern.startswith("]", end)
    while end < len(pattern) and pattern[end] != "]":
        if pattern[end] == "\\":
            end += 2
        elif pattern.startswith("[:", end) and (close := pattern.find(":]", end)) >= 0:
            end = close + 2
        else:
            end += 1
    return end + 1 - at


def _repeated(pattern: str, at: int, verbose: bool) -> bool:
    """Whether a quantifier follows at `at`."""
    while verbose and at < len(pattern) and pattern[at].isspace():
        at += 1
    return at < len(pattern) and pattern[at] in "*+?{"
