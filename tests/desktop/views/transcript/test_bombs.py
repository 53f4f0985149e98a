"""No text blocks the window: the work of one frame is bounded. Work is counted, not time."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from desktop.blocks import split
from desktop.blocks.open_block import CELLS, CODE_LIMIT, CODE_LINES, COLUMNS, LIMIT, LINES
from desktop.blocks.parser import parse
from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import intake, message_rows
from desktop.views.transcript.intake import PAGE_ROWS, STEP, STEP_LINES
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.row_layout import RowLayout
from desktop.views.transcript.row_pool import EFFORT, RowPool
from desktop.views.transcript.row_widgets.table import TableRow
from desktop.views.transcript.row_widgets.text import TextRow
from desktop.views.transcript.rows import Row, RowKind
from tests.desktop.bombs import BOMBS, bomb
from tests.desktop.views.transcript.conftest import Show

PIECE = 2048
"""The length of the longest piece of a line in characters."""


@pytest.mark.slow_after(20)
@pytest.mark.parametrize("name", BOMBS)
def test_every_row_of_a_text_is_small(name: str) -> None:
    text = bomb(name, 20_000)
    blocks = split(text)
    assert "".join(block.source for block in blocks) == text
    for block in blocks:
        lines = block.source.count("\n")
        if block.kind.value == "code":
            assert len(block.source) <= CODE_LIMIT + PIECE
            assert lines <= CODE_LINES + 1
        elif block.kind.value == "table":
            rows = block.body.strip("\n").split("\n")
            assert len(block.source) <= 2 * LIMIT + 2 * PIECE
            assert rows[0].count("|") - 1 <= COLUMNS
            assert (len(rows) - 2) * (rows[0].count("|") - 1) <= CELLS + COLUMNS
        elif block.source.strip() and block.kind.value not in ("markup", "math"):
            assert len(block.source) <= 2 * LIMIT + PIECE
            assert lines <= 2 * LINES + 1
        if block.kind.value not in ("code", "table", "markup", "math"):
            count = sum(len(token.children or ()) for token in parse(block.body))
            assert count <= 3 * LIMIT


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("role", ["assistant", "user"])
@pytest.mark.parametrize(
    "name", ["one word", "short lines", "headings", "code of many lines", "a table of many rows"]
)
def test_a_text_of_fifty_megabytes_is_taken_in_small_steps(
    monkeypatch: pytest.MonkeyPatch, name: str, role: str
) -> None:
    page = 80_000  # a small page is quicker to test
    monkeypatch.setattr(intake, "PAGE", page)
    monkeypatch.setattr(message_rows, "PAGE", page)
    text = bomb(name, 50_000_000)
    message = MessageRows(MessageItem(1, role, text))
    while message.waits:
        before = message._intake.taken
        message.step()
        step = text[before : message._intake.taken]
        assert 0 < len(step) <= STEP
        assert step.count("\n") <= STEP_LINES + 1
    message.sync()
    assert len(message.rows) <= 1.6 * PAGE_ROWS
    assert len(message.copied(0, len(message.rows) - 1)) <= page + PIECE
    assert message.rows[-2].kind is RowKind.MORE, "the rest is not lost: a button shows more"
    shown = message.copied(0, len(message.rows) - 1)
    assert text.startswith(shown)
    message.show_more()
    while message.waits:
        message.step()
    message.sync()
    longer = message.copied(0, len(message.rows) - 1)
    assert text.startswith(longer)
    assert len(longer) > 1.5 * len(shown)


def test_a_frame_makes_no_more_rows_than_its_effort_allows(
    show: Show, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that must wait are made in the following frames, those on the screen first."""
    frames: list[list[int]] = []
    arrange, fit = RowPool.arrange, RowPool._fit

    def count_frames(stage: RowPool, *given: object) -> int:
        frames.append([])
        return arrange(stage, *given)  # type: ignore[arg-type]

    def count_rows(stage: RowPool, row: Row, *given: object) -> bool:
        if stage.fitted(row) is None:
            frames[-1].append(RowLayout.effort(row))
        return fit(stage, row, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(RowPool, "arrange", count_frames)
    monkeypatch.setattr(RowPool, "_fit", count_rows)
    text = "\n\n".join(bomb("a table of many rows", 900) + "\n\nwords" for _ in range(20))
    view, _ = show([MessageItem(1, "assistant", text)])
    view.verticalScrollBar().setValue(0)
    qtbot.waitUntil(view.settled)
    assert sum(map(len, frames)) > 10
    for made in frames:
        assert len(made) <= 1 or sum(made) <= EFFORT
    rows_now = view.messages.layout.rows
    top, height = view.verticalScrollBar().value(), view.viewport().height()
    place = view.messages.layout.top
    seen = [row for row in rows_now if top < place(row) + row.height and place(row) < top + height]
    assert all(view.pool.fitted(row) is not None for row in seen), "in the end all that is seen is there"


def test_code_in_several_rows_is_one_block_to_the_reader(show: Show, qtbot: QtBot) -> None:
    code = "".join(f"line {number}\n" for number in range(3 * CODE_LINES))
    view, _ = show([MessageItem(1, "assistant", f"```python\n{code}```\n\nwords")])
    parts = [row for row in view.messages.layout.rows if row.kind is RowKind.CODE]
    assert [(row.first, row.last) for row in parts] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    assert view.messages.body(parts[0]) == code.removesuffix("\n")
    assert "".join(f"{row.text}\n" for row in parts if row.text) == code
    assert {row.block.language for row in parts if row.block is not None} == {"python"}
    view._wrap_code(parts[0])
    assert {row.wrapped for row in parts} == {False}
    parts[0].wrapped = True
    view._wrap_code(parts[0])
    assert {row.wrapped for row in parts} == {True}


def test_the_button_below_a_long_message_shows_more(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", bomb("headings", 12_000))])
    before = len(view.messages.layout.rows)
    qtbot.waitUntil(view.settled)
    view.scroll_to_end()
    view.flush()
    [more] = [widget for row, widget in view.pool.live.items() if row.kind is RowKind.MORE]
    more.findChild(QPushButton).click()
    qtbot.waitUntil(view.settled)
    assert len(view.messages.layout.rows) > before + 500


def test_links_find_addresses_that_come_later(show: Show, qtbot: QtBot) -> None:
    view, model = show([MessageItem(1, "assistant", "", running=True)])
    text = (
        "See [the page][1] and [this].\n\n| a |\n|---|\n| [1] |\n\n"
        + "word\n\n" * 3
        + "[1]: https://a.example\n[this]: https://b.example\n"
    )
    for start in range(0, len(text), 7):
        model.append_text(1, text[start : start + 7])
        view.flush()
    model.replace(1, MessageItem(1, "assistant", text))
    view.flush()
    found = [
        widget.document.toHtml() for widget in view.pool.widgets() if isinstance(widget, TextRow | TableRow)
    ]
    assert [html.count("https://a.example") for html in found if "href" in html] == [1, 1]
    assert sum("https://b.example" in html for html in found) == 1
