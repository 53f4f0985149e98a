"""Tokens as visible text, figures, and the exact start of a reply that continues with another token."""

from __future__ import annotations

import re

from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from engine.core import Alternative
from engine.units import percent_text
from engine.words import _

__all__ = ["beginning", "percent", "visible"]

_BYTES = re.compile(r"\\x([89a-f][0-9a-f])")
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """`text` on one line with nothing hidden: spaces at its ends as ␣, line breaks and other invisible
    characters as escapes.
    """
    if not text:
        return _("(part of a character)")
    inner = "".join(
        _NAMES.get(sign)
        or (
            sign
            if sign.isprintable()
            else f"\\u{ord(sign):04x}"
            if ord(sign) > 0xFF
            else f"\\x{ord(sign):02x}"
        )
        for sign in text
    )
    start, end = len(inner) - len(inner.lstrip(" ")), len(inner) - len(inner.rstrip(" "))
    return "␣" * len(inner) if start == len(inner) else "␣" * start + inner.strip(" ") + "␣" * end


def percent(share: float) -> str:
    """A probability to one decimal, or more where that would show nothing."""
    if share >= 0.0005 or share == 0:
        return percent_text(share, ".1f")
    return percent_text(share, ".4f") if share >= 0.000001 else f"< {percent_text(0.000001, '.4f')}"


def beginning(trace: TokenTrace, index: int, other: Alternative) -> tuple[str, tuple[int, ...]]:
    """The reply up to a token, with `other` in its place: its text, and its exact ids where they are known.

    A token that is only a part of a character has no text; the last part brings the whole character.
    """
    ids = trace.ids_before(index)
    text = trace.text[: trace.starts[index]]
    parts = [other.text]
    before = index
    while (
        before
        and trace.starts[before - 1] == trace.starts[index]
        and trace.piece(trace.ids[before - 1]) is not None
    ):
        before -= 1
        parts.insert(0, trace.piece(trace.ids[before]) or "")
    if any(map(_BYTES.search, parts)):
        added = b"".join(map(_piece_bytes, parts)).decode("utf-8", "replace").rstrip("\ufffd")
    else:
        added = other.text
    own = trace.piece(trace.ids[index])
    if (
        own is not None
        and own.startswith(" ")
        and trace.text[trace.starts[index] : trace.end(index)] == own[1:]
    ):
        # the first word of a text lacks the space that its token has
        added = added.removeprefix(" ")
    return text + added, (*ids, other.id) if ids is not None and other.id != UNKNOWN else ()


def _piece_bytes(piece: str) -> bytes:
    found = b""
    place = 0
    for match in _BYTES.finditer(piece):
        found += piece[place : match.start()].encode("utf-8", "surrogatepass") + bytes([int(match[1], 16)])
        place = match.end()
    return found + piece[place:].encode("utf-8", "surrogatepass")
