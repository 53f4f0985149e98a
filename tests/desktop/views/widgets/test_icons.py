"""Icons of buttons: as sharp as the screen."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSize

from desktop.views.widgets.icons import IconButton

pytestmark = pytest.mark.gui


def test_a_button_follows_its_window_to_a_screen_of_another_pixel_density(qtbot, monkeypatch) -> None:
    button = IconButton("reset", "Reset")
    qtbot.addWidget(button)
    with qtbot.waitExposed(button):
        button.show()
    side = button.iconSize().width()
    assert button.icon().availableSizes() == [QSize(side, side)]
    monkeypatch.setattr(IconButton, "devicePixelRatioF", lambda _: 2.0)
    button.repaint()
    assert button.iconSize().width() == side
    assert button.icon().availableSizes() == [QSize(2 * side, 2 * side)]
