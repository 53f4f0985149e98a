"""The editor of an order: a list whose rows are dragged or moved by keys; rows without effect are grey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QPersistentModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPalette
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QScrollArea,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from desktop.views.layout.fill import fill
from desktop.views.settings.editor import Editor
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import text_label
from engine.settings import SamplerSettings, SettingInfo, Settings
from engine.words import _

__all__ = ["OrderEditor"]

_NAME, _OFF = Qt.ItemDataRole.UserRole, Qt.ItemDataRole.UserRole + 1


def complete_order(given: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    """`given` without repetitions, with each missing name of `usual` after the one that precedes it there."""
    order = [name for name in dict.fromkeys(given) if name in usual]
    for place, name in enumerate(usual):
        if name not in order:
            before = usual[place - 1] if place else ""
            order.insert(order.index(before) + 1 if place else 0, name)
    return tuple(order)


class _Delegate(QStyledItemDelegate):
    """Adds "off" to the rows that have no effect."""

    def initStyleOption(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().initStyleOption(option, index)
        if index.data(_OFF):
            muted = option.palette.color(QPalette.ColorRole.PlaceholderText)
            option.palette.setColor(QPalette.ColorRole.Text, muted)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        if index.data(_OFF):
            palette, place = option.palette, option.rect.adjusted(0, 0, -8, 0)
            chosen = bool(option.state & option.state.State_Selected)
            role = QPalette.ColorRole.HighlightedText if chosen else QPalette.ColorRole.PlaceholderText
            painter.save()
            painter.setPen(palette.color(role))
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, _("off"))
            painter.restore()


class _Rows(QListWidget):
    """A list that shows all its rows; `moved()` after a row was moved."""

    moved = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._dragged = -1
        self._moved = False
        self.setProperty("tone", "order")
        self.setItemDelegate(_Delegate(self))
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setUniformItemSizes(True)

    def move_current(self, step: int) -> None:
        """Move the selected row up (-1) or down (+1)."""
        if self._move(self.currentRow(), self.currentRow() + step):
            self.moved.emit()

    def fit(self) -> None:
        """Resize to the height of all rows."""
        self.setFixedHeight(self.count() * max(1, self.sizeHintForRow(0)) + 2 * self.frameWidth() + 2)

    def _move(self, source: int, target: int) -> bool:
        if source == target or not 0 <= source < self.count() or not 0 <= target < self.count():
            return False
        self.insertItem(target, self.takeItem(source))
        self.setCurrentRow(target)
        return True

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()), 0)
        if (
            step
            and event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier == Qt.KeyboardModifier.AltModifier
        ):
            self.move_current(step)
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        left = event.button() == Qt.MouseButton.LeftButton
        self._dragged = self.indexAt(event.position().toPoint()).row() if left else -1
        self._moved = False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """The row follows the mouse; the others make room."""
        if self._dragged < 0:
            return
        place = event.position().toPoint()
        height = max(1, self.sizeHintForRow(0))
        target = min(max(0, (place.y() - self.frameWidth()) // height), self.count() - 1)
        if self._move(self._dragged, target):
            self.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)
            self._dragged, self._moved = target, True
        self._follow(target * height + height // 2)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        self.viewport().unsetCursor()
        self._dragged = -1
        if self._moved:
            self._moved = False
            self.moved.emit()

    def _follow(self, y: int) -> None:
        """Keep the dragged row visible while the pane around the list scrolls."""
        above: QWidget | None = self.parentWidget()
        while above is not None and not isinstance(above, QScrollArea):
            above = above.parentWidget()
        inside = above.widget() if isinstance(above, QScrollArea) else None
        if isinstance(above, QScrollArea) and inside is not None:
            place = self.mapTo(inside, self.rect().topLeft())
            above.ensureVisible(place.x(), place.y() + y, 0, 2 * self.sizeHintForRow(0))

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.height())


class OrderEditor(Editor):
    """All choices of a setting in the user's order; choices that the value omits are shown at their usual
    place.
    """

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self._labels = dict(info.choices)
        self._value: tuple[str, ...] = ()
        self._context: Settings | None = None
        self.list = _Rows()
        self.list.setAccessibleName(info.label)
        self.list.setAccessibleDescription(_("Press Alt+Up or Alt+Down to move the selected row."))
        self.list.moved.connect(self._emit_edit)
        self.up = self._button(
            "chevron-up", _("Move the selected step up"), "Alt+Up", lambda: self.list.move_current(-1)
        )
        self.down = self._button(
            "chevron-down", _("Move the selected step down"), "Alt+Down", lambda: self.list.move_current(1)
        )
        self.list.currentRowChanged.connect(self._enable)
        hint = text_label(_("Drag a row, or select it and press Alt+Up or Alt+Down."), "muted", wraps=True)
        head = fill(QHBoxLayout(), (hint, 1), self.up, self.down, spacing=2)
        fill(QVBoxLayout(self), head, self.list, margins=(0, 0, 0, 0), spacing=4)

    def _button(self, icon: str, name: str, key: str, act: Callable[[], None]) -> IconButton:
        button = IconButton(icon, name)
        button.setToolTip(f"{name} ({key})")
        button.clicked.connect(act)
        return button

    def value(self) -> tuple[str, ...]:
        return self._value

    def set_value(self, value: Any) -> None:
        self._value = tuple(value)
        chosen = self.list.currentItem()
        name = chosen.data(_NAME) if chosen is not None else ""
        requested = complete_order(self._value, tuple(self._labels))
        if requested != self._shown():
            self.list.clear()
            for step in requested:
                item = QListWidgetItem(self._labels[step])
                item.setData(_NAME, step)
                self.list.addItem(item)
                if step == name:
                    self.list.setCurrentItem(item)
            self.list.fit()
        self._enable()

    def show_context(self, settings: Settings) -> None:
        self._context = settings
        if self.isVisible():
            self._grey()

    def _shown(self) -> tuple[str, ...]:
        return tuple(str(self.list.item(row).data(_NAME)) for row in range(self.list.count()))

    def _grey(self) -> None:
        """Mark the steps that do nothing with the present values."""
        if not isinstance(self._context, SamplerSettings):
            return
        from engine.sampling import SAMPLER_STEPS  # NumPy is imported only when the list is visible.

        active = {kind.name for kind in SAMPLER_STEPS if kind.from_settings(self._context).active}
        for row in range(self.list.count()):
            item = self.list.item(row)
            off = item.data(_NAME) not in active
            item.setData(_OFF, off)
            item.setData(
                Qt.ItemDataRole.AccessibleTextRole, f"{item.text()}, {_('off')}" if off else item.text()
            )

    def _enable(self) -> None:
        row = self.list.currentRow()
        self.up.setEnabled(row > 0)
        self.down.setEnabled(0 <= row < self.list.count() - 1)

    def _emit_edit(self) -> None:
        self._value = self._shown()
        self._enable()
        self.edited.emit(self._value)

    def showEvent(self, event: Any) -> None:
        super().showEvent(event)
        self._grey()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(self, "list"):
            self.list.fit()
