"""What one line of Markdown can start: the patterns of CommonMark 0.31 and of GitHub's tables, slightly more
tolerant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = [
    "alert", "cells", "closes_fence", "dedent", "delimiter", "display_math", "fence", "footnote",
    "indentation", "is_rule", "list_marker", "opening", "piece_length",
]  # fmt: skip

PIECE = 1024
"""A longer line is cut for layout at the next space, or at twice this length anywhere."""

_FENCE = re.compile(r"( *(?:(?:[-*+]|\d{1,9}[.)]) +)?)(`{3,}|~{3,})([^\n]*)\n?$")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_LIST = re.compile(r"( *)(?:[-*+]|(\d{1,9})[.)])(?:[ \t]+(\S)?|$)")
_DASHES = re.compile(r":?-+:?")
_MATH = re.compile(
    r"( *)(?:(\$\$)(?!\$)|(\\\[)|\\begin\{((?:equation|align|gather|multline|alignat|flalign|eqnarray"
    r"|displaymath)\*?)\})"
)
_FOOTNOTE = re.compile(r" {0,3}\[\^([^\]\s^]{1,80})\]:(?:[ \t]+|$)")
_ALERT = re.compile(r"(?: {0,3}> ?)?[ \t]*\[!(note|tip|important|warning|caution)\]$", re.IGNORECASE)
_BREAK = re.compile(r"[ \t\u3001\u3002\uff01\uff0c\uff1f]")


def alert(line: str) -> str:
    """The kind of alert that a quote with this first line is: "note", "tip", "important", "warning",
    "caution"; empty for a plain quote.
    """
    match = _ALERT.match(line.rstrip())
    return match[1].lower() if match is not None else ""


def fence(line: str) -> tuple[int, str, str] | None:
    """(columns before it, the fence itself, language) when `line` opens a code fence."""
    match = _FENCE.match(line)
    if match is None or (match[2][0] == "`" and "`" in match[3]):
        return None
    words = match[3].split()
    return len(match[1]), match[2], words[0].strip("{}.") if words else ""


def closes_fence(line: str, opened: str) -> bool:
    """Whether `line` closes the fence `opened`: only the same character, at least as many times."""
    text = line.strip()
    return len(text) >= len(opened) and text == opened[0] * len(text)


def display_math(line: str) -> tuple[int, str, bool] | None:
    """(columns before it, what closes it, whether this line closes it) when `line` opens display math.

    Only a full stop, comma or semicolon may follow a closing on the same line; otherwise it is inline math.
    """
    match = _MATH.match(line)
    if match is None:
        return None
    finish = "$$" if match[2] else "\\]" if match[3] else f"\\end{{{match[4]}}}"
    at = line.find(finish, match.end())
    if at < 0:
        return len(match[1]), finish, False
    return (len(match[1]), finish, True) if line[at + len(finish) :].strip() in ("", ".", ",", ";") else None


def footnote(line: str) -> tuple[str, int] | None:
    """(label, length of the marker) when `line` begins the text of a footnote."""
    match = _FOOTNOTE.match(line.rstrip("\r\n"))
    return None if match is None else (match[1], match.end())


def is_rule(line: str) -> bool:
    """Whether `line` is a thematic break."""
    return _RULE.match(line.rstrip()) is not None


def list_marker(line: str) -> tuple[int, str, bool] | None:
    """(indentation, number or "" for a bullet, whether text follows) when `line` begins a list item."""
    match = _LIST.match(line.rstrip("\r\n"))
    return None if match is None else (len(match[1]), match[2] or "", match[3] is not None)


def delimiter(line: str) -> bool:
    """Whether `line` is the row of dashes below the head of a table."""
    return "|" in line and "-" in line and all(_DASHES.fullmatch(cell) for cell in cells(line))


def cells(line: str) -> list[str]:
    """The cells of a table row; an escaped bar belongs to its cell."""
    text = line.strip()
    text = text.removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", text)]


def indentation(line: str) -> int:
    """The spaces at the start of `line`."""
    return len(line) - len(line.lstrip(" "))


def dedent(text: str, columns: int) -> str:
    """`text` with up to `columns` spaces taken from the start of each line."""
    if columns == 0:
        return text
    return "".join(line[min(columns, indentation(line)) :] for line in text.splitlines(keepends=True))


def opening(line: str, tags: Sequence[tuple[str, str]], closing: str) -> int:
    """Length of the tag at the start of `line` that opens what `closing` closes, with a blank rest of the
    line; 0 for none. The `tags` are pairs of an opening and a closing one.
    """
    core = line.lstrip()
    begin = next((begin for begin, finish in tags if finish == closing and core.startswith(begin)), "")
    end = len(line) - len(core) + len(begin)
    return 0 if not begin else end if line[end:].strip() else len(line)


def piece_length(text: str, start: int = 0) -> int:
    """Length of the piece of `text` from `start`: a line with its end, or a part of a very long line.

    0 while that is not known yet.
    """
    end = text.find("\n", start, start + 2 * PIECE)
    if 0 <= end < start + PIECE:
        return end + 1 - start
    space = _BREAK.search(text, start + PIECE, start + 2 * PIECE if end < 0 else end)
    if space is not None:
        return space.end() - start
    if end >= 0:
        return end + 1 - start
    return 2 * PIECE if len(text) - start >= 2 * PIECE else 0
