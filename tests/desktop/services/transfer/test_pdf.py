"""Printed chats: formulas on the baseline, page breaks, outline, page numbers, light colours, complete files
or none.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader
from PySide6.QtCore import QFile, QIODevice
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter, QPalette, QPdfWriter

from desktop.services.transfer.pdf.export import page_size, write_pdf
from desktop.services.transfer.pdf.paginator import BAR_ROOM, PAD_X, Paginator
from desktop.store.database.errors import StoreError
from desktop.store.transfer.exporters.print import (
    CODE,
    LIST_ITEMS,
    TABLE_ROWS,
    Piece,
    first_words,
    print_pieces,
)
from desktop.store.transfer.records import ConversationRecord, MessageRecord

WORDS = "word " * 30
REPLY = (
    f"## A heading\n\n{WORDS}\n\nSo:\n\n- one\n- two `code`\n\n```python\nx = 1\n```\n\n> "
    "quoted\n\n|a|b|\n|-|-|\n|1|2|\n"
)


def chat(*texts: str, title: str = "The title") -> ConversationRecord:
    """User and assistant alternate."""
    rows = [
        MessageRecord(str(n), str(n - 1) if n else None, ("user", "assistant")[n % 2], text, 1.7e9)
        for n, text in enumerate(texts)
    ]
    return ConversationRecord("inglenook", "k", title, 1.7e9, messages=tuple(rows))


def printed(path: Path, *texts: str, title: str = "The title") -> PdfReader:
    list(write_pdf([chat(*texts, title=title)], path, page_size("DE")))
    return PdfReader(path)


def lines(reader: PdfReader, page: int) -> list[str]:
    return [line.strip() for line in reader.pages[page].extract_text().splitlines() if line.strip()]


@pytest.mark.parametrize("count", [5, pytest.param(14, marks=pytest.mark.slow)])
def test_page_numbers_outline_and_what_stays_together(
    qapp: QGuiApplication, tmp_path: Path, count: int
) -> None:
    asked = [f"Question {number} about a thing?" for number in range(count)]
    texts = [text for question in asked for text in (question, REPLY)]
    reader = printed(tmp_path / "a.pdf", *texts)
    total = len(reader.pages)
    assert total > count // 4
    for page in range(total):
        found = lines(reader, page)
        assert f"{page + 1} of {total}" in found
        assert found.count("The title") == 1  # at the head of the first page, above the others
        assert found[-1] not in ("A heading", "So:")
        assert not found[-1].startswith(("You", "Assistant"))
    titles = [entry.title for entry in reader.outline]
    assert titles == asked
    pages = [reader.get_destination_page_number(entry) for entry in reader.outline]
    assert all(question in " ".join(lines(reader, page)) for question, page in zip(asked, pages, strict=True))
    assert reader.metadata is not None
    assert (reader.metadata.title, reader.metadata.creator) == ("The title", "Inglenook")
    assert "2023-11-1" in str(reader.metadata.subject)
    assert reader.metadata.creation_date is not None


def test_several_chats_in_one_file_begin_on_pages_of_their_own(qapp: QGuiApplication, tmp_path: Path) -> None:
    chats = [
        chat("A first question?", "An answer.", title="Apples"),
        chat("A second question?", f"{WORDS}\n\n" * 40, title="Pears"),
        chat("A third question?", title="Plums"),
    ]
    shares = [
        progress.done / progress.total
        for progress in write_pdf(chats, tmp_path / "a.pdf", page_size("DE"), len(chats))
    ]
    assert shares == sorted(shares)
    assert shares[-1] <= 1
    reader = PdfReader(tmp_path / "a.pdf")
    total = len(reader.pages)
    assert total > 3
    found = [(entry.title, reader.get_destination_page_number(entry)) for entry in reader.outline]
    assert found == [
        ("Apples", 0),
        ("A first question?", 0),
        ("Pears", 1),
        ("A second question?", 1),
        ("Plums", total - 1),
        ("A third question?", total - 1),
    ]
    for page in range(total):  # one title a page: that of its own chat
        titles = [line for line in lines(reader, page) if line in ("Apples", "Pears", "Plums")]
        assert titles == ["Apples" if page == 0 else "Plums" if page == total - 1 else "Pears"]
        assert f"{page + 1} of {total}" in lines(reader, page)
    assert reader.metadata is not None
    assert (reader.metadata.title, reader.metadata.subject) == ("Apples", None)


def drawn(reader: PdfReader) -> tuple[list[float], dict[str, float]]:
    """Heights of the points of all curves on the first page, and the baselines of its words, in points from
    below.
    """
    curves: list[float] = []
    words: dict[str, float] = {}

    def path(operator: bytes, operands: Any, matrix: Sequence[float], _text: Any) -> None:
        if operator == b"c":
            curves.extend(float(y) * matrix[3] + matrix[5] for y in operands[1::2])

    def text(words_: str, matrix: Sequence[float], place: Sequence[float], *_: Any) -> None:
        for word in words_.split():
            words[word] = place[5] * matrix[3] + matrix[5]

    reader.pages[0].extract_text(visitor_operand_before=path, visitor_text=text)
    return curves, words


def test_formulas_are_drawn_on_the_baseline_and_unknown_ones_stay_text(
    qapp: QGuiApplication, tmp_path: Path
) -> None:
    curves, words = drawn(printed(tmp_path / "a.pdf", "Q", "before $x$ behind"))
    assert len(curves) > 12
    assert abs(min(curves) - words["before"]) < 0.8
    curves, words = drawn(printed(tmp_path / "a.pdf", "Q", "before $\\frac{a}{b}$ behind"))
    assert min(curves) < words["before"] - 3 < max(curves)
    first = "Cost $5 or $6, \\(\\foo{x}\\) and"
    reader = printed(
        tmp_path / "a.pdf", "Q", first + "\n\n$$\n\\sum_i x_i\n$$\n\n$$\\bar\\nothing$$\n\n|a|\n|-|\n|$y_1$|"
    )
    text = reader.pages[0].extract_text()
    assert first in " ".join(text.split())
    assert "\t" not in text
    assert "$$\\bar\\nothing$$" in text
    assert "sum" not in text
    assert "y_1" not in text


def test_nothing_exceeds_the_page(qapp: QGuiApplication, tmp_path: Path) -> None:
    wide = "|" + "a heading|" * 40 + "\n|" + "-|" * 40 + "\n|" + "some-long-word|" * 40
    sums = "$$" + " + ".join(f"a_{{{n}}}" for n in range(90)) + "$$"
    reply = f"{'w' * 900}\n\n```\n{'c' * 900}\n```\n\n{wide}\n\n{sums}\n\n> - > {'q' * 500}\n\n`{'i' * 500}`"
    file = QFile(str(tmp_path / "a.pdf"))
    assert file.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(file)
    writer.setResolution(96)
    painter = QPainter(writer)
    paginator = Paginator(writer, painter, "T")
    for piece in print_pieces(chat("u" * 900, reply, title="t" * 900)):
        laid = paginator.lay(piece)
        assert laid.left + laid.scale * laid.document.size().width() <= writer.width() + 1, piece.html[:80]
    painter.end()


@pytest.mark.parametrize(
    ("piece", "left"),
    [
        (Piece("<p>plain</p>"), 0.0), (Piece("<p>quoted</p>", bar=True), BAR_ROOM),
        (Piece('<p dir="rtl">נאמר</p>', bar=True), 0.0), (Piece('<p dir="rtl">רגיל</p>'), 0.0),
        (Piece('<p dir="rtl">קוד</p>', ground="#eee"), PAD_X),
    ],
)  # fmt: skip
def test_text_leaves_room_for_the_line_on_the_side_where_it_is(
    qapp: QGuiApplication, tmp_path: Path, piece: Piece, left: float
) -> None:
    writer = QPdfWriter(str(tmp_path / "a.pdf"))
    writer.setResolution(96)
    painter = QPainter(writer)
    laid = Paginator(writer, painter, "T").lay(piece)
    painter.end()
    assert laid.left == left


def test_long_lists_and_tables_are_complete_and_continued(qapp: QGuiApplication, tmp_path: Path) -> None:
    rows, items = 2 * TABLE_ROWS + 3, LIST_ITEMS + 5
    table, entries = (
        "".join(f"|row{n}|\n" for n in range(rows)),
        "".join(f"{n + 1}. item{n}\n" for n in range(items)),
    )
    reader = printed(tmp_path / "a.pdf", "Q", f"|head|\n|-|\n{table}\nand\n\n{entries}")
    text = [line for page in range(len(reader.pages)) for line in lines(reader, page)]
    assert [line for line in text if line.startswith("row")] == [f"row{n}" for n in range(rows)]
    assert text.count("head") == 3
    joined = "".join("".join(text).split())
    assert all(f"{n + 1}.item{n}" in joined for n in range(items))


@pytest.mark.parametrize("form", ["```\n{}\n```", "{}", "> {}", "|head|\n|-|\n{}"])
def test_lines_follow_each_other_down_every_page(qapp: QGuiApplication, tmp_path: Path, form: str) -> None:
    """Also those of a block that goes on, on the next page: none lies outside it, or on another."""
    rows = [f"line{number}" for number in range(150)]
    between = {"{}": "\n\n", "> {}": "\n>\n> "}.get(form, "\n")
    text = between.join(f"|{row}|" if "head" in form else row for row in rows)
    reader, found = printed(tmp_path / "a.pdf", "Q", form.format(text)), list[str]()
    assert len(reader.pages) > 2
    for page in reader.pages:
        words: dict[str, float] = {}

        def text_at(text: str, matrix: Sequence[float], place: Sequence[float], *_: Any) -> None:
            for word in text.split():
                if word.startswith("line"):
                    words[word] = place[5] * matrix[3] + matrix[5]  # noqa: B023 (called before the next page)

        page.extract_text(visitor_text=text_at)
        heights = list(words.values())
        assert all(above > below + 5 for above, below in itertools.pairwise(heights))
        assert 0 < heights[-1] < heights[0] < float(page.mediabox.height)
        found += words
    assert found == rows


def test_paper_is_light_in_a_dark_window(qapp: QGuiApplication, tmp_path: Path) -> None:
    def content() -> list[bytes]:
        return [
            page.get_contents().get_data()
            for page in printed(tmp_path / "a.pdf", "Q", REPLY + "\n1. one $x$\n2. two").pages
        ]

    light, before = content(), qapp.palette()
    dark = QPalette(before)
    for role in (QPalette.ColorRole.Text, QPalette.ColorRole.WindowText):
        dark.setColor(role, QColor("white"))
    qapp.setPalette(dark)
    try:
        assert content() == light
    finally:
        qapp.setPalette(before)


def test_odd_text_is_printed(qapp: QGuiApplication, tmp_path: Path) -> None:
    odd = "\ud800 \x00 \ufffc \ue000 مرحبا 日本 😀\n<img src='formula:0'> ![p](formula:1) "
    odd += "![p](data:image/png;base64,AAAA)\n$\\frac{1}{$\n\n$$\n"
    reader = printed(tmp_path / "a.pdf", odd, odd, "", "", title="\ud800 \u202e مرحبا")
    assert len(reader.outline) == 2
    assert "unreadable picture" in " ".join(lines(reader, 0))
    assert len(printed(tmp_path / "b.pdf").pages) == 1


def test_first_words() -> None:
    assert first_words("Two\n lines") == "Two lines"
    assert first_words("word " * 40) == "word " * 11 + "word…"
    assert first_words("w" * 100) == "w" * 63 + "…"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_a_full_disk_leaves_the_existing_file(qapp: QGuiApplication, tmp_path: Path, share: float) -> None:
    import resource

    printed(tmp_path / "b.pdf", "Q", REPLY * 4)
    (tmp_path / "a.pdf").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * (tmp_path / "b.pdf").stat().st_size), limits[1]))
    try:
        with pytest.raises(StoreError, match="Choose another place, or free some disk space"):
            printed(tmp_path / "a.pdf", "Q", REPLY * 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "a.pdf").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a.pdf", "b.pdf"}


def test_addresses_are_links_and_code_in_a_list_has_a_background(
    qapp: QGuiApplication, tmp_path: Path
) -> None:
    code = "\n".join(f"   row_{n} = {n}" for n in range(80))
    reply = (
        f"See https://a.org/x and www.b.org[^1].\n\n1. first\n\n   ```python\n{code}\n   ```\n\n2. "
        "last\n\n[^1]: A note.\n"
    )
    reader = printed(tmp_path / "a.pdf", "Hi", reply)
    found = [note.get_object()["/A"]["/URI"] for page in reader.pages for note in page.get("/Annots") or []]
    assert found == ["https://a.org/x", "http://www.b.org"]
    text = "\n".join(page.extract_text() for page in reader.pages)
    assert [n for n in range(80) if f"row_{n} " not in text] == []
    assert "[^1]" not in text
    assert "A note." in " ".join(text.split())
    assert len(reader.pages) == 2


@pytest.mark.skipif(
    shutil.which("pdftoppm") is None, reason="pdftoppm is not installed: pages are not looked at"
)
def test_the_background_of_code_in_a_list_is_visible(qapp: QGuiApplication, tmp_path: Path) -> None:
    printed(tmp_path / "a.pdf", "Hi", "1. first\n\n   ```\n   x = 1\n   ```\n\n2. last\n")
    subprocess.run(
        ["pdftoppm", "-r", "50", "-png", "-singlefile", "a.pdf", "a"], cwd=tmp_path, check=True, timeout=60
    )
    image = QImage(str(tmp_path / "a.png"))
    grounds = [
        y for y in range(image.height()) if image.pixelColor(image.width() * 3 // 4, y) == QColor(CODE)
    ]
    assert 10 < len(grounds) < 40  # one line of code with its room
    assert grounds == list(range(grounds[0], grounds[-1] + 1))
