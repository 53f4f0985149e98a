"""A window stays on the screens: at the first start, and when one is unplugged or gets smaller."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect, QSettings
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMainWindow, QWidget

from desktop.views.layout.on_screen import OnScreen, placed
from desktop.views.layout.panes import Panes
from desktop.views.layout.places import recall_places

LAPTOP = QRect(0, 0, 1366, 728)
BESIDE = QRect(1366, 0, 2560, 1440)


@pytest.mark.parametrize(
    ("frame", "screens", "target"),
    [
        (QRect(100, 60, 900, 600), [LAPTOP], QRect(100, 60, 900, 600)),
        # most of it is off the screen, and it can be taken hold of: somebody put it there
        (QRect(1200, 60, 900, 600), [LAPTOP], QRect(1200, 60, 900, 600)),
        (QRect(-300, 500, 900, 600), [LAPTOP], QRect(-300, 500, 900, 600)),
        # larger than the only screen
        (QRect(50, 50, 2300, 1300), [LAPTOP], QRect(0, 0, 1366, 728)),
        (QRect(50, 20, 1000, 900), [LAPTOP], QRect(50, 0, 1000, 728)),
        # where another screen was
        (QRect(1500, 100, 900, 600), [LAPTOP], QRect(466, 100, 900, 600)),
        (QRect(1500, 100, 2300, 1300), [LAPTOP], QRect(0, 0, 1366, 728)),
        # the title bar is above the screen, or all but a corner of it beside
        (QRect(100, -200, 900, 600), [LAPTOP], QRect(100, 0, 900, 600)),
        (QRect(1340, 60, 900, 600), [LAPTOP], QRect(466, 60, 900, 600)),
        # over two screens that show all of it, and too high for one of them
        (QRect(400, 0, 2000, 700), [LAPTOP, BESIDE], QRect(400, 0, 2000, 700)),
        (QRect(200, 0, 1500, 900), [LAPTOP, BESIDE], QRect(0, 0, 1366, 728)),
        (QRect(1500, 100, 2300, 1300), [LAPTOP, BESIDE], QRect(1500, 100, 2300, 1300)),
    ],
)
def test_the_place_of_a_window(frame: QRect, screens: list[QRect], target: QRect) -> None:
    assert placed(frame, screens) == target
    assert placed(target, screens) == target


def test_the_first_window_fits_on_a_small_screen(qtbot, tmp_path) -> None:
    window, room = QMainWindow(), QGuiApplication.primaryScreen().availableGeometry()
    qtbot.addWidget(window)
    assert room.width() < 1180, "the screen of the tests is large"
    recall_places(
        window,
        Panes(QWidget(), QWidget(), QWidget()),
        QSettings(str(tmp_path / "places"), QSettings.Format.IniFormat),
    )
    window.show()
    assert room.contains(window.frameGeometry())
    assert window.width() > 0.9 * room.width()


@pytest.mark.parametrize("what", ["unplugged", "smaller"])
def test_a_window_larger_than_the_screen_that_is_left_is_made_to_fit(qtbot, what) -> None:
    window, screen = QWidget(), QGuiApplication.primaryScreen()
    qtbot.addWidget(window)
    OnScreen(window)
    window.setGeometry(30, 40, 2300, 1300)
    window.show()
    if what == "unplugged":
        QGuiApplication.instance().screenRemoved.emit(screen)
    else:
        screen.availableGeometryChanged.emit(screen.availableGeometry())
    qtbot.waitUntil(lambda: screen.availableGeometry().contains(window.frameGeometry()))
