"""The buttons of a code block: copy, wrap and save, clicked with the mouse."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QMessageBox
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.code import CodeRow
from desktop.views.transcript.row_widgets.save_code import file_name, write_code
from tests.desktop.views.transcript.conftest import Show

CODE = "def f():\n    return '" + "long " * 60 + "'"
FILLER = [MessageItem(number, "user", "word\n" * 30) for number in range(2, 12)]


def code_row(view: TranscriptView) -> CodeRow:
    [found] = [widget for widget in view.pool.widgets() if isinstance(widget, CodeRow)]
    return found


def test_wrapping_a_block_makes_it_higher_and_lasts_while_it_grows_and_scrolls_away(
    show: Show, qtbot: QtBot
) -> None:
    view, model = show([MessageItem(1, "assistant", f"```python\n{CODE}", running=True)])
    row = code_row(view)
    before = row.height()
    assert row.bar.isVisible()
    QTest.mouseClick(row.wrap, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(view.settled)
    wrapped = row.height()
    assert wrapped > before
    assert not row.bar.isVisible()
    model.append_text(1, "\nmore()\n```\n")
    qtbot.waitUntil(view.settled)
    assert row.height() > wrapped
    for item in FILLER:
        model.append(item)
    qtbot.waitUntil(view.settled)
    assert not [widget for widget in view.pool.widgets() if isinstance(widget, CodeRow)]
    view.scrolling.to_message(1)
    qtbot.waitUntil(view.settled)
    again = code_row(view)
    assert again.wrap.isChecked()
    QTest.mouseClick(again.wrap, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(view.settled)
    assert again.bar.isVisible()


def test_wrapping_one_block_leaves_others_alone(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", f"```\n{CODE}\n```\n\n```\n{CODE}\n```\n")])
    first, second = sorted((w for w in view.pool.widgets() if isinstance(w, CodeRow)), key=lambda w: w.y())
    before = second.height()
    QTest.mouseClick(first.wrap, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(view.settled)
    assert second.height() == before
    assert second.bar.isVisible()


def test_saving_writes_the_code_that_is_shown(show: Show, qtbot: QtBot, tmp_path: Path) -> None:
    view, _ = show([MessageItem(1, "assistant", f"```python\n{CODE}\n```\n")])
    QTest.mouseClick(code_row(view).save, Qt.MouseButton.LeftButton)
    dialog = view.findChild(QFileDialog, "saveCode")
    assert isinstance(dialog, QFileDialog)
    assert [Path(name).name for name in dialog.selectedFiles()] == ["code.py"]
    target = tmp_path / "work.py"
    dialog.filesSelected.emit([str(target)])
    dialog.reject()
    assert target.read_text(encoding="utf-8") == CODE + "\n"


def test_a_place_that_cannot_be_written_is_reported_in_a_sentence(
    show: Show, qtbot: QtBot, tmp_path: Path
) -> None:
    view, _ = show([MessageItem(1, "assistant", "```\nx\n```\n")])
    QTest.mouseClick(code_row(view).save, Qt.MouseButton.LeftButton)
    dialog = view.findChild(QFileDialog, "saveCode")
    assert isinstance(dialog, QFileDialog)
    dialog.filesSelected.emit([str(tmp_path / "no folder" / "x.py")])
    dialog.reject()
    box = view.findChild(QMessageBox, "saveFailed")
    assert isinstance(box, QMessageBox)
    assert "could not be saved" in box.text()
    assert "Traceback" not in box.text()
    box.reject()


@pytest.mark.parametrize(
    ("language", "name"),
    [("python", "code.py"), ("py", "code.py"), ("cpp", "code.cpp"), ("c", "code.c"), ("rust", "code.rs"),
    ("dockerfile", "Dockerfile"),
     ("makefile", "Makefile"), ("js", "code.js"), ("javascript", "code.js"), ("bash", "code.bash"),
     ("json", "code.json"),
     ("", "code.txt"), ("no such", "code.txt"), ("html", "code.html"), ("../../evil", "code.txt")],
)  # fmt: skip
def test_the_proposed_name_fits_the_language(language: str, name: str) -> None:
    assert file_name(language) == name


def test_text_that_is_not_unicode_is_refused_in_a_sentence(tmp_path: Path) -> None:
    assert "could not be saved" in write_code(tmp_path / "a.txt", "\ud800")
    assert write_code(tmp_path / "b.txt", "é\n漢") == ""
    assert (tmp_path / "b.txt").read_bytes() == "é\n漢\n".encode()


def test_every_button_has_a_name(show: Show) -> None:
    view, _ = show([MessageItem(1, "assistant", "```\nx\n```\n")])
    row = code_row(view)
    names = [button.accessibleName() for button in (row.wrap, row.save, row.button)]
    assert names == ["Wrap long lines", "Save code as a file", "Copy code"]


def test_buttons_of_code_higher_than_the_screen_stay_in_sight_and_act_on_all_of_it(
    show: Show, qtbot: QtBot
) -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(900))
    view, _ = show([MessageItem(1, "assistant", f"Words\n\n```python\n{code}\n```\n"), *FILLER])
    screen = view.viewport().rect()
    view.scrolling.to_message(1)
    qtbot.waitUntil(view.settled)
    bar = view.verticalScrollBar()
    parts = view.messages.block_rows(next(row for row in view.messages.layout.rows if row.kind == "code"))
    assert len(parts) > 1
    end = view.messages.layout.top(parts[-1]) + parts[-1].height
    seen = set()
    while bar.value() < end - 2 * screen.height():
        bar.setValue(bar.value() + screen.height() // 2)
        qtbot.waitUntil(view.settled)
        [shown] = [w for w in view.pool.widgets() if isinstance(w, CodeRow) and buttons_seen(w)]
        corner = shown.buttons.mapTo(view.viewport(), QPoint())
        assert shown.row is not None
        assert shown.row.first or corner.y() == 2 or shown.geometry().bottom() < shown.buttons.height() + 4
        seen.add(shown.row.index)
    assert len(seen) > 1
    QTest.mouseClick(shown.button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == code
    QTest.mouseClick(shown.wrap, Qt.MouseButton.LeftButton)
    assert all(part.wrapped for part in parts)


def buttons_seen(row: CodeRow) -> bool:
    return row.buttons.isVisible() and not row.buttons.visibleRegion().isEmpty()


def test_buttons_are_in_the_head_where_that_is_on_the_screen(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "```python\nx = 1\n```\n"), *FILLER])
    view.scrolling.to_message(1)
    qtbot.waitUntil(view.settled)
    row = code_row(view)
    assert row.buttons.y() == row.gap + 2
    assert view.verticalScrollBar().maximum() > row.geometry().bottom()
    view.verticalScrollBar().setValue(row.geometry().bottom() - 10)
    assert row.buttons.geometry().bottom() < row.height()
    assert row.buttons.y() > row.gap + 2
