"""The bar below a notebook: write, stop, undo, write again; what the model reads next, and the document's
length.
"""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QPushButton, QSizePolicy, QVBoxLayout

from desktop.views.layout.fill import fill
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import text_label
from engine.words import _, ngettext

__all__ = ["NotebookBar"]


class NotebookBar(QFrame):
    """Signals: `write()`, `stop()`, `undo()`, `again()`."""

    write = Signal()
    stop = Signal()
    undo = Signal()
    again = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("notebookBar")
        self.setAccessibleName(_("Writing"))
        self.write_button = QPushButton(_("Continue"))
        self.write_button.setProperty("tone", "primary")
        self.write_button.setToolTip(_("Continue the text (Ctrl+Enter)"))
        self.write_button.clicked.connect(self.write)
        self.stop_button = QPushButton(_("Stop"))
        self.stop_button.setToolTip(_("Stop writing (Esc)"))
        self.stop_button.clicked.connect(self.stop)
        self.undo_button = IconButton("undo", _("Undo"))
        self.undo_button.setToolTip(_("Undo the last generated text (Ctrl+Z)"))
        self.undo_button.clicked.connect(self.undo)
        self.again_button = IconButton("regenerate", _("Regenerate"))
        self.again_button.setToolTip(_("Replace the last generated text with a new one (Ctrl+R)"))
        self.again_button.clicked.connect(self.again)
        self.figures = text_label(tone="muted")
        self.note = text_label(tone="muted", wraps=True)
        self.note.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        line = fill(
            FlowLayout(),
            self.write_button,
            self.stop_button,
            self.undo_button,
            self.again_button,
            1,
            self.figures,
            spacing=6,
        )
        fill(QVBoxLayout(self), line, self.note, margins=(14, 8, 14, 6), spacing=4)
        self.show_state(writing=False, stretch=False, busy=False)

    def show_state(self, *, writing: bool, stretch: bool, busy: bool) -> None:
        """`writing`: a model is writing here; `busy`: it is writing elsewhere; `stretch`: a passage can be
        undone.
        """
        had = self.write_button.hasFocus() or self.stop_button.hasFocus()
        self.write_button.setVisible(not writing)
        self.stop_button.setVisible(writing)
        self.write_button.setEnabled(not busy)
        self.undo_button.setEnabled(stretch and not writing)
        self.again_button.setEnabled(stretch and not writing and not busy)
        if had:
            (self.stop_button if writing else self.write_button).setFocus()

    def show_figures(self, tokens: int, context: int) -> None:
        """Show the tokens of the document and of the context; 0 for an unknown number."""
        words = (
            _("{tokens:,} / {context:,} tokens", tokens=tokens, context=context)
            if tokens and context
            else ngettext("{n} token", "{n} tokens", tokens)
            if tokens
            else ""
        )
        self.figures.setText(words)
        self.figures.setToolTip(_("Tokens in the document and in the context") if words else "")
        self.figures.setAccessibleName(_("Document: {words}", words=words) if words else _("Document"))

    def show_note(self, text: str, warning: bool = False) -> None:
        """Show a sentence below the buttons."""
        if text != self.note.text():
            self.note.setText(text)
            self.note.setProperty("tone", "" if warning else "muted")
            self.note.style().polish(self.note)
