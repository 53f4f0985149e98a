"""The pieces of a text that is shown as its tokens: each is a row, which does not change while the text
grows.
"""

from __future__ import annotations

__all__ = ["piece_end"]

_PIECE, _LONGEST = 1000, 2500


def piece_end(text: str, start: int) -> int:
    """The end of the piece of tokens from `start` on: after the first line break after 1,000 characters, or a
    space after 2,500; 0 while it is not known.
    """
    if len(text) - start <= _PIECE:
        return 0
    found = text.find("\n", start + _PIECE, start + _LONGEST)
    if found < 0 and len(text) - start > _LONGEST + _PIECE:
        found = text.find(" ", start + _LONGEST, start + _LONGEST + _PIECE)
        found = found if found >= 0 else start + _LONGEST
    return found + 1
