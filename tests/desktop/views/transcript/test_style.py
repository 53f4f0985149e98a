"""The style of the transcript follows the widget's font, the text size and the palette."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QColor, QFont, QPalette
from PySide6.QtWidgets import QApplication

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript.rows import RowKind
from desktop.views.transcript.style import COLUMN_WIDTH, TranscriptColours, make_style
from desktop.views.widgets import theme
from tests.desktop.views.transcript.conftest import Show


def palette(window: str, text: str, bubble: str) -> QPalette:
    """A palette of these colours."""
    made = QPalette()
    made.setColor(QPalette.ColorRole.Window, QColor(window))
    made.setColor(QPalette.ColorRole.WindowText, QColor(text))
    made.setColor(QPalette.ColorRole.AlternateBase, QColor(bubble))
    made.setColor(QPalette.ColorRole.Highlight, QColor("#3366ff"))
    return made


LIGHT = TranscriptColours.from_palette(palette("#ffffff", "#202020", "#e8e8e8"))
DARK = TranscriptColours.from_palette(palette("#202020", "#e8e8e8", "#383838"))


@pytest.mark.parametrize("percent", [80, 100, 200])
def test_sizes_follow_the_font_and_the_text_size(qapp: QApplication, percent: int) -> None:
    font = QFont(qapp.font())
    font.setPointSizeF(12)
    style = make_style(font, percent, LIGHT)
    size = 12 * percent / 100
    sizes = [each.pointSizeF() for each in (style.text_font, style.code_font, style.small_font)]
    assert sizes == pytest.approx([size * 1.1, size, size * 0.95])
    assert style.column == COLUMN_WIDTH * max(100, percent) // 100
    assert style.px(2.0) == 2 * style.em
    whole = make_style(font, 100, LIGHT)
    assert style.char_width == pytest.approx(whole.char_width * percent / 100, rel=0.2)
    assert 4 <= style.char_width < style.em


def test_a_font_in_pixels_has_a_usual_size(qapp: QApplication) -> None:
    font = QFont(qapp.font())
    font.setPixelSize(30)
    assert make_style(font, 100, LIGHT).code_font.pointSizeF() == 10.0


def test_colours_follow_the_palette() -> None:
    assert LIGHT.bubble == QColor("#e8e8e8")
    assert DARK.bubble == QColor("#383838")
    assert LIGHT.code.lightnessF() > 0.9
    assert DARK.code.lightnessF() < DARK.background.lightnessF()
    assert LIGHT.selection.alphaF() == pytest.approx(0.22, abs=0.01)
    assert DARK.selection.alphaF() == pytest.approx(0.32, abs=0.01)
    assert all(colour.lightnessF() < 0.5 for colour in (LIGHT.keyword, LIGHT.string, LIGHT.name))
    assert all(colour.lightnessF() > 0.5 for colour in (DARK.keyword, DARK.string, DARK.name))


def test_a_bubble_that_would_not_be_seen_takes_a_little_of_the_highlight() -> None:
    found = TranscriptColours.from_palette(palette("#ffffff", "#202020", "#fefefe")).bubble
    assert found.blueF() == pytest.approx(1.0, abs=0.01)
    assert found.redF() == pytest.approx(1 - 0.12 * 0.8, abs=0.01)


def test_code_is_stronger_in_high_contrast() -> None:
    usual = TranscriptColours.from_palette(palette("#ffffff", "#010101", "#eeeeee"))
    high = TranscriptColours.from_palette(palette("#ffffff", "#000000", "#eeeeee"))
    assert high.keyword.lightnessF() == pytest.approx(usual.keyword.lightnessF() * 0.6, abs=0.02)


@pytest.mark.parametrize("look", theme.LOOKS)
def test_boxes_have_an_outline_in_high_contrast(show: Show, look: str) -> None:
    view, _ = show(
        [MessageItem(1, "user", "Question"), MessageItem(2, "assistant", "```\ncode\n```", notice="Cut.")]
    )
    view.setPalette(theme.palette(theme.tokens(look)))
    view.flush()
    picture = view.viewport().grab().toImage()
    colours = TranscriptColours.from_palette(view.palette())
    for kind, row in ((RowKind.BUBBLE, 1), (RowKind.CODE, 2), (RowKind.NOTICE, 2)):
        widget = view.pool.widget(next(r for r in view.messages.rows_of(row) if r.kind is kind))
        assert widget is not None
        box = widget.box() if kind is not RowKind.NOTICE else widget.rect().adjusted(0, widget.gap, 0, 0)
        edge = widget.mapTo(view.viewport(), QPoint(int(box.left()), int(box.center().y())))
        beside = picture.pixelColor(edge + QPoint(3, 0))
        line = colours.outline if look.endswith("-contrast") else beside
        assert picture.pixelColor(edge).name() == line.name(), kind


def test_alerts_have_colours_of_their_own(qapp: QApplication) -> None:
    style = make_style(qapp.font(), 100, LIGHT)
    names = ["note", "tip", "important", "warning", "caution", ""]
    found = [style.alert_colour(name).name() for name in names]
    assert len(set(found)) == len(names)
    assert found[-1] == LIGHT.line.name()
    assert found[-2] == LIGHT.removed.name()
