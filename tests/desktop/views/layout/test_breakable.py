"""Long paths, addresses and numbers have places where a line may break."""

from __future__ import annotations

from desktop.views.layout.breakable import breakable


def test_places_to_break() -> None:
    assert breakable("http://a.b/c") == "http:\u200b/\u200b/\u200ba.\u200bb/\u200bc"
    assert breakable("a short text") == "a short text"
    digits = "0123456789abcdef" * 4
    pieces = breakable(digits).split("\u200b")
    assert {len(piece) for piece in pieces} == {8}
    assert "".join(pieces) == digits
