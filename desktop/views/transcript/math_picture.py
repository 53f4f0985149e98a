"""LaTeX -> a picture with its baseline, drawn as paths by ziamath and QtSvg. Slow (3 to 30 ms): not for the GUI's thread.

ziamath and its fonts (STIX Two Math) are imported at the first formula. What it cannot show is shown as source instead.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

__all__ = ["LONGEST", "Picture", "math_svg", "render_math"]

LONGEST = 4000
"""Characters of LaTeX that are tried at all."""
_lock = Lock()
_WIDEST, _HIGHEST, _DEEPEST = 8000.0, 4000.0, 40
_DROPPED = re.compile(r"\\(?:label|nonumber|notag)(?:\s*\{[^{}]*\})?(?![A-Za-z])")
_WORDS = re.compile(r"\\text\{([^{}$]*)\$([^{}$]*)\$([^{}$]*)\}")
_TAG = re.compile(r"\\tag\*?\s*\{([^{}]*)\}")
_UNKNOWN = re.compile(
    r"\\(?:newcommand|renewcommand|providecommand|def|let|require|usepackage|includegraphics|unicode|href|url|cancel|bcancel|xcancel|ce|cite|ref"
    r"|input|rule|sideset|hline\s*\\hline|verb)(?![A-Za-z])"
)
_PLAIN = re.compile(r"\\(begin|end)\{(?:equation|displaymath|math)\*?\}")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:align|flalign|eqnarray|split|alignedat|alignat)\*?\}(\{\d+\})?")
_GATHERED = re.compile(r"\\(begin|end)\{(?:gather|multline|gathered)\*?\}")


@dataclass(frozen=True)
class Picture:
    """`image` is to be drawn `width` by `height` (logical pixels), `descent` of them below the baseline."""

    image: QImage
    width: int
    height: int
    descent: int


def render_math(latex: str, size: float, colour: str, display: bool, ratio: float) -> Picture | None:
    """`latex` with letters of `size` logical pixels in `colour` ("#rrggbb"), sharp at `ratio` device pixels each; None if it cannot."""
    svg = math_svg(latex, size, display)
    box = re.search(r'viewBox="(-?[\d.]+) (-?[\d.]+) (-?[\d.]+) (-?[\d.]+)"', svg) if svg else None
    if box is None:
        return None
    left, top, wide, high = (float(number) for number in box.groups())
    if not (0 < wide <= _WIDEST and 0 < high <= _HIGHEST):
        return None
    ascent, descent = math.ceil(max(0.0, -top)), math.ceil(max(0.0, top + high))
    width, height = math.ceil(wide), max(1, ascent + descent)
    renderer = QSvgRenderer(QByteArray(svg.replace("<svg ", f'<svg fill="{colour}" stroke="{colour}" stroke-width="0" ', 1).encode()))
    if not renderer.isValid():
        return None
    renderer.setViewBox(QRectF(left, -ascent, width, height))
    image = QImage(max(1, round(width * ratio)), max(1, round(height * ratio)), QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter)
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
    painter.fillRect(image.rect(), colour)
    painter.end()
    return Picture(image, width, height, descent)


def math_svg(latex: str, size: float, display: bool) -> str:
    """The formula as SVG of plain paths whose y axis begins at the baseline; empty when something in it is not known."""
    text = _normal(latex)
    if not text or len(text) > LONGEST or _UNKNOWN.search(text) or _depth(text) > _DEEPEST:
        return ""
    ziamath, errors = _library()
    with _lock:
        return _svg(ziamath, errors, text, size, display)


def _svg(ziamath: Any, errors: tuple[type[BaseException], ...], text: str, size: float, display: bool) -> str:
    try:
        formula = ziamath.Latex(text, size=size, inline=not display)
        words = "".join(formula.element.itertext()) if hasattr(formula.element, "itertext") else str(formula.element)
        if "\\" in words or not _has_glyphs(formula.font, text):
            return ""
        return str(formula.svg())
    except errors:
        return ""


@cache
def _library() -> tuple[Any, tuple[type[BaseException], ...]]:
    """ziamath, and what it and latex2mathml raise for LaTeX that they do not know."""
    import latex2mathml.exceptions
    import ziamath

    ziamath.config.svg2 = False  # QtSvg draws no <use> of symbols
    ziamath.config.precision = 3
    own = [kind for kind in vars(latex2mathml.exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    usual = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, SyntaxError, AssertionError, NameError)
    return ziamath, (*own, *usual)


def _has_glyphs(font: Any, text: str) -> bool:
    """Whether the font has every character that is written as itself: a formula in boxes would say nothing."""
    return all(ord(letter) < 0x250 or font.glyphindex(letter) != 0 for letter in set(text) if not letter.isspace())


def _depth(text: str) -> int:
    deepest = now = 0
    for letter in text:
        now += (letter == "{") - (letter == "}")
        deepest = max(deepest, now)
    return deepest + text.count("\\left")


def _normal(latex: str) -> str:
    """LaTeX with environments and commands that the library has under another name, or not, put in its words."""
    text = _TAG.sub(r"\\qquad(\1)", _DROPPED.sub("", latex.strip()))
    text = _WORDS.sub(r"\\text{\1}\2\\text{\3}", text).replace("\\operatorname*", "\\operatorname")
    text = _PLAIN.sub("", text)
    text = _ALIGNED.sub(lambda found: f"\\{found[1]}{{aligned}}", text)
    text = _GATHERED.sub(lambda found: f"\\{found[1]}{{gathered}}", text).strip()
    text = text.removesuffix("\\\\").rstrip()
    if "\\begin{" not in text and "\\substack" not in text and ("\\\\" in text or re.search(r"(?<!\\)&", text)):
        name = "aligned" if re.search(r"(?<!\\)&", text) else "gathered"
        text = f"\\begin{{{name}}}{text}\\end{{{name}}}"
    return text
