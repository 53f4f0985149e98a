"""A change of text size or theme reaches every widget, and restyles none more often than needed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QFont
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QComboBox,
    QLabel,
    QStyle,
    QStyleOptionComboBox,
    QWidget,
)
from pytestqt.qtbot import QtBot

from desktop.settings import Appearance
from desktop.views.chat.context_meter import ContextBar
from desktop.views.widgets.collapsible import Group
from desktop.views.widgets.theme import tokens
from tests.desktop.hand import Hand


class Styled(QObject):
    """How often each widget was restyled; Qt reports each time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[int] = Counter()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.StyleChange and watched.isWidgetType():
            self.times[shiboken6.getCppPointer(watched)[0]] += 1
        return False


@pytest.fixture
def hand(qtbot: QtBot, tmp_path: Path) -> Iterator[Hand]:
    made = Hand(qtbot, tmp_path)
    made.load()
    made.say("Some words")
    qtbot.waitUntil(made.window.chat.transcript.settled)
    for group in made.window.inspector.findChildren(Group):
        group.open()
    yield made
    made.window.settings_controller.scale_text(0)
    made.close()


@pytest.fixture
def styled(hand: Hand, qapp: QApplication) -> Iterator[Styled]:
    watch = Styled()
    qapp.installEventFilter(watch)
    yield watch
    qapp.removeEventFilter(watch)


def arrow(box: QComboBox) -> int:
    """The width of a box's part with the arrow, as the style has it."""
    option = QStyleOptionComboBox()
    box.initStyleOption(option)
    part = QStyle.SubControl.SC_ComboBoxArrow
    return box.style().subControlRect(QStyle.ComplexControl.CC_ComboBox, option, part, box).width()


def test_a_step_of_the_text_size_restyles_no_widget_and_reaches_all(
    hand: Hand, styled: Styled, qapp: QApplication
) -> None:
    window, base = hand.window, qapp.font().pointSizeF()
    plain = [widget for widget in window.findChildren(QWidget) if widget.font().pointSizeF() == base]
    assert len(plain) > 500
    box, combo = window.inspector.findChildren(QCheckBox)[0], window.inspector.findChildren(QComboBox)[0]
    before = (box.style().pixelMetric(QStyle.PixelMetric.PM_IndicatorWidth, None, box), arrow(combo))
    assert before == (18, 22)
    for _ in range(5):
        window.settings_controller.scale_text(10)
    assert not styled.times
    left = [
        widget for widget in plain if shiboken6.isValid(widget) and widget.font().pointSizeF() != base * 1.5
    ]
    assert not left
    assert (box.style().pixelMetric(QStyle.PixelMetric.PM_IndicatorWidth, None, box), arrow(combo)) == (
        26,
        33,
    )


@pytest.mark.slow
def test_a_change_of_the_theme_styles_each_widget_once(
    hand: Hand, styled: Styled, qapp: QApplication
) -> None:
    hand.session.set_settings(Appearance(theme="dark"))
    assert len(styled.times) > 500
    assert set(styled.times.values()) == {1}
    label = next(each for each in hand.window.findChildren(QLabel) if each.property("tone") == "muted")
    assert label.palette().color(label.foregroundRole()).name() == tokens("dark")["muted"]
    hand.session.set_settings(Appearance(theme="light"))
    assert label.palette().color(label.foregroundRole()).name() == tokens("light")["muted"]
    hand.session.set_settings(Appearance())


def test_the_content_of_a_styled_widget_keeps_its_own_look(hand: Hand) -> None:
    group = hand.window.inspector.findChildren(Group)[0]
    assert group.header.font().weight() == QFont.Weight.DemiBold
    assert group.note.font().weight() == QFont.Weight.Normal
    bar = hand.window.findChildren(ContextBar)[0]
    picture = bar.grab().toImage()
    surface = tokens(hand.window.theme.scheme)["surface"]
    assert picture.pixelColor(picture.width() * 3 // 4, picture.height() // 2).name() == surface
