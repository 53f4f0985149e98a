"""Texts that cost programs dearly: long, wide, deep, or of one sign only. None may stop a window."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["BOMBS", "bomb"]

_TABLE = "|---" * 40 + "|\n"


def _wide(columns: int, rows: int = 3) -> str:
    return "|" + "a|" * columns + "\n|" + "-|" * columns + "\n" + ("|" + "b|" * columns + "\n") * rows


BOMBS: dict[str, Callable[[int], str]] = {
    "a table of many columns": lambda size: _wide(size // 10),
    "a table of 100 columns": lambda size: _wide(100, size // 200),
    "short rows of a wide table": lambda size: _wide(64, 1) + "|x|\n" * (size // 4),
    "a table of many rows": lambda size: _wide(2, size // 5),
    "a table with a long head": lambda size: f"|{'x' * size}|b|\n|-|-|\n|c|d|\n",
    "a table with a long cell": lambda size: f"|a|b|\n|-|-|\n|{'word ' * (size // 5)}|d|\n",
    "a table without a row of dashes": lambda size: "|a" * (size // 2),
    "rows of dashes": lambda size: "|a|b|\n" + "|-|-|\n" * (size // 6),
    "formulas in cells": lambda size: "|a|b|\n|-|-|\n" + "|$x$|$y$|\n" * (size // 10),
    "one word": lambda size: "x" * size,
    "one line of words": lambda size: "word " * (size // 5),
    "short lines": lambda size: "a\n" * (size // 2),
    "hard breaks": lambda size: "a  \n" * (size // 4),
    "short paragraphs": lambda size: "a\n\n" * (size // 3),
    "empty lines": lambda size: "\n" * size,
    "spaces": lambda size: " " * size,
    "lines of spaces and a bar": lambda size: (" " * 900 + "|-" + " " * 900 + "x\n") * (size // 1803 + 1),
    "an item a line": lambda size: "- a\n" * (size // 4),
    "empty items": lambda size: "-\n" * (size // 2),
    "numbered items": lambda size: "".join(f"{number}. a\n" for number in range(1, size // 7)),
    "items ever deeper": lambda size: "".join(f"{'  ' * depth}- a\n" for depth in range(round(size**0.5))),
    "items on one line": lambda size: "- " * (size // 2),
    "quotes ever deeper": lambda size: "".join(f"{'>' * depth} a\n" for depth in range(1,
    round((2 * size) ** 0.5))),
    "quotes on one line": lambda size: ">" * size,
    "lines of quotes": lambda size: "> a\n" * (size // 4),
    "quotes and items by turns": lambda size: "> - " * (size // 4),
    "code of many lines": lambda size: "```python\n" + "x = 1  # y\n" * (size // 11) + "```\n",
    "code of one line": lambda size: "```python\n" + "x = 1; " * (size // 7) + "\n```\n",
    "code of empty lines": lambda size: "```\n" + "\n" * size + "```\n",
    "code without an end": lambda size: "```\n" + "a\n" * (size // 2),
    "many blocks of code": lambda size: "```\na\n```\n" * (size // 10),
    "stars": lambda size: "*" * size,
    "stars and words": lambda size: "*a " * (size // 3),
    "words between stars": lambda size: "**a** _b_ " * (size // 10),
    "underscores": lambda size: "_a__b" * (size // 5),
    "tildes": lambda size: "~a~~" * (size // 4),
    "opening brackets": lambda size: "[" * size,
    "links without an end": lambda size: "[a](" * (size // 4),
    "links": lambda size: "[a](b) " * (size // 7),
    "pictures without an end": lambda size: "![a](<b" * (size // 7),
    "references": lambda size: "".join(f"[{number}]: /u\n" for number in range(size // 12)) + "[1] " * 50,
    "backticks of every length": lambda size: " ".join("`" * (number % 97 + 1)
    for number in range(size // 50)),
    "dollars": lambda size: "$a " * (size // 3),
    "formulas": lambda size: "$x^2$ " * (size // 6),
    "formulas without an end": lambda size: "$$\nx\n" * (size // 5),
    "brackets of formulas": lambda size: "\\(a " * (size // 4),
    "tags": lambda size: "<a<b><sub>" * (size // 10),
    "tags without an end": lambda size: "<a " * (size // 3),
    "ampersands": lambda size: "&am" * (size // 3),
    "addresses": lambda size: "http://a.b/" * (size // 11) + " www.a.bc" * 100,
    "mail addresses": lambda size: "a.b+c@d-e." * (size // 10),
    "thoughts": lambda size: "<think>a</think>\n" * (size // 17),
    "a thought without an end": lambda size: "<think>\n" + "word " * (size // 5),
    "footnotes": lambda size: "".join(f"[^{number}]: a\n" for number in range(size // 10)),
    "rules": lambda size: "---\n\n" * (size // 5),
    "headings": lambda size: "# a\n" * (size // 4),
    "accents over accents": lambda size: ("a" + "\u0301" * 60 + " ") * (size // 62),
    "letters of the other direction": lambda size: "\u05d0\u202eb\u202c \u0627" * (size // 6),
    "joined emoji": lambda size: "\U0001f468\u200d\U0001f469\u200d\U0001f467 " * (size // 6),
    "letters that are not there": lambda size: "\ud800\x00\ufffe\x07" * (size // 4),
}  # fmt: skip
"""By name: what makes such a text of about so many characters."""


def bomb(name: str, size: int) -> str:
    """The text of this name, of about `size` characters."""
    return BOMBS[name](size)
