"""Formulas and pictures in printed text: formulas are drawn as paths on the baseline, or else as LaTeX."""

from __future__ import annotations

import base64
import binascii
import math
import re
from functools import lru_cache
from xml.etree.ElementTree import Element, fromstring

from PySide6.QtCore import QRect, QRectF, QSizeF, Qt, QUrl
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QImage,
    QPainter,
    QPainterPath,
    QPainterPathStroker,
    QPyTextObject,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextImageFormat,
)

from desktop.blocks.latex import math_svg
from desktop.blocks.spans import Span, SpanKind
from desktop.services.formulas.rich_text import formula_colour, formula_size, fragments, set_descent
from desktop.store.transfer.exporters.print import FORMULA
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["FormulaHandler", "put_inlays"]

_KIND = QTextFormat.ObjectTypes.UserObject.value + 1
_KEY = QTextFormat.Property.UserProperty.value + 1
_STEP = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_BETWEEN = 4.0
"""Pixels between lines with formulas."""
_MONO = ["DejaVu Sans Mono", "Menlo", "Consolas", "monospace"]


@dataclass(frozen=True)
class _Formula:
    """Shapes with their colours, relative to the left end of the baseline, and their extent in pixels."""

    shapes: list[tuple[QPainterPath, QColor]]
    width: float
    ascent: float
    descent: float


@lru_cache(maxsize=400)
def _formula(latex: str, size: float, colour: str, display: bool) -> _Formula | None:
    """The formula as shapes. Not drawn by QtSvg, which in a PDF strokes in black what has no stroke."""
    svg = math_svg(latex, size, display)
    if not svg:
        return None
    root = fromstring(svg)
    left, top, width, height = (float(number) for number in root.attrib["viewBox"].split())
    if width <= 0 or height <= 0:
        return None
    shapes: list[tuple[QPainterPath, QColor]] = []
    for element in root.iter():
        given = element.attrib.get("fill", "black")
        if given == "none" or "fill" not in element.attrib:  # a line
            given = element.attrib.get("stroke", given)
        found = _shape(element)
        if found is not None and given != "none":
            shapes.append((found.translated(-left, 0), formula_colour(given, colour)))
    return _Formula(shapes, width, max(0.0, -top), top + height) if shapes else None


def _shape(element: Element) -> QPainterPath | None:
    """The shape of an element that ziamath writes; None if it draws nothing."""
    kind, given = element.tag.rpartition("}")[2], element.attrib
    if kind == "path":
        path = _path(given.get("d", ""))
        return _outlined(path, given) if "stroke" in given and "fill" not in given else path
    if kind != "rect":
        return None
    path = QPainterPath()
    path.addRect(*(float(given.get(name, 0)) for name in ("x", "y", "width", "height")))
    return _outlined(path, given) if given.get("fill") == "none" else path


def _outlined(path: QPainterPath, given: dict[str, str]) -> QPainterPath:
    """The line along a path as a shape."""
    pen = QPainterPathStroker()
    pen.setWidth(float(given.get("stroke-width", 1)))
    pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
    return pen.createStroke(path)


def _path(words: str) -> QPainterPath:
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    for command, numbers in _STEP.findall(words):
        place = [float(number) for number in _NUMBER.findall(numbers)]
        if command == "M":
            path.moveTo(*place)
        elif command == "L":
            path.lineTo(*place)
        elif command == "Q":
            path.quadTo(*place)
        elif command == "C":
            path.cubicTo(*place)
        elif command == "Z":
            path.closeSubpath()
    return path


class FormulaHandler(QPyTextObject):
    """Draws the formulas of the documents that it is registered with."""

    def intrinsicSize(self, document: QTextDocument, position: int, shape: QTextFormat) -> QSizeF:
        found, share = _of(shape)
        return (
            QSizeF(found.width, found.ascent + max(0.0, found.descent)) * share
            if found is not None
            else QSizeF()
        )

    def drawObject(
        self,
        painter: QPainter,
        place: QRectF | QRect,
        document: QTextDocument,
        position: int,
        shape: QTextFormat,
    ) -> None:
        found, share = _of(shape)
        if found is None:
            return
        below = QFontMetrics(shape.toCharFormat().font()).descent() if found.descent > 0 else 0
        baseline = place.bottom() - below
        painter.save()
        painter.translate(place.left(), baseline)
        painter.scale(share, share)
        for path, colour in found.shapes:
            painter.fillPath(path, colour)
        painter.restore()


def _of(shape: QTextFormat) -> tuple[_Formula | None, float]:
    latex, size, colour, display, share = shape.property(_KEY)
    return _formula(latex, size, colour, display), share


def put_inlays(
    document: QTextDocument, formulas: tuple[Span, ...], handler: FormulaHandler, width: float, height: float
) -> None:
    """Put formulas in their places, and limit pictures to `width` by `height` pixels."""
    document.documentLayout().registerHandler(_KIND, handler)
    places: list[tuple[int, QTextImageFormat]] = []
    block = document.begin()
    while block.isValid():
        for start, length, shape in fragments(block):
            if shape.isImageFormat():  # adjacent equal images are one fragment
                places += [(start + n, shape.toImageFormat()) for n in range(length)]
        block = block.next()
    cursor = QTextCursor(document)
    for position, image in reversed(places):
        cursor.setPosition(position)
        cursor.setPosition(position + 1, QTextCursor.MoveMode.KeepAnchor)
        name = image.name()
        if name.startswith(FORMULA):
            _put_formula(cursor, image, formulas[int(name.removeprefix(FORMULA))], width)
        else:
            _put_picture(document, cursor, image, width, height)


def _put_formula(cursor: QTextCursor, around: QTextCharFormat, span: Span, width: float) -> None:
    font, display = around.font(), span.kind is SpanKind.DISPLAY
    size = formula_size(font)
    colour = around.foreground().color().name()
    found = _formula(span.content, size, colour, display)
    shape = QTextCharFormat()
    if found is None:
        shape.setFontFamilies(_MONO)
        shape.setFontPointSize(8.5)
        shape.setForeground(around.foreground())
        cursor.insertText(span.source.strip().replace("\n", "\u2028"), shape)
        return
    share = min(1.0, width / found.width)
    lines = QTextBlockFormat()  # proportional spacing would be too much for a tall line
    lines.setLineHeight(_BETWEEN, QTextBlockFormat.LineHeightTypes.LineDistanceHeight.value)
    cursor.mergeBlockFormat(lines)
    set_descent(shape, font, math.ceil(found.descent * share))
    shape.setObjectType(_KIND)
    shape.setProperty(_KEY, [span.content, size, colour, display, share])
    cursor.insertText("\ufffc", shape)


def _put_picture(
    document: QTextDocument, cursor: QTextCursor, shape: QTextImageFormat, width: float, height: float
) -> None:
    image = _decoded(shape.name())
    if image.isNull():
        cursor.insertText(_("(unreadable picture)"), QTextCharFormat())
        return
    name = f"picture:{cursor.selectionStart()}"
    document.addResource(QTextDocument.ResourceType.ImageResource.value, QUrl(name), image)
    share = min(1.0, width / image.width(), height / image.height())
    made = QTextImageFormat()
    made.setName(name)
    made.setWidth(image.width() * share)
    made.setHeight(image.height() * share)
    cursor.insertImage(made)


def _decoded(address: str) -> QImage:
    """The picture in a data URL; a null image for any other address."""
    kind, comma, data = address.partition(",")
    if not comma or not kind.startswith("data:image/") or not kind.endswith(";base64"):
        return QImage()
    try:
        return QImage.fromData(base64.b64decode(data, validate=False))
    except (binascii.Error, ValueError):
        return QImage()
