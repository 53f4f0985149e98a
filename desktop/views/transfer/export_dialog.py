"""The window in which an export is set up, and which then shows its progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QDialog, QLabel, QPushButton, QRadioButton, QVBoxLayout, QWidget

from desktop.services.transfer.transfer import PDF
from desktop.store.transfer.exporters.names import file_name
from desktop.views.dialogs.file_dialogs import ask_folder, ask_save
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import fit_dialog, grow_dialog
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.progress_bar import progress_bar
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.words import N_, _, ngettext, translate

__all__ = ["ExportDialog"]

_OWN = ".inglenook.json"
"""The extension that belongs to this program: a double click imports such a file."""
_FORMATS = (
    ("Markdown", ".md", "Markdown", N_("The chat as shown, in plain text with headings.")),
    ("Web page", ".html", N_("Web page"), N_("One HTML file that opens in any browser.")),
    (PDF, ".pdf", "PDF", N_("For printing and sharing.")),
    (
        "Lossless JSON",
        _OWN,
        N_("JSON, everything"),
        N_("All versions of all messages, with settings, dates and tokens. Can be imported again."),
    ),
)
"""Name of the format, its extension, its file dialog text, and what it is for."""


class ExportDialog(QDialog):
    """Asks for format and place.

    `export_requested(str label, object path, bool thoughts)`: a place was chosen; a folder if several chats
    become one file each.
    """

    export_requested = Signal(str, object, bool)
    cancelled = Signal()

    def __init__(self, title: str, ids: Sequence[int], parent: QWidget) -> None:
        super().__init__(parent)
        self.ids = tuple(ids)
        self._title = title
        self._busy = False
        self.setObjectName("exportDialog")
        self.setWindowTitle(_("Export chat") if len(ids) == 1 else _("Export chats"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.heading = QLabel(
            _("Export “{title}”", title=title or _("New chat"))
            if len(ids) == 1
            else ngettext("Export {n} chat", "Export {n} chats", len(ids))
        )
        self.heading.setProperty("tone", "heading")
        self.heading.setTextFormat(Qt.TextFormat.PlainText)
        self.heading.setWordWrap(True)
        layout = QVBoxLayout(self)
        dialog_margins(layout)
        layout.setSpacing(4)
        layout.addWidget(self.heading)
        layout.addSpacing(6)
        self.choices = QWidget()
        self._add_choices(QVBoxLayout(self.choices))
        self._body = DialogBody(self.choices)
        layout.addWidget(self._body)
        layout.addWidget(self._make_progress())
        layout.addStretch(1)
        layout.addLayout(self._make_buttons())
        self._show_choice()
        fit_dialog(self, 480)

    def _add_choices(self, layout: QVBoxLayout) -> None:
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        self._group = QButtonGroup(self)
        for number, (_unused, _unused, words, purpose) in enumerate(_FORMATS):
            button, note = QRadioButton(translate(words)), QLabel(translate(purpose))
            button.setAccessibleDescription(note.text())
            note.setProperty("tone", "muted")
            note.setWordWrap(True)
            note.setIndent(28)
            note.setBuddy(button)
            self._group.addButton(button, number)
            fill(layout, button, note)
            layout.addSpacing(4)
        self._group.button(0).setChecked(True)
        self._group.idToggled.connect(self._show_choice)
        self.thoughts = WrappingCheckBox(_("Include the model's thoughts"))
        self.thoughts.setChecked(True)
        self.note = text_label(tone="muted", wraps=True)
        layout.addSpacing(4)
        fill(layout, self.thoughts, self.note)

    def _make_progress(self) -> QWidget:
        self.progress = QWidget()
        self.stage = QLabel(_("Writing…"))
        self.bar = progress_bar(_("Progress of the export"))
        self.trouble = text_label(tone="danger", wraps=True, plain=True)
        self.trouble.hide()
        fill(QVBoxLayout(self.progress), self.stage, self.bar, margins=(0, 6, 0, 6))
        self.progress.hide()
        holder = QWidget()
        fill(QVBoxLayout(holder), self.progress, self.trouble, margins=(0, 0, 0, 0))
        return holder

    def _make_buttons(self) -> FlowLayout:
        self.cancel, self.choose = QPushButton(_("Cancel")), QPushButton(_("Export…"))
        self.choose.setDefault(True)
        self.choose.setProperty("tone", "primary")
        self.cancel.clicked.connect(self.reject)
        self.choose.clicked.connect(self._ask)
        return fill(FlowLayout(), 1, self.choose, self.cancel, margins=(0, 10, 0, 0))

    @property
    def label(self) -> str:
        """The name of the chosen format."""
        return _FORMATS[self._group.checkedId()][0]

    def _into_folder(self) -> bool:
        return len(self.ids) > 1 and _FORMATS[self._group.checkedId()][1] != _OWN

    def _show_choice(self) -> None:
        has_choice = _FORMATS[self._group.checkedId()][1] != _OWN
        self.thoughts.setEnabled(has_choice)
        several = (
            _("Each chat is saved as a separate file in a folder.")
            if self._into_folder()
            else _("All chats are saved in one file.")
        )
        self.note.setText(several if len(self.ids) > 1 else "")
        self.note.setVisible(len(self.ids) > 1)

    def _ask(self) -> None:
        """Ask for a file, or for a folder for several files; the window stays usable."""
        label, suffix, words, _unused = _FORMATS[self._group.checkedId()]

        def begin(chosen: list[Path]) -> None:
            self.begin(label, chosen[0])

        if self._into_folder():
            dialog = ask_folder(self, _("Export to"), begin)
        else:
            name = file_name(self._title if len(self.ids) == 1 else _("Chats")) + suffix
            dialog = ask_save(self, _("Export to"), name, begin, f"{translate(words)} (*{suffix})", suffix)
        dialog.setObjectName("exportTo")

    def begin(self, label: str, target: Path) -> None:
        """A place was chosen."""
        self._busy = True
        self.trouble.hide()
        self._body.hide()
        self.choose.hide()
        self.progress.show()
        self.bar.setRange(0, 0)
        fit_dialog(self, self.width())
        self.export_requested.emit(label, target, self.thoughts.isChecked())

    def show_progress(self, done: int, total: int) -> None:
        """Show the progress."""
        self.bar.setRange(0, max(total, 1))
        self.bar.setValue(done)
        self.stage.setText(_("Writing, {done} %", done=100 * done // max(total, 1)))
        grow_dialog(self)

    def show_trouble(self, sentence: str) -> None:
        """Show why it failed, and let the user choose another place."""
        self._busy = False
        self.trouble.setText(sentence)
        self.trouble.show()
        self.progress.hide()
        self._body.show()
        self.choose.show()
        fit_dialog(self, self.width())

    def reject(self) -> None:
        """Close, and cancel a running export."""
        if self._busy:
            self._busy = False
            self.cancelled.emit()
        super().reject()

    def end(self) -> None:
        """The export is complete."""
        self._busy = False
        self.accept()
