"""LaTeX -> a picture with its baseline.

Waits for another process (3 to 30 ms a formula): not for the GUI thread.
"""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtGui import QImage

from desktop.services.formulas.formula_images import formula_image

__all__ = ["Picture", "render_math"]


class Picture(NamedTuple):
    """`image` is drawn `width` by `height` logical pixels large, `descent` of them below the baseline."""

    image: QImage
    width: int
    height: int
    descent: int


def render_math(latex: str, size: float, colour: str, display: bool, ratio: float) -> Picture | None:
    """`latex` with letters of `size` logical pixels in `colour` ("#rrggbb"), drawn for `ratio` device pixels
    per logical pixel; None if it cannot be drawn.
    """
    drawn = formula_image(latex, size, colour, display, ratio)
    if drawn is None:
        return None
    wide, high = drawn.device_width, drawn.device_height
    image = QImage(drawn.pixels, wide, high, QImage.Format.Format_ARGB32_Premultiplied)
    return Picture(image.copy(), drawn.width, drawn.height, drawn.descent)
