"""Tool buttons that open a menu, for the mouse, the keyboard and screen readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QMenu, QToolButton

from desktop.views.widgets.icons import IconButton
from engine.words import _

__all__ = ["IconMenuButton", "MenuButton", "close_after_use"]

# PySide6 crashes when a class has two bases made from one class of Qt
if TYPE_CHECKING:
    _Button = QToolButton
else:
    _Button = object


def close_after_use(menu: QMenu) -> None:
    """Close `menu` when a screen reader uses an entry, too: Qt does that only for the mouse and keys."""
    menu.triggered.connect(menu.close)


class _KeepsClosed(QObject):
    """A click on the button of an open menu closes the menu, and does not open it again."""

    def __init__(self, button: QToolButton, menu: QMenu) -> None:
        super().__init__(button)
        self._button, self._menu = button, menu
        menu.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.MouseButtonPress and isinstance(event, QMouseEvent):
            button = QRect(self._button.mapToGlobal(QPoint()), self._button.size())
            if button.contains(event.globalPosition().toPoint()):
                self._menu.setAttribute(Qt.WidgetAttribute.WA_NoMouseReplay)
        return False


class _OpensMenu(_Button):
    """Opens its menu when it is pressed.

    Qt's own menus of tool buttons cannot be opened by a screen reader: Qt ignores its action in the mode
    "InstantPopup", and in the others does not answer it until the menu is closed (`QMenu.exec`).
    """

    _own_menu: QMenu | None = None

    def setMenu(self, menu: QMenu) -> None:
        """Set the menu, once."""
        self._own_menu = menu
        _KeepsClosed(self, menu)
        close_after_use(menu)
        menu.aboutToHide.connect(lambda: self.setDown(False))
        self.pressed.connect(self.showMenu)
        self.setToolTip(self.toolTip())

    def menu(self) -> QMenu:
        """The menu. Raises AttributeError before `setMenu`."""
        if self._own_menu is None:
            raise AttributeError("this button has no menu yet")
        return self._own_menu

    def setToolTip(self, text: str) -> None:
        """Show `text` under the mouse; a screen reader also says that there is a menu."""
        super().setToolTip(text)
        if self._own_menu is not None:
            self.setAccessibleDescription(
                _("{text}. Opens a menu.", text=text) if text else _("Opens a menu.")
            )

    def showMenu(self) -> None:
        """Open the menu below the button, or above where there is no space; does not wait for it to close."""
        menu = self.menu()
        menu.ensurePolished()
        size, screen = menu.sizeHint(), self.screen().availableGeometry()
        place = self.mapToGlobal(self.rect().bottomLeft() + QPoint(0, 1))
        if self.isRightToLeft():
            place = self.mapToGlobal(self.rect().bottomRight() + QPoint(1 - size.width(), 1))
        if place.y() + size.height() > screen.bottom():
            place.setY(max(screen.top(), self.mapToGlobal(QPoint()).y() - size.height()))
        menu.popup(place)
        self.setDown(menu.isVisible())


class MenuButton(_OpensMenu, QToolButton):
    """A tool button with a menu."""


class IconMenuButton(_OpensMenu, IconButton):
    """The same with an icon."""
