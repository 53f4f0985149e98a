"""Questions and notices that fit into a narrow window."""

from __future__ import annotations

from typing import cast

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, Qt
from PySide6.QtGui import QPalette, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QDialogButtonBox,
    QGridLayout,
    QLabel,
    QMessageBox,
    QSizePolicy,
    QWidget,
)

from desktop.views.widgets.icons import pixmap

__all__ = ["MessageBox", "question_box", "warn", "warn_and_wait"]

_ICON = 2.0
"""The size of an icon to that of text."""
_LABELS = ("qt_msgbox_label", "qt_msgbox_informativelabel")


class MessageBox(QMessageBox):
    """Not wider than the window that it belongs to: its text wraps, and its buttons are below each other
    where they have no room side by side. Without an icon, the text begins where the buttons may begin; the
    icon of a warning is the program's own.
    """

    def event(self, event: QEvent) -> bool:
        """Narrow it again: Qt has just made it as wide as it likes."""
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self._narrow()
        return done

    def showEvent(self, event: QShowEvent) -> None:
        if self.icon() == QMessageBox.Icon.Warning:
            side = round(self.fontMetrics().height() * _ICON * self.devicePixelRatioF())
            picture = pixmap("warning", self.palette().color(QPalette.ColorRole.Link).name(), side)
            picture.setDevicePixelRatio(self.devicePixelRatioF())
            self.setIconPixmap(picture)
        if self.iconPixmap().isNull():
            self._remove_indent()
        super().showEvent(event)
        self._narrow()

    def _remove_indent(self) -> None:
        """Have the texts begin in the column that Qt leaves empty where the icon would be."""
        layout = self.layout()
        assert isinstance(layout, QGridLayout)
        places = [layout.getItemPosition(number) for number in range(layout.count())]
        for number in reversed(range(len(places))):
            row, column, rows, columns = cast(tuple[int, int, int, int], places[number])
            item = layout.itemAt(number)
            widget = item.widget() if item is not None else None
            if widget is None and column == 0:
                layout.takeAt(number)
            elif widget is not None and column == 1:
                layout.removeWidget(widget)
                layout.addWidget(widget, row, 0, rows, column + columns)

    def _narrow(self) -> None:
        parent, layout = self.parentWidget(), self.layout()
        if parent is None or layout is None or not self.isVisible():
            return
        room = parent.window().width()
        if self.width() <= room:
            return
        for name in _LABELS:
            label = self.findChild(QLabel, name)
            if label is not None:
                label.setWordWrap(True)
                policy = label.sizePolicy()  # Qt's would not let it be narrower than it likes
                policy.setHorizontalPolicy(QSizePolicy.Policy.Preferred)
                label.setSizePolicy(policy)
        layout.activate()
        buttons = self.findChild(QDialogButtonBox)
        if layout.totalMinimumSize().width() > room and buttons is not None:
            buttons.setOrientation(Qt.Orientation.Vertical)
            buttons.setCenterButtons(True)
            layout.activate()
        width = max(room, layout.totalMinimumSize().width())
        high = (
            layout.totalHeightForWidth(width)
            if layout.hasHeightForWidth()
            else layout.totalSizeHint().height()
        )
        self.setFixedSize(width, high)
        # as Qt does: these changes would ask for the size again, without end
        QCoreApplication.removePostedEvents(self, QEvent.Type.LayoutRequest.value)


def question_box(
    parent: QWidget | None,
    words: str,
    more: str,
    name: str = "",
    title: str = "Inglenook",
    warns: bool = False,
) -> MessageBox:
    """A box above `parent` that asks or says `words`, and `more` below them, as plain text; the caller adds
    buttons. `name` is the object's.
    """
    icon = QMessageBox.Icon.Warning if warns else QMessageBox.Icon.NoIcon
    box = MessageBox(icon, title, words, QMessageBox.StandardButton.NoButton, parent)
    box.setObjectName(name)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setInformativeText(more)
    return box


def warn(words: str, parent: QWidget | None) -> MessageBox:
    """Say in a box above `parent` that something failed, without waiting for the user."""
    box = MessageBox(QMessageBox.Icon.Warning, "Inglenook", words, QMessageBox.StandardButton.Ok, parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.open()
    return box


def warn_and_wait(app: QApplication, words: str) -> None:
    """Say it while there is no window, and wait until it is read."""
    box = warn(words, None)
    read: list[int] = []
    box.finished.connect(read.append)
    while not read:
        app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
