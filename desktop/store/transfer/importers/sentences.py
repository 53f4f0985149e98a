"""How an import words what it reports: on one line, short, as a sentence."""

from __future__ import annotations

__all__ = ["line_of", "reason_of", "sentence"]

_LONGEST = 200


def line_of(text: str) -> str:
    """The text on one line, cut after 200 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def reason_of(error: Exception) -> str:
    """What went wrong, in the words of the system or the library."""
    return line_of(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def sentence(reason: str) -> str:
    """A reason as a sentence: with a capital and a full stop."""
    return f"{reason[:1].upper()}{reason[1:]}."
