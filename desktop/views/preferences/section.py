"""One page of the Preferences: a heading, a form, what the page has besides, and buttons for commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from desktop.settings import PreferencePage
from desktop.views.layout.fill import fill
from desktop.views.settings.form import SettingsForm
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wrapping_text import WrappingButton
from engine.words import translate

__all__ = ["PreferenceSection"]


class PreferenceSection(QWidget):
    """Shows `page`. `labels` are the texts of the buttons by their commands' names. The form makes its rows
    when `show_found` first shows them.

    `command_requested(name)` when a button was pressed. `form` is None on a page without a settings class.
    """

    command_requested = Signal(str)

    def __init__(self, page: PreferencePage, labels: Mapping[str, str]) -> None:
        super().__init__()
        self.page = page
        self.setAccessibleName(translate(page.title))
        self.form: SettingsForm | None = None
        self._extras: list[tuple[QWidget, str]] = []
        self.heading = text_label(translate(page.title), "page", wraps=True)
        self._column = fill(QVBoxLayout(self), self.heading, margins=(0, 0, 8, 16), spacing=12)
        if page.cls is not None:
            self.form = SettingsForm(page.cls, names=page.names, explained=True)
            self.form.setVisible(False)
            self._column.addWidget(self.form)
        self._buttons = QWidget()
        flow = FlowLayout(self._buttons, 8)
        for name in page.commands:
            button = WrappingButton(labels[name])
            button.setAutoDefault(False)
            button.clicked.connect(lambda _checked=False, name=name: self.command_requested.emit(name))
            flow.addWidget(button)
        self._buttons.setVisible(bool(page.commands))
        self._labels = " ".join(labels[name] for name in page.commands).lower()
        self._column.addWidget(self._buttons)

    def add(self, widget: QWidget, words: str) -> None:
        """Put a widget above the buttons; a search finds it by these words."""
        self._column.insertWidget(self._column.count() - 1, widget)
        self._extras.append((widget, words.lower()))

    def show_found(self, words: Sequence[str]) -> bool:
        """Show only what contains all these lower-case words, everything without words; returns whether
        something does.
        """
        named = f"{translate(self.page.title)} {self.page.words}".lower()
        if all(word in named for word in words):
            words = ()
        found = not words
        if self.form is not None:
            found = self.form.set_query(list(words))
            self.form.setVisible(found)
        for widget, its_words in self._extras:
            matches = all(word in its_words for word in words)
            widget.setVisible(matches)
            found = found or matches
        offered = bool(self.page.commands) and all(word in self._labels for word in words)
        self._buttons.setVisible(offered)
        return found or offered
