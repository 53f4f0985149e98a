"""A banner above the composer: what happened, in one sentence, and what can be done about it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt, Signal, qVersion
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QGuiApplication, QPalette, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from desktop.services.system.debounce import debounce
from desktop.views.layout.fill import fill
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton, pixmap
from desktop.views.widgets.motion import Fade
from desktop.views.widgets.text_label import set_styled, text_label
from engine.printable import one_line
from engine.words import N_, _, translate

__all__ = ["Banner", "announce"]

WORDS = {"info": N_("Note"), "warning": N_("Warning"), "error": N_("Error")}
_INFO_SECONDS = 12
_WIDE_CHARACTERS = 60
"""There is room for a button beside this many characters of average width."""
_LEAST_CHARACTERS = 36
"""In fewer, all buttons are below the text."""


def announce(widget: QWidget, text: str) -> None:
    """Have a screen reader say `text`."""
    QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, text))


class Banner(QFrame):
    """Shows one notice at a time; a later one replaces it.

    Notes disappear after a while, warnings and errors stay until dismissed.
    """

    undo_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("banner")
        self._level, self._details = "info", ""
        self._picture = QLabel()
        self.text = text_label(wraps=True, plain=True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.undo = QPushButton(_("Undo"))
        self.undo.setProperty("tone", "quiet")
        self.undo.setAccessibleName(_("Undo"))
        self.undo.clicked.connect(self._undo)
        self.offer = QPushButton()
        self.offer.clicked.connect(self._take_offer)
        self._offered: Callable[[], object] | None = None
        self.copy = IconButton("copy", _("Copy details of this notice"))
        self.copy.clicked.connect(self._copy)
        self.dismiss = IconButton("close", _("Dismiss this notice"))
        self.dismiss.clicked.connect(self.hide)
        self._below = FlowLayout(gap=4)
        self._column = fill(QVBoxLayout(), self.text, self._below, spacing=4)
        self._line = fill(
            QHBoxLayout(self),
            self._picture,
            (self._column, 1),
            self.undo,
            self.offer,
            self.copy,
            self.dismiss,
            margins=(12, 6, 6, 6),
            spacing=8,
        )
        self._placed_below: tuple[QWidget, ...] = ()
        self._appearing = Fade(self)
        self._timer = debounce(self, self._fade)
        self.hide()

    def show_notice(
        self,
        text: str,
        level: str,
        undo: bool = False,
        details: str = "",
        offer: tuple[str, Callable[[], object]] | None = None,
    ) -> None:
        """Show `text` at the `level` "info", "warning" or "error"; `undo` shows the Undo button.

        `details` are only copied. `offer` is the text and the action of a button; clicking it hides the
        notice.
        """
        self._level, text = level, one_line(text)  # it may contain a file name
        words, self._offered = offer if offer is not None else ("", None)
        self.offer.setText(words)
        self.offer.setVisible(offer is not None)
        self._details = details
        self.text.setText(text)
        self.text.setAccessibleName(f"{translate(WORDS[level])}: {text}")
        self.undo.setVisible(undo)
        self.copy.setVisible(level != "info")
        set_styled(self, "level", level)
        self._draw()
        shown = self.isVisible()
        self.show()
        if not shown:
            self._appearing.start()
        announce(self, f"{translate(WORDS[level])}: {text}")
        if level == "info":
            self._timer.start(round(_INFO_SECONDS * 1000))
        else:
            self._timer.stop()

    def _draw(self) -> None:
        """Draw the icon of the level in the colour and size of the text."""
        ratio = self.devicePixelRatioF()
        side = round(self.fontMetrics().height() * 1.2 * ratio)
        picture = pixmap(self._level, self.palette().color(QPalette.ColorRole.WindowText).name(), side).copy()
        picture.setDevicePixelRatio(ratio)
        self._picture.setPixmap(picture)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "_timer"):
            self._draw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the buttons beside the text if that leaves the text enough room, else below."""
        super().resizeEvent(event)
        buttons = (self.undo, self.offer, self.copy, self.dismiss)
        em = self.fontMetrics().averageCharWidth()
        narrow = self.width() < _WIDE_CHARACTERS * em + self.offer.sizeHint().width()
        below = buttons if self.width() < _LEAST_CHARACTERS * em else (self.offer,) if narrow else ()
        if below != self._placed_below:
            self._placed_below = below
            for button in buttons:
                (self._below if button in below else self._line).addWidget(button)

    def hide_undo(self) -> None:
        """Hide the notice if it offers Undo: there is nothing to undo any more."""
        if self.undo.isVisibleTo(self):
            self.hide()

    def hide_offer(self, words: str) -> None:
        """Hide the notice with this offer, which is no longer useful."""
        if self.offer.isVisibleTo(self) and self.offer.text() == words:
            self.hide()

    def hide_text(self, text: str) -> None:
        """Hide this notice, which is no longer true."""
        if self.text.text() == text:
            self.hide()

    def details(self) -> str:
        """The notice and what a bug report needs: versions and system, nothing personal."""
        import platform

        system = f"{platform.system()} {platform.release()} {platform.machine()}"
        head = (
            f"{translate(WORDS[self._level])}: {self.text.text()}\n"
            f"Inglenook, Python {platform.python_version()}, Qt {qVersion()}, {system}"
        )
        return f"{head}\n\n{self._details}" if self._details else head

    def _undo(self) -> None:
        self.hide()
        self.undo_requested.emit()

    def _take_offer(self) -> None:
        self.hide()
        if self._offered is not None:
            self._offered()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.details())

    def _fade(self) -> None:
        focus = QGuiApplication.focusObject()
        if self.underMouse() or (isinstance(focus, QWidget) and self.isAncestorOf(focus)):
            self._timer.start(2000)  # it is still being read
        else:
            self.hide()
