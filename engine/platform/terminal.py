"""Text in the columns of a terminal, where characters of East Asian scripts are two columns wide."""

from __future__ import annotations

import argparse
import re
import unicodedata
from typing import Any, NoReturn

from engine.words import _, translate

__all__ = ["ArgumentParser", "HelpFormatter", "padded", "sentence", "width_of", "wrapped"]

_WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60"
"""The wide characters that texts have: https://www.unicode.org/reports/tr11/."""
_CLOSING = "、。，．：；！？）」』】》”ーっゃゅょ"
_PIECES = rf"\s+|[（「『【《“]*[{_WIDE}][{_CLOSING}]*|(?:(?![{_WIDE}])\S)+[{_CLOSING}]*"
"""What a line may end before: a word, or a wide character with the marks that stay beside it."""


def width_of(text: str) -> int:
    """The columns that a line takes: two for a wide character, none for one that joins the one before."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """`text` with blanks after it, or before it if `right`, so that it takes this many columns."""
    blanks = " " * (columns - width_of(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, columns: int) -> list[str]:
    """`text` in lines of at most this many columns, except for words that are longer."""
    lines = [""]
    for piece in re.findall(_PIECES, " ".join(text.split())):
        if width_of(lines[-1]) + width_of(piece.rstrip()) > columns and lines[-1].strip():
            lines.append("")
        lines[-1] += piece if lines[-1] or not piece.isspace() else ""
    return [line.rstrip() for line in lines]


def sentence(text: str) -> str:
    """A phrase as a sentence: "show the ids" becomes "Show the ids."."""
    return text[0].upper() + text[1:] + ("。" if width_of(text[-1]) == 2 else ".")


class HelpFormatter(argparse.HelpFormatter):
    """Help in lines that fit in the terminal in every script; English is wrapped as `argparse` wraps it."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in wrapped(text, width - len(indent)))


class ArgumentParser(argparse.ArgumentParser):
    """Says what is wrong with arguments and where all are explained: some commands have pages of them."""

    def __init__(self, **more: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, **more)

    def error(self, message: str) -> NoReturn:
        said = translate("%(prog)s: error: %(message)s\n") % {"prog": self.prog, "message": message}
        self.exit(2, said + _("{command} --help lists all options.", command=self.prog) + "\n")
