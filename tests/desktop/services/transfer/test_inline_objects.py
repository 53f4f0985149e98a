"""Printed formulas: every shape is drawn, inside the place that the text leaves for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QRect
from PySide6.QtGui import QColor, QFont, QGuiApplication, QImage, QPainter, QTextDocument

from desktop.blocks.spans import Span, SpanKind
from desktop.services.transfer.pdf.inline_objects import FormulaHandler, put_inlays
from desktop.store.transfer.exporters.print import FORMULA

SCALE = 4


@pytest.fixture
def handler() -> Iterator[FormulaHandler]:
    found = FormulaHandler()  # documents do not own it
    yield found
    found.deleteLater()


def drawn(handler: FormulaHandler, latex: str, width: float = 500.0) -> tuple[QImage, QRect]:
    """A formula that stands alone in a line, and the place of its ink."""
    document = QTextDocument()
    document.setDocumentMargin(0)
    document.setDefaultFont(QFont("DejaVu Sans", 20))
    document.setHtml(f'<p><img src="{FORMULA}0"></p>')
    put_inlays(document, (Span(SpanKind.MATH, f"${latex}$", latex),), handler, width, 500.0)
    size = document.size() * SCALE
    image = QImage(round(size.width()), round(size.height()), QImage.Format.Format_Grayscale8)
    image.fill(QColor("white"))
    painter = QPainter(image)
    painter.scale(SCALE, SCALE)
    document.drawContents(painter)
    painter.end()
    inked = [(x, y) for y in range(image.height()) for x in range(image.width()) if dark(image, x, y)]
    across, down = [x for x, _ in inked], [y for _, y in inked]
    return image, QRect(min(across), min(down), max(across) - min(across) + 1, max(down) - min(down) + 1)


def dark(image: QImage, x: int, y: int) -> bool:
    return image.pixelColor(x, y).lightness() < 128


def share_of_row(image: QImage, place: QRect, y: int) -> float:
    return sum(dark(image, x, y) for x in range(place.left(), place.right() + 1)) / place.width()


def share_of_column(image: QImage, place: QRect, x: int) -> float:
    return sum(dark(image, x, y) for y in range(place.top(), place.bottom() + 1)) / place.height()


def test_a_fraction_has_its_line_and_nothing_is_cut_off(qapp: QGuiApplication, handler) -> None:
    image, place = drawn(handler, r"\frac{a}{b}")
    full = [y for y in range(place.top(), place.bottom() + 1) if share_of_row(image, place, y) > 0.9]
    assert full
    assert 0.3 < (full[0] - place.top()) / place.height() < 0.7
    assert place.top() > 0
    assert place.bottom() < image.height() - 1


def test_a_box_is_a_line_around_its_content(qapp: QGuiApplication, handler) -> None:
    image, place = drawn(handler, r"\boxed{x}")
    for edge in (place.left() + 1, place.right() - 1):
        assert share_of_column(image, place, edge) > 0.9
    for edge in (place.top() + 1, place.bottom() - 1):
        assert share_of_row(image, place, edge) > 0.9
    middle = place.adjusted(12, 12, -12, -12)
    inked = sum(share_of_row(image, middle, y) for y in range(middle.top(), middle.bottom() + 1))
    assert 0.02 < inked / middle.height() < 0.5


def test_a_formula_is_drawn_as_small_as_the_page_is_wide(qapp: QGuiApplication, handler) -> None:
    _image, wide = drawn(handler, "x + y + z = a + b + c")
    _image, small = drawn(handler, "x + y + z = a + b + c", width=wide.width() / SCALE / 2)
    assert small.width() == pytest.approx(wide.width() / 2, rel=0.05)
    assert small.height() == pytest.approx(wide.height() / 2, rel=0.1)
