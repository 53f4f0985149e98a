"""A title that collapses the content below it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.widgets.icons import tinted
from desktop.views.widgets.text_label import set_styled
from engine.words import _

__all__ = ["Group"]


class Group(QWidget):
    """`title` above `content`. `note`, at the right end of the title, shows what matters while it is
    collapsed.
    """

    def __init__(self, title: str, content: QWidget, opened: bool) -> None:
        super().__init__()
        self.title = title
        self.content = content
        self._searched: bool | None = None
        self._opened = opened
        self.header = QPushButton(title)
        self.header.setProperty("tone", "group")
        self.header.setCheckable(True)
        self.header.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.note = QLabel(self.header)
        self.note.setProperty("tone", "source")
        self.note.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        fill(QHBoxLayout(self.header), 1, self.note, margins=(10, 0, 10, 0))
        fill(QVBoxLayout(self), self.header, content, margins=(0, 0, 0, 0), spacing=4)
        content.setContentsMargins(8, 2, 6, 10)
        self.header.clicked.connect(self._clicked)
        self._fold()

    @property
    def opened(self) -> bool:
        """Whether the user opened it, regardless of what a search shows."""
        return self._opened

    def open(self, opened: bool = True) -> None:
        """Expand or collapse it."""
        self._opened = opened
        self._fold()

    def show_search(self, found: bool | None) -> None:
        """During a search: expanded if there are matches, else hidden; None ends the search."""
        self._searched = found
        self.setVisible(found is not False)
        self._fold()

    def show_found(self, words: list[str]) -> None:
        """During a search: highlight the title if it contains one of the words."""
        found = any(word in self.title.lower() for word in words)
        if bool(self.header.property("found")) != found:
            set_styled(self.header, "found", found)

    def show_note(self, text: str) -> None:
        """Show a few words at the right end of the title."""
        self.note.setText(text)
        self._describe()

    def _clicked(self, checked: bool) -> None:
        self.open(checked)

    def _fold(self) -> None:
        shown = self._opened if self._searched is None else self._searched
        self.header.setChecked(shown)
        self.content.setVisible(shown)
        self._describe()
        self._tint()

    def _describe(self) -> None:
        self.header.setAccessibleName(self.title)
        state = _("expanded") if self.header.isChecked() else _("collapsed")
        self.header.setAccessibleDescription(f"{state}, {self.note.text()}" if self.note.text() else state)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "header"):
            self._tint()

    def _tint(self) -> None:
        """Draw the arrow in the colour of the theme."""
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        self.header.setIcon(
            tinted("chevron-down" if self.header.isChecked() else "chevron-right", colour, colour)
        )
        side = round(self.fontMetrics().height() * 0.9)
        self.header.setIconSize(QSize(side, side))
