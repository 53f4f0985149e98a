"""Boxes with round corners, whose pixels do not depend on where on the screen they were painted."""

from __future__ import annotations

from functools import cache
from math import cos, pi, sin

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPolygonF

__all__ = ["paint_box"]

_CORNER_STEPS = 10
"""Straight lines a corner: up to a radius of 30 pixels, they are within a tenth of a pixel of the arc."""


def paint_box(painter: QPainter, box: QRectF, radius: float, ground: QColor, outline: QColor) -> None:
    """Paint a box with round corners, and its outline, a pixel wide, within it.

    The corners are straight lines. Qt divides a curve that begins above the painted area in another way:
    the pixels that scrolling moves would not be those of the box painted again.
    """
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ground)
    painter.drawPolygon(_rounded(box, radius))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if outline.alpha():
        ring = QPainterPath()
        ring.addPolygon(_rounded(box, radius))
        ring.addPolygon(_rounded(box.adjusted(1, 1, -1, -1), max(0.0, radius - 1)))
        painter.fillPath(ring, outline)


def _rounded(box: QRectF, radius: float) -> QPolygonF:
    inner = box.adjusted(radius, radius, -radius, -radius)
    centres = (inner.topRight(), inner.bottomRight(), inner.bottomLeft(), inner.topLeft())
    points = [centres[corner] + QPointF(radius * dx, radius * dy) for corner, dx, dy in _directions()]
    return QPolygonF([*points, points[0]])


@cache
def _directions() -> tuple[tuple[int, float, float], ...]:
    """Corners, counted clockwise from the top right one, and the directions from their centres to points."""
    angles = [
        (corner, (corner - 1 + step / _CORNER_STEPS) * pi / 2)
        for corner in range(4)
        for step in range(_CORNER_STEPS + 1)
    ]
    return tuple((corner, cos(angle), sin(angle)) for corner, angle in angles)
