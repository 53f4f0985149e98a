"""The right-hand pane: the system prompt and one collapsible group of settings for each entry of PANES."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QPalette
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from desktop.views.form import SettingsForm
from desktop.views.icons import IconButton, tinted
from engine.settings import Settings

__all__ = ["Group", "Inspector"]

_PROMPT_MILLISECONDS = 600


class Group(QWidget):
    """A title that folds what is below it away."""

    def __init__(self, title: str, content: QWidget, opened: bool) -> None:
        super().__init__()
        self.title = title
        self.content = content
        self.header = QPushButton(title)
        self.header.setProperty("tone", "group")
        self.header.setCheckable(True)
        self.header.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.header)
        layout.addWidget(content)
        content.setContentsMargins(8, 2, 6, 10)
        self.header.toggled.connect(self._fold)
        self.header.setChecked(opened)
        self._fold(opened)

    def _fold(self, opened: bool) -> None:
        self.content.setVisible(opened)
        self.header.setAccessibleName(self.title)
        self.header.setAccessibleDescription("expanded" if opened else "collapsed")
        self.tint()

    def tint(self) -> None:
        """Draw the arrow in the colour of the theme."""
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        self.header.setIcon(tinted("chevron-down" if self.header.isChecked() else "chevron-right", colour, colour))
        side = round(self.fontMetrics().height() * 0.9)
        self.header.setIconSize(QSize(side, side))


class _PromptBox(QPlainTextEdit):
    """The system prompt, told when the user pauses or leaves."""

    edited = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("tone", "field")
        self.setAccessibleName("System prompt")
        self.setPlaceholderText("How the model should behave, for example: You are a patient teacher.")
        self.setTabChangesFocus(True)
        self._told = ""
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_PROMPT_MILLISECONDS)
        self._timer.timeout.connect(self.tell)
        self.textChanged.connect(self._timer.start)

    def show_text(self, text: str) -> None:
        """Show `text`; `edited` is not emitted."""
        self._told = text
        if text != self.toPlainText():
            self.setPlainText(text)
        self._timer.stop()

    def tell(self) -> None:
        """Emit `edited` when the text is another than the last one told or shown."""
        self._timer.stop()
        if self.toPlainText() != self._told:
            self._told = self.toPlainText()
            self.edited.emit(self._told)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.tell()


class Inspector(QWidget):
    """System prompt, settings, "Save as defaults".

    `changed(cls, name, value)` and `reset_requested(cls, name)` name a field of a settings class of `panes`;
    `system_prompt_changed(text)`; `save_requested()`; `escaped()` from the button `back` of a narrow window.
    The owner answers with `show_values` and `show_system_prompt`.
    """

    changed = Signal(object, str, object)
    reset_requested = Signal(object, str)
    system_prompt_changed = Signal(str)
    save_requested = Signal()
    escaped = Signal()

    def __init__(self, panes: Sequence[tuple[str, type[Settings]]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("inspector")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Settings")
        self.forms: dict[type[Settings], SettingsForm] = {}
        self.groups: list[Group] = []
        body = QWidget()
        body.setObjectName("inspectorBody")
        column = QVBoxLayout(body)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(6)
        heading = QLabel("System prompt")
        heading.setProperty("tone", "heading")
        self.back = IconButton("close", "Back to the conversation")
        self.back.clicked.connect(self.escaped)
        self.back.hide()
        self.prompt = _PromptBox()
        heading.setBuddy(self.prompt)
        self.prompt.edited.connect(self.system_prompt_changed)
        top = QVBoxLayout()
        top.setContentsMargins(8, 0, 6, 8)
        first = QHBoxLayout()
        first.addWidget(heading, 1)
        first.addWidget(self.back)
        top.addLayout(first)
        top.addWidget(self.prompt)
        column.addLayout(top)
        for position, (title, cls) in enumerate(panes):
            group = Group(title, self._form(cls), opened=position < 2)
            self.groups.append(group)
            column.addWidget(group)
        column.addStretch(1)
        self._scroll = QScrollArea()
        self._scroll.setWidget(body)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.save = QPushButton("Save as defaults")
        self.save.setToolTip("New chats start with these settings.")
        self.save.clicked.connect(self._save)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 0, 0, 12)
        layout.setSpacing(8)
        layout.addWidget(self._scroll, 1)
        layout.addWidget(self.save, 0, Qt.AlignmentFlag.AlignHCenter)
        self.fit_text()

    def set_extra(self, cls: type[Settings], widget: QWidget, *, replaces: Sequence[str] = (), below: bool = False) -> None:
        """Put `widget` above (or `below`) the form of `cls`; the fields that it `replaces` leave the form."""
        form = self.forms[cls]
        form.hide_fields(replaces)
        form.add_extra(widget, below)

    def _form(self, cls: type[Settings]) -> SettingsForm:
        form = SettingsForm(cls)
        form.changed.connect(lambda name, value: self.changed.emit(cls, name, value))
        form.reset_requested.connect(lambda name: self.reset_requested.emit(cls, name))
        self.forms[cls] = form
        return form

    def show_values(self, settings: Settings, sources: dict[str, str]) -> None:
        """Show one settings object and, for each field, where its value comes from."""
        self.forms[type(settings)].show_values(settings, sources)

    def show_system_prompt(self, text: str) -> None:
        """Show the system prompt of the open conversation."""
        self.prompt.show_text(text)

    def fit_text(self) -> None:
        """Follow the theme and the text size."""
        self.prompt.setFixedHeight(round(self.fontMetrics().lineSpacing() * 4.6))
        for group in self.groups:
            group.tint()

    def _save(self) -> None:
        self.prompt.tell()
        self.save_requested.emit()
