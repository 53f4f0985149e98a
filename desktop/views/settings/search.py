"""Finds settings in the inspector, marks matches, and scrolls to a row."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel, QScrollArea, QWidget

from desktop.views.settings.flash import Flash

__all__ = ["first_control", "marked", "query_words", "show_in"]

_AROUND = 40


def query_words(query: str) -> list[str]:
    """The words of a query, in lower case."""
    return query.lower().split()


def marked(text: str, words: Sequence[str], palette: QPalette) -> str:
    """`text` as rich text with the words bold and in the accent colour; "" if it contains none of them."""
    found = _places(text, words)
    if not found:
        return ""
    colour = palette.color(QPalette.ColorRole.Link).name()
    made, end = [], 0
    for start, after in found:
        made.append(html.escape(text[end:start]))
        made.append(
            f'<span style="color:{colour}; font-weight:600; '
            f'text-decoration:underline">{html.escape(text[start:after])}</span>'
        )
        end = after
    return "".join([*made, html.escape(text[end:])])


def _places(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return [found.span() for found in re.finditer(pattern, text, re.IGNORECASE)] if pattern else []


def excerpt(text: str, words: Sequence[str], palette: QPalette) -> str:
    """The part of a longer text around the first match, with all words marked; "" if there is no match."""
    found = _places(text, words)
    if not found:
        return ""
    start = text.rfind(" ", 0, max(0, found[0][0] - _AROUND)) + 1 if found[0][0] > _AROUND else 0
    end = text.find(" ", min(len(text), found[0][1] + _AROUND))
    piece = text[start : end if end > 0 else len(text)]
    return ("… " if start else "") + marked(piece, words, palette) + (" …" if end > 0 else "")


def first_control(widget: QWidget) -> QWidget | None:
    """The first control in `widget` that can have the focus."""
    focusable = Qt.FocusPolicy.TabFocus.value
    candidates = [widget, *widget.findChildren(QWidget)]
    usable = (
        each
        for each in candidates
        if each.focusPolicy().value & focusable and each.isVisible() and each.isEnabled()
    )
    return next((each for each in usable if not isinstance(each, QLabel)), None)


def show_in(scroll: QScrollArea, widget: QWidget, control: QWidget | None) -> None:
    """Scroll to `widget`, flash it, and focus `control`."""
    # What was just unfolded has its place now.
    QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
    body = scroll.widget()
    place = widget.mapTo(body, widget.rect().topLeft()) if body is not None else widget.pos()
    bar = scroll.verticalScrollBar()
    bar.setValue(max(0, place.y() - scroll.viewport().height() // 4))
    if control is not None:
        control.setFocus(Qt.FocusReason.ShortcutFocusReason)
    Flash(widget)
