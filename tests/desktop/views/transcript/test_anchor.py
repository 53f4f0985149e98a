"""The line at the top of the screen stays there to the pixel, whatever arrives: closed blocks, late formulas
and pictures.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.rows import RowKind
from tests.desktop.views.transcript.conftest import Show

WORDS = [
    "the", "model", "reads", "a", "prompt", "and", "then", "writes", "one",
    "token", "after", "another", "while", "caches", "keep",
]  # fmt: skip
TEXT_KINDS = (RowKind.TEXT, RowKind.CODE, RowKind.BUBBLE, RowKind.TABLE)


def line_on_screen(view: TranscriptView, below: int = 0) -> tuple[str, int]:
    """The text of the first whole line on the screen, and its height there."""
    for widget in sorted(view.pool.widgets(), key=lambda widget: widget.y()):
        if not isinstance(widget, DocumentRow) or widget.row is None or widget.row.kind not in TEXT_KINDS:
            continue
        for height in range(max(0, below - widget.y()), widget.height(), 3):
            line = widget.line_at(height)
            top = widget.mapTo(view.viewport(), QPoint(0, widget.line_height(line))).y()
            words = words_of(widget, line)
            if top >= below and words.strip("\ufffc ") and top < view.viewport().height():
                return words, top
    raise AssertionError("no line of text on the screen")


def words_of(widget: DocumentRow, line: int) -> str:
    """The last word of the line's paragraph, which formulas do not change."""
    block = widget.document.findBlockByNumber(line >> 24)
    return block.text()[-12:]


def piece(draw: random.Random, picture: Path, number: int) -> str:
    words = " ".join(draw.choices(WORDS, k=draw.randint(20, 90)))
    return draw.choice(
        (
            f"{words} end{number}\n\n",
            f"{words} $\\frac{{a_{number}}}{{b}}$ {words} $\\sum_{{i=1}}^{{{number}}} x_i$ {words} "
            f"end{number}\n\n",
            f"$$\n\\begin{{pmatrix}}{number}\\\\2\\\\3\\end{{pmatrix}}\n$$\n\nend{number}\n\n",
            f"```python\n{words}\nx = {number}  # end{number}\n```\n\n",
            f"| a | b |\n|---|---|\n| {words} | $x^{{{number}}}$ |\n\nend{number}\n\n",
            f"![a picture]({picture})\n\nend{number}\n\n",
            f"- {words}\n- [x] done end{number}\n\n",
        )
    )


@pytest.mark.parametrize("seed", range(2))
def test_the_first_line_on_the_screen_stays_while_a_reply_comes(
    show: Show, qtbot: QtBot, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    picture = tmp_path / "picture.png"
    image = QImage(300, 180, QImage.Format.Format_RGB32)
    image.fill(QColor("teal"))
    assert image.save(str(picture))
    begun = "".join(piece(draw, picture, number) for number in range(14))
    view, model = show(
        [MessageItem(1, "user", "Go"), MessageItem(2, "assistant", "", running=True)], 620, 420
    )
    model.append_text(2, begun)
    view.flush()
    for number in range(20, 32):
        bar = view.verticalScrollBar()
        bar.setValue(round(bar.maximum() * draw.uniform(0.1, 0.95)))
        if view.scrolling.at_end:
            continue
        words, top = line_on_screen(view)
        coming = piece(draw, picture, number)
        step = draw.choice((1, 3, 50))
        for start in range(0, len(coming), step * 8):
            model.append_text(2, coming[start : start + step * 8])
            view.flush()
            assert line_on_screen(view, top - 3) == (words, top)
        qtbot.waitUntil(view.settled)
        assert line_on_screen(view, top - 3) == (words, top)


def test_reading_in_a_long_paragraph_with_late_formulas(show: Show, qtbot: QtBot) -> None:
    """Its row is taller than the screen, and formulas above the screen change the paragraph's height."""
    view, model = show([MessageItem(1, "user", "Go")], 420, 200)
    text = "\n".join(
        f"- item {i} with $\\frac{{a_{{{i}}}}}{{b + \\frac{{1}}{{c}}}}$ in it, end{i}" for i in range(40)
    )
    view.pictures._workshop.add = lambda *wanted: None  # they wait until they are drawn
    model.append(MessageItem(2, "assistant", text + "\n\n" + "tail\n\n" * 30))
    qtbot.waitUntil(lambda: not view._waits)
    row = next(row for row in view.messages.rows_of(2) if row.kind is RowKind.TEXT)
    view.scrolling.to_row(row, -round(row.height * 0.6))
    view.flush()
    view.flush()
    before, (words, top) = row.height, line_on_screen(view)
    del view.pictures._workshop.add
    for key in list(view.pictures._pending):
        view.pictures._workshop.add(key, b"")
    qtbot.waitUntil(view.settled)
    assert row.text.count("$") > 60
    assert abs(row.height - before) > 100
    assert line_on_screen(view, top - 3) == (words, top)


def test_a_thought_that_is_read_stays_open_when_it_is_over(show: Show, qtbot: QtBot) -> None:
    view, model = show(
        [
            MessageItem(
                1, "assistant", "<think>\n" + "".join(f"thought {i}\n\n" for i in range(60)), running=True
            )
        ],
        500,
        300,
    )
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum() // 2)
    before = line_on_screen(view)
    model.append_text(1, "</think>\n\n" + "answer\n\n" * 20)
    qtbot.waitUntil(view.settled)
    assert line_on_screen(view, before[1] - 3) == before
    model.append(
        MessageItem(2, "assistant", "<think>\n" + "".join(f"other {i}\n\n" for i in range(60)), running=True)
    )
    view.scroll_to_end()
    view.flush()
    model.append_text(2, "</think>\n\n" + "answer\n\n" * 3)
    qtbot.waitUntil(view.settled)
    assert not [row for row in view.messages.rows_of(2) if row.text.startswith("other")]


@pytest.mark.parametrize("width", [400, 900])
def test_another_width_keeps_the_line_at_the_top(show: Show, qtbot: QtBot, width: int) -> None:
    paragraphs = "\n".join(f"- {' '.join(WORDS * 2)} end{i}" for i in range(80))
    view, _ = show([MessageItem(1, "assistant", paragraphs)], 620, 400)
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum() // 2)
    words, _ = line_on_screen(view)
    view.resize(width, 400)
    qtbot.waitUntil(view.settled)
    assert any(line_on_screen(view, y)[0] == words for y in range(-30, 61, 10))
