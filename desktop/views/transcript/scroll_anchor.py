"""A place in a conversation that outlives its rows: when the same message is shown as other rows, the reader
stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from desktop.views.transcript.rows import Row, RowKind

__all__ = ["Anchor", "Place"]


@dataclass(frozen=True)
class Anchor:
    """What the top of the screen is tied to: `share` of the row's height and minus `offset` pixels of it are
    above.

    With a `line` (not -1) of the row's text, that line is `offset` pixels below the top of the screen.
    """

    row: Row
    offset: int = 0
    share: float = 0.0
    line: int = -1


@dataclass(frozen=True)
class Place:
    """A character of a message, or (-1) a `share` of the height of its row of a `kind` without text."""

    message: int
    kind: RowKind
    character: float
    share: float

    @classmethod
    def at(cls, row: Row, above: int) -> Place:
        """The place at `above` pixels from a row's top."""
        share = min(1.0, max(0.0, above / max(1, row.height)))
        return cls(row.item.id, row.kind, row.start + share * len(row.source) if row.source else -1, share)

    def anchor(self, rows: Sequence[Row]) -> Anchor | None:
        """The anchor for the place among the message's present `rows`; None when there are none."""
        if self.character < 0:
            found = next((row for row in rows if row.kind is self.kind), rows[0] if rows else None)
            return Anchor(found, share=self.share) if found is not None else None
        texts = [row for row in rows if row.source]
        row = next(
            (row for row in reversed(texts) if row.start <= self.character), texts[0] if texts else None
        )
        return (
            Anchor(row, share=min(1.0, max(0.0, (self.character - row.start) / len(row.source))))
            if row is not None
            else None
        )
