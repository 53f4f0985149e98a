"""Tops and heights of rows after any change are those of a plain sum."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript.row_layout import RowLayout
from desktop.views.transcript.rows import Row, RowKind

ITEM = MessageItem(1, "user", "")


def rows(heights: list[int]) -> list[Row]:
    return [Row(RowKind.TEXT, ITEM, height=height) for height in heights]


CHANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6), st.lists(st.integers(1, 90), max_size=6)), max_size=12
)


@settings(max_examples=200)
@given(CHANGES, st.integers(-9, 900))
def test_tops_are_sums(changes: list[tuple[int, int, list[int]]], y: int) -> None:
    layout = RowLayout()
    assert (layout.total, layout.at(0)) == (0, -1)
    for at, count, heights in changes:
        start = min(at, len(layout.rows))
        layout.replace(start, min(count, len(layout.rows) - start), rows(heights))
    total = 0
    for index, row in enumerate(layout.rows):
        assert (row.index, layout.top(row)) == (index, total)
        assert layout.at(total) == index
        assert layout.at(total + row.height - 1) == index
        assert layout.holds(row)
        total += row.height
    assert layout.total == total
    if layout.rows:
        found = layout.rows[layout.at(y)]
        assert layout.top(found) <= max(0, y) or layout.at(y) == 0


def test_replaced_rows_are_not_held() -> None:
    layout = RowLayout()
    old, new = rows([10, 20]), rows([5])
    layout.replace(0, 0, old)
    layout.replace(0, 1, new)
    assert not layout.holds(old[0])
    assert layout.holds(old[1])
    layout.replace(0, 2, [])
    assert not layout.holds(old[1])
