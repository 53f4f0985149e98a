"""Buttons with a menu: pressed by a click, a key or a screen reader, they open it and do not wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.widgets.menu_button import IconMenuButton, MenuButton

pytestmark = pytest.mark.gui


@pytest.fixture
def button(qtbot: QtBot) -> Iterator[MenuButton]:
    window = QWidget()
    qtbot.addWidget(window)
    made = MenuButton()
    made.setText("Choose")
    menu = QMenu(made)
    menu.addAction("Larch")
    made.setMenu(menu)
    QVBoxLayout(window).addWidget(made)
    window.show()
    yield made
    window.close()


def test_a_screen_readers_press_opens_the_menu_and_returns(button: MenuButton) -> None:
    button.click()  # what Qt's accessible "Press" does
    assert button.menu().isVisible()
    button.menu().actions()[0].trigger()  # what the accessible "Press" of an entry does
    assert not button.menu().isVisible()


def test_a_click_opens_it_and_a_second_one_closes_it(button: MenuButton) -> None:
    QTest.mousePress(button, Qt.MouseButton.LeftButton)
    menu = button.menu()
    assert (menu.isVisible(), button.isDown()) == (True, True)
    here = button.mapToGlobal(button.rect().center())
    left = Qt.MouseButton.LeftButton
    press = QMouseEvent(
        QEvent.Type.MouseButtonPress, QPointF(menu.mapFromGlobal(here)), QPointF(here), left, left,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    QApplication.sendEvent(menu, press)
    assert menu.testAttribute(Qt.WidgetAttribute.WA_NoMouseReplay)  # or else the button had the press again
    assert (menu.isVisible(), button.isDown()) == (False, False)


def test_the_menu_stands_below_the_button_or_above_it(button: MenuButton) -> None:
    button.showMenu()
    assert button.menu().pos().y() >= button.mapToGlobal(QPoint(0, button.height())).y()
    button.menu().close()
    screen = button.screen().availableGeometry()
    button.window().move(20, screen.bottom() - button.window().height())
    button.showMenu()
    bottom = button.menu().geometry().bottom()
    assert bottom < button.mapToGlobal(QPoint()).y()
    button.menu().close()


def test_a_screen_reader_says_that_there_is_a_menu(qtbot: QtBot) -> None:
    button = IconMenuButton("more", "Presets")
    qtbot.addWidget(button)
    with pytest.raises(AttributeError):
        button.menu()
    button.setMenu(QMenu(button))
    assert button.accessibleDescription() == "Presets. Opens a menu."
    button.setToolTip("Other presets")
    assert (button.toolTip(), button.accessibleDescription()) == (
        "Other presets",
        "Other presets. Opens a menu.",
    )
