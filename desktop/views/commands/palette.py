"""The command palette: one box over the window that finds chats, messages, actions, settings and models."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import isValid

from desktop.items.commands.palette import KINDS, Entry, PaletteRow, narrowed
from desktop.views.commands.palette_list import PaletteList, PaletteRows
from desktop.views.layout.fill import fill
from desktop.views.widgets.banner import announce
from desktop.views.widgets.icons import pixmap
from desktop.views.widgets.text_label import text_label
from engine.words import _, translate

__all__ = ["Palette"]

_CHARACTERS = 78
_MARGIN = 16
_SHADOW = 26
_STEPS = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}


class _Box(QLineEdit):
    """The text; `pressed(key)` carries the keys that move in the list."""

    pressed = Signal(int)
    OWN = (
        Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp, Qt.Key.Key_Return,
        Qt.Key.Key_Enter, Qt.Key.Key_Escape, Qt.Key.Key_Tab, Qt.Key.Key_Backtab,
    )  # fmt: skip

    def event(self, event: QEvent) -> bool:
        """Tab, and Esc while it stops a reply elsewhere, belong to the palette."""
        if (
            isinstance(event, QKeyEvent)
            and event.key() in self.OWN
            and not event.modifiers() & Qt.KeyboardModifier.AltModifier
        ):
            if event.type() == QEvent.Type.ShortcutOverride:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress:
                self.pressed.emit(event.key())
                return True
        return super().event(event)


class Palette(QWidget):
    """Covers `window` while it is open.

    `asked(text)`: the text changed; the owner answers with `show_rows`, later also `add_rows`.
    `chosen(entry)` comes after the palette closed, `closed()` always.
    """

    asked = Signal(str)
    chosen = Signal(object)
    closed = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setAccessibleName(_("Command palette"))
        self._window = window
        self._before: QWidget | None = None
        self.rows = PaletteRows()
        self.card = QFrame(self)
        self.card.setObjectName("palette")
        self.box = _Box()
        self.box.setObjectName("paletteBox")
        self.box.setAccessibleName(_("Search chats, actions, settings and models"))
        self.box.setPlaceholderText(_("Search chats, actions, settings and models"))
        self.box.textChanged.connect(self.asked)
        self.box.pressed.connect(self._press)
        self._picture = QLabel()
        self.list = PaletteList(self.rows)
        self.list.clicked.connect(lambda _index: self._choose())
        self.list.activated.connect(lambda _index: self._choose())
        self.list.selectionModel().currentChanged.connect(lambda now, _before: self._say(now.row()))
        self.nothing = text_label(tone="muted", wraps=True, plain=True)
        self.nothing.setContentsMargins(14, 14, 14, 16)
        self.signs = self._sign_buttons()
        self._arrange()
        self.hide()
        window.installEventFilter(self)
        QApplication.instance().focusChanged.connect(self._follow)  # type: ignore[union-attr]

    def _sign_buttons(self) -> dict[str, QPushButton]:
        buttons = {}
        for name, kind in KINDS.items():
            button = QPushButton(f"{kind.sign}  {translate(kind.heading).lower()}")
            button.setObjectName("paletteSign")
            button.setCheckable(True)
            button.setAccessibleName(_("Only {heading}", heading=translate(kind.heading).lower()))
            button.setToolTip(
                _(
                    "Only {heading}: start with {sign}",
                    heading=translate(kind.heading).lower(),
                    sign=kind.sign,
                )
            )
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus in the box
            button.clicked.connect(
                lambda _checked=False, name=name: self.narrow(name if name != self.kind else "")
            )
            buttons[name] = button
        return buttons

    def _arrange(self) -> None:
        top = fill(QHBoxLayout(), self._picture, (self.box, 1), margins=(16, 12, 14, 10), spacing=10)
        line = QFrame()
        line.setObjectName("paletteLine")
        line.setFixedHeight(1)
        self._foot = QWidget()
        self._foot.setObjectName("paletteFoot")
        foot = QHBoxLayout(self._foot)
        foot.setContentsMargins(10, 6, 10, 7)
        foot.setSpacing(2)
        for button in self.signs.values():
            foot.addWidget(button)
        foot.addStretch(1)
        column = fill(QVBoxLayout(self.card), top, line, margins=(1, 1, 1, 1), spacing=0)
        lists = fill(QVBoxLayout(), self.list, self.nothing, margins=(6, 4, 6, 4))
        column.addLayout(lists, 1)
        column.addWidget(self._foot)

    # -- open and closed

    @property
    def kind(self) -> str:
        """The kind that the search is narrowed to; "" for all."""
        return narrowed(self.box.text())[0]

    def open(self, text: str = "") -> None:
        """Show it with this text in the box, and focus the box."""
        if self.isHidden():
            self._before = QApplication.focusWidget()
        self._tint()
        if self.box.text() == text:
            self.asked.emit(text)
        else:
            self.box.setText(text)
        self.setGeometry(self._window.rect())
        self.show()
        self.raise_()
        self._fit()
        self.box.setFocus(Qt.FocusReason.PopupFocusReason)

    def toggle(self) -> None:
        """Open it, or close it."""
        self.close_palette() if self.isVisible() else self.open()

    def close_palette(self) -> None:
        """Hide it, and give the focus back."""
        if self.isHidden():
            return
        before, self._before = self._before, None
        now = QApplication.focusWidget()
        inside = now is None or self.isAncestorOf(now)
        if before is not None and inside:
            (before if isValid(before) else self._window).setFocus(Qt.FocusReason.PopupFocusReason)
        self.hide()
        self.closed.emit()

    def _follow(self, _old: QWidget | None, new: QWidget | None) -> None:
        """The focus went elsewhere in the window."""
        if self.isVisible() and new is not None and new is not self and not self.isAncestorOf(new):
            self.close_palette()

    def narrow(self, kind: str) -> None:
        """Begin the text with the sign of a kind; "" removes the sign."""
        query = narrowed(self.box.text())[1]
        self.box.setText(f"{KINDS[kind].sign} {query}" if kind else query)

    # -- what the owner shows

    def show_rows(self, rows: Sequence[PaletteRow], nothing: str) -> None:
        """Show these rows, or the text `nothing` if there are none."""
        self.rows.set_rows(rows)
        self.nothing.setText(nothing)
        for name, button in self.signs.items():
            button.setChecked(name == self.kind)
        self.list.scrollToTop()
        self._show_amount()

    def add_rows(self, rows: Sequence[PaletteRow]) -> None:
        """Append these rows; the selection stays."""
        if rows:
            self.rows.insert_rows(len(self.rows.rows), rows)
        self._show_amount()

    def _show_amount(self) -> None:
        some = bool(self.rows.rows)
        self.list.setVisible(some)
        self.nothing.setVisible(not some)
        if some and not self.list.currentIndex().isValid():
            self.list.setCurrentIndex(self.rows.index(0, 0))
        elif not some and self.isVisible():
            announce(self.box, self.nothing.text())
        self._fit()

    def _say(self, row: int) -> None:
        """Announce the row to a screen reader while the focus is in the box."""
        if 0 <= row < len(self.rows.rows) and self.isVisible() and not self.list.hasFocus():
            announce(
                self.list,
                _(
                    "{entry}, {row} of {rows}",
                    entry=self.rows.rows[row].accessible_text,
                    row=row + 1,
                    rows=len(self.rows.rows),
                ),
            )

    # -- keys and mouse

    def _press(self, key: int) -> None:
        if key == Qt.Key.Key_Escape:
            self.close_palette()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose()
        elif key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
            names = ["", *KINDS]
            self.narrow(names[(names.index(self.kind) + (1 if key == Qt.Key.Key_Tab else -1)) % len(names)])
        elif self.rows.rows:
            self._step(key)

    def _step(self, key: int) -> None:
        count, now = len(self.rows.rows), self.list.currentIndex().row()
        if key in _STEPS:
            new = (now + _STEPS[Qt.Key(key)]) % count
        else:
            page = max(1, self.list.viewport().height() // max(1, self.list.sizeHintForRow(now)) - 1)
            new = max(0, min(count - 1, now + (page if key == Qt.Key.Key_PageDown else -page)))
        self.list.setCurrentIndex(self.rows.index(new, 0))

    def _choose(self) -> None:
        row = self.list.currentIndex().row()
        if self.isHidden() or not 0 <= row < len(self.rows.rows):
            return
        entry: Entry = self.rows.rows[row].match.entry
        if entry.trouble:
            announce(self.list, entry.trouble)
            return
        self.close_palette()
        self.chosen.emit(entry)

    def event(self, event: QEvent) -> bool:
        """Esc closes it also from the list and the buttons, and stops no reply."""
        if isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()
            if event.type() == QEvent.Type.KeyPress:
                self.close_palette()
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A click outside the card closes it."""
        if not self.card.geometry().contains(event.position().toPoint()):
            self.close_palette()

    # -- place and looks

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._window and event.type() == QEvent.Type.Resize and self.isVisible():
            self.setGeometry(self._window.rect())
            self._fit()
        return False

    def _fit(self) -> None:
        """As wide as is good to read, as high as its rows, inside the window."""
        if self.isHidden():
            return
        wide = min(self.fontMetrics().averageCharWidth() * _CHARACTERS, self.width() - 2 * _MARGIN)
        top = min(max(_MARGIN, self.height() // 9), 90)
        self._name_signs(wide)
        head = self.box.sizeHint().height() + 24 + self._foot.sizeHint().height() + 12
        body = self.list.preferred_height() if self.rows.rows else self.nothing.heightForWidth(wide - 14)
        high = min(head + body, self.height() - top - _MARGIN, max(300, round(self.height() * 0.68)))
        self.card.setGeometry(QRect((self.width() - wide) // 2, top, wide, high))
        self.update()

    def _name_signs(self, wide: int) -> None:
        """Show their labels where there is room."""
        words = {name: f"{kind.sign}  {translate(kind.heading).lower()}" for name, kind in KINDS.items()}
        full = sum(self.fontMetrics().horizontalAdvance(text) + 24 for text in words.values()) + 20 <= wide
        for name, button in self.signs.items():
            text = words[name] if full else KINDS[name].sign
            # Signs are not mirrored.
            button.setText(f"\u2066{text}\u2069" if self.isRightToLeft() else text)

    def _tint(self) -> None:
        side = round(self.fontMetrics().height() * 1.15)
        ratio = self.devicePixelRatioF()
        picture = pixmap(
            "search", self.palette().color(QPalette.ColorRole.PlaceholderText).name(), round(side * ratio)
        )
        picture.setDevicePixelRatio(ratio)
        self._picture.setPixmap(picture)
        self._picture.setFixedSize(QSize(side, side))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "signs"):
            self._tint()
            self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Dims the window, and draws a soft shadow below the card."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        veil = QColor(self.palette().color(QPalette.ColorRole.Window))
        veil.setAlpha(110)
        painter.fillRect(event.rect(), veil)
        painter.setPen(Qt.PenStyle.NoPen)
        dark = veil.lightness() < 128
        for step in range(_SHADOW, 0, -2):
            painter.setBrush(QColor(0, 0, 0, 9 if dark else 3))
            edge = QRectF(self.card.geometry()).adjusted(-step, -step + 6, step, step + 6)
            painter.drawRoundedRect(edge, 12 + step, 12 + step)
        painter.end()
