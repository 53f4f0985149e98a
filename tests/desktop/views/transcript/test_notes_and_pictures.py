"""Footnotes, local pictures and right-to-left text: shown and followed, without any network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.services.formulas.rich_text import fragments
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.rendering.local_image import LARGEST, local_path, read_picture
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.row_widgets.text import TextRow
from tests.desktop.views.transcript.conftest import Show


def saved(path: Path, width: int = 400, height: int = 200) -> Path:
    image = QImage(width, height, QImage.Format.Format_RGB32)
    image.fill(QColor("#3366cc"))
    assert image.save(str(path))
    return path


def text_rows(view: TranscriptView) -> list[TextRow]:
    found = sorted(
        (row for row in view.pool.live if isinstance(view.pool.widget(row), TextRow)),
        key=lambda row: row.index,
    )
    return [widget for row in found if isinstance(widget := view.pool.widget(row), TextRow)]


def has_image(row: DocumentRow) -> bool:
    return any(shape.isImageFormat() for _, _, shape in fragments(row.document.begin()))


@pytest.mark.parametrize("form", ["path", "address", "angled"])
def test_a_local_picture_is_shown_in_the_width_of_the_column(
    show: Show, qtbot: QtBot, tmp_path: Path, form: str
) -> None:
    path = saved(tmp_path / "a picture.png" if form != "path" else tmp_path / "p.png", 2000, 400)
    address = {"path": str(path), "address": path.as_uri(), "angled": f"<{path}>"}[form]
    view, _ = show([MessageItem(1, "assistant", f"![a blue field]({address})")], 500, 400)
    [row] = text_rows(view)
    assert has_image(row)
    wide = row.document.size().width()
    assert wide <= row.width()
    assert row.height() < 200
    shot = view.grab().toImage()
    assert shot.pixelColor(view.width() // 2, row.y() + row.height() // 2).name() == "#3366cc"
    view.resize(300, 400)
    qtbot.waitUntil(view.settled)
    assert row.document.size().width() <= row.width() < wide
    row.select(0, 1)
    assert row.selected_text() == f"![a blue field]({address})"


def test_anything_but_a_local_picture_stays_a_link(show: Show, qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture", encoding="utf-8")
    (tmp_path / "folder.png").mkdir()
    names = [
        "https://example.org/x.png",
        "//server/x.png",
        f"{tmp_path}/text.png",
        f"{tmp_path}/folder.png",
        f"{tmp_path}/none.png",
        "rel/x.png",
    ]
    for name in names:
        view, _ = show([MessageItem(1, "assistant", f"See ![words]({name}).")], 500, 300)
        [row] = text_rows(view)
        assert not has_image(row)
        assert row.document.toPlainText() == "See words."


@pytest.mark.parametrize(
    ("address", "path"),
    [("/a/b.png", "/a/b.png"), ("file:///a/b%20c.PNG", "/a/b c.PNG"), ("file://localhost/a.jpg", "/a.jpg"),
    ("file://server/a.png", ""),
     ("//server/a.png", ""), ("\\\\server\\a.png", ""), ("/\\server/a.png", ""), ("a.png", ""),
     ("../a.png", ""), ("https://x/a.png", ""),
     ("/a/b.svg", ""), ("/dev/zero", ""), ("/etc/passwd", ""), ("", ""), ("data:image/png;base64,AAAA", ""),
     ("/a\0.png", ""),
     ("file:////server/a.png", "")],
)  # fmt: skip
def test_only_absolute_local_paths_are_local(address: str, path: str) -> None:
    assert local_path(address) == path


def test_only_ordinary_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    assert read_picture(str(pipe), 100, 1.0) is None, "a pipe would never end"
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    assert read_picture(str(large), 100, 1.0) is None
    disguised = tmp_path / "x.png"
    disguised.write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='https://example.org/x'/></svg>",
        encoding="utf-8",
    )
    assert read_picture(str(disguised), 100, 1.0) is None
    picture = read_picture(str(saved(tmp_path / "good.jpg")), 100, 2.0)
    assert picture is not None
    assert (picture.width, picture.height, picture.image.width()) == (100, 50, 200)


def test_a_footnote_number_leads_to_its_text_and_shows_it_in_the_tooltip(show: Show, qtbot: QtBot) -> None:
    text = "A claim[^n] here.\n\n" + "Words between.\n\n" * 60 + "[^n]: The *note* itself.\n"
    view, _ = show([MessageItem(1, "assistant", text)], 500, 300)
    view.verticalScrollBar().setValue(0)
    qtbot.waitUntil(view.settled)
    row = text_rows(view)[0]
    assert row.document.toPlainText() == "A claimn here."
    spot = next(
        QPoint(x, y)
        for x in range(0, row.width(), 2)
        for y in range(0, row.height(), 2)
        if row.link_at(QPoint(x, y)) == "footnote:n"
    )
    place = row.mapTo(view.viewport(), spot)
    QTest.mouseMove(view.viewport(), place)
    qtbot.waitUntil(lambda: view.viewport().toolTip() == "The *note* itself.")
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(view.settled)
    note = text_rows(view)[-1]
    assert note.document.toPlainText().endswith("The note itself.")
    assert view.viewport().rect().contains(note.geometry())
    assert not view.findChildren(QMessageBox)


def test_a_number_without_a_footnote_leads_nowhere(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "[^x]")], 500, 300)
    [row] = text_rows(view)
    place = row.mapTo(view.viewport(), QPoint(3, row.height() - 12))
    assert row.link_at(row.mapFrom(view.viewport(), place)) == "footnote:x"
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert not view.findChildren(QMessageBox)


def test_right_to_left_text_begins_at_the_right(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "Left.\n\nهذه فقرة\n\n> اقتباس\n\nשלום, mixed")], 500, 400)
    rows = text_rows(view)
    left = [row.document.begin().layout().lineAt(0).naturalTextRect().left() for row in rows]
    assert left[0] < 5
    assert all(start > 250 for start in left[1:])
    quote = rows[2]
    bar = view.grab().toImage()
    at = quote.mapTo(view, QPoint(0, quote.height() // 2 + 4))
    assert bar.pixelColor(at.x() + quote.width() - 2, at.y()) != bar.pixelColor(at.x() + 1, at.y())
    assert quote.origin() == QPointF(0, quote.gap)


def test_code_among_right_to_left_text_runs_from_the_left(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "```\n# تعليق\nx = 1\n```")], 500, 400)
    [code] = [
        w
        for w in view.pool.widgets()
        if isinstance(w, DocumentRow) and w.document.toPlainText().startswith("#")
    ]
    assert code.document.begin().layout().lineAt(0).naturalTextRect().left() < 5


def test_task_lists_have_boxes(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "- [ ] open\n- [x] done\n- plain\n")], 500, 400)
    block = text_rows(view)[0].document.begin()
    markers = []
    while block.isValid():
        markers.append(block.blockFormat().marker())
        block = block.next()
    kinds = type(markers[0])
    assert markers == [kinds.Unchecked, kinds.Unchecked, kinds.NoMarker]
    widget = text_rows(view)[0]
    assert widget.row_style is not None
    picture, tick = widget.grab().toImage(), widget.row_style.colours.link.rgb()
    inked = {
        y for y in range(picture.height()) for x in range(picture.width()) if picture.pixel(x, y) == tick
    }
    assert inked, "the done item has a tick"
    assert picture.height() / 4 < min(inked) <= max(inked) < picture.height() * 3 / 4, "and no other has"


@pytest.mark.parametrize("text", ["- word", "- [x] word", "- a\n  - word"])
def test_bullets_and_boxes_keep_their_distance_from_the_text(show: Show, text: str) -> None:
    view, _ = show([MessageItem(1, "assistant", text)], 500, 400)
    [widget] = text_rows(view)
    picture, block = widget.grab().toImage(), widget.document.lastBlock()
    area = widget.document.documentLayout().blockBoundingRect(block).translated(widget.origin()).toRect()
    assert widget.row_style is not None
    ground = widget.row_style.colours.background.rgb()
    inked = [
        x for x in range(picture.width())
        if any(picture.pixel(x, y) != ground for y in range(area.top(), min(area.bottom(), picture.height())))
    ]  # fmt: skip
    begins = round(block.layout().position().x() + block.layout().lineAt(0).x() + widget.origin().x())
    mark = [x for x in inked if x < begins]
    assert mark
    assert begins - max(mark) > widget.row_style.em / 4
