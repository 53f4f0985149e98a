"""A system prompt and its source: an inherited text is shown greyed until there is an own one."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.settings.form_row import Source, source_words
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, ngettext, translate

__all__ = ["DATE_HINT", "SystemPromptField"]

_EXAMPLE = N_("Tell the model how to behave, for example: You are a patient teacher. Today is {{date}}.")
DATE_HINT = N_("{{date}} stands for today's date.")
"""What a tooltip says of placeholders in system prompts."""


class SystemPromptField(QWidget):
    """The prompt of a chat or a folder (`what`). `changed(text, inherits)`: the own text when the user pauses
    or leaves, and whether an empty text inherits.

    Only if `can_refuse` can the user choose no prompt at all over an inherited one.
    """

    changed = Signal(str, bool)

    def __init__(self, what: str, can_refuse: bool = True) -> None:
        super().__init__()
        self._what, self._can_refuse = what, can_refuse
        self._inherited, self._source, self._inherits = "", "", True
        self.box = GrowingTextEdit(_("System prompt"), least=3, most=12)
        self.box.setPlaceholderText(translate(_EXAMPLE))
        self.box.edited.connect(self._on_edited)
        self.box.typed.connect(lambda _text: self._describe())
        self._count = text_label(tone="muted")
        self._count.hide()
        self._where = Source()
        self.reset = IconButton("reset", _("Reset the system prompt"))
        self.reset.clicked.connect(self._reset)
        keep = self.reset.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(keep)
        self.none = QCheckBox(_("No system prompt in this chat"))
        self.none.clicked.connect(self._refuse)
        heading = text_label(_("System prompt"), "heading")
        heading.setBuddy(self.box)
        head = fill(QHBoxLayout(), (heading, 1), self._count, self._where, self.reset, spacing=6)
        layout = fill(QVBoxLayout(self), head, margins=(8, 4, 6, 8), spacing=4)
        self._unused = text_label(tone="muted", wraps=True)
        self._unused.hide()
        layout.addWidget(self.box)
        layout.addWidget(self._unused)
        layout.addWidget(self.none)
        self._describe()

    def show_prompt(self, own: str, inherited: str = "", source: str = "", inherits: bool = True) -> None:
        """Show the own text, and the one that applies without it, from `source` ("folder NAME", "persona
        NAME").
        """
        self._inherited, self._source, self._inherits = inherited, source, inherits
        self.box.show_text(own)
        self._describe()

    def show_size(self, tokens: int, about: bool = False) -> None:
        """Show how many tokens the effective prompt has; 0 if that is unknown or there is none."""
        self._count.setText(("~" if about else "") + ngettext("{n} token", "{n} tokens", tokens))
        self._count.setToolTip(_("Tokens of the context used by the system prompt"))
        self._count.setVisible(tokens > 0)

    def set_unused(self, sentence: str) -> None:
        """Say why no system prompt is used, instead of the box; "" shows the box again."""
        self._unused.setText(sentence)
        self._unused.setVisible(bool(sentence))
        for widget in (self.box, self._where):
            widget.setVisible(not sentence)
        self._describe()

    def text(self) -> str:
        """The own text in the box."""
        return self.box.text()

    def _describe(self) -> None:
        own, refused = bool(self.box.text()), not self._inherits and not self.box.text()
        inherited = bool(self._inherited) and not own and not refused
        self.box.setEnabled(not refused)
        self.box.setPlaceholderText(
            _("No system prompt is sent.")
            if refused
            else self._inherited
            if inherited
            else translate(_EXAMPLE)
        )
        short, phrase = (
            source_words(self._source)
            if inherited
            else (_("this chat") if self._what == "chat" else _("this folder"), "")
            if own or refused
            else ("", "")
        )
        self._where.show_text(short)
        self._where.setToolTip(phrase)
        below = self._below() if self._inherited else _("none")
        used = not self._unused.text()
        self.reset.setVisible(used and ((own and bool(self._inherited)) or refused))
        self.reset.set_face(
            "reset",
            _("Reset the system prompt to {below}", below=below),
            _("Set in this chat. Click to reset to {below}.", below=below)
            if self._what == "chat"
            else _("Set in this folder. Click to reset to {below}.", below=below),
        )
        self.none.setVisible(used and self._can_refuse and (refused or inherited))
        self.none.setChecked(refused)
        self.box.setToolTip(
            translate(DATE_HINT)
            if not inherited
            else _("{phrase}. Type here to use another one in this chat.", phrase=phrase)
            if self._what == "chat"
            else _("{phrase}. Type here to use another one in this folder.", phrase=phrase)
        )
        self.box.setAccessibleDescription(
            f"{phrase}: {self._inherited}" if inherited else _("No system prompt is sent.") if refused else ""
        )

    def _below(self) -> str:
        kind, _space, name = self._source.partition(" ")
        if kind == "folder":
            return _("the one of the folder {name}", name=name)
        return _("the one of the persona {name}", name=name)

    def _on_edited(self, text: str) -> None:
        # An own text that is erased later gives way to the inherited one.
        self._inherits = self._inherits or bool(text)
        self._describe()
        self.changed.emit(text, self._inherits)

    def _refuse(self, refused: bool) -> None:
        self._inherits = not refused
        self._describe()
        self.changed.emit("", self._inherits)

    def _reset(self) -> None:
        self._inherits = True
        self.box.show_text("")
        self._describe()
        self.box.setFocus()
        self.changed.emit("", True)
