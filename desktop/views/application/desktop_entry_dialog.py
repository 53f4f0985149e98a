"""Offers to add the program to the system's menu of applications, and to remove it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QDialog, QPushButton, QVBoxLayout, QWidget

from desktop import menu_entry
from desktop.services.engine.background import Background
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import fit_dialog
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import announce
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import set_styled, text_label
from engine.words import N_, _, translate

__all__ = ["MenuEntryDialog"]

_ABSENT = N_(
    "Inglenook is not in the applications menu. Add it to start it from there and to open models and "
    "exported chats with a double click in the file manager."
)
_PRESENT = N_("Inglenook is in the applications menu. Add it again if it was moved, or remove it.")


def _outcome(action: Callable[[], str]) -> tuple[bool, str]:
    """Whether it succeeded, and a sentence."""
    try:
        return True, action()
    except menu_entry.EntryError as error:
        return False, str(error)


class MenuEntryDialog(QDialog):
    """Shows whether the program is in the menu; `look` updates that."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(_("Applications menu"))
        self._background: Background | None = None
        self.words = text_label(wraps=True, plain=True)
        self.outcome = text_label(wraps=True, plain=True)
        self.put = QPushButton()
        self.put.setDefault(True)
        self.put.clicked.connect(lambda: self._do(menu_entry.install))
        self.take = QPushButton(_("Remove"))
        self.take.setAutoDefault(False)
        self.take.clicked.connect(lambda: self._do(menu_entry.uninstall))
        self.shut = QPushButton(_("Close"))
        self.shut.setAutoDefault(False)
        self.shut.clicked.connect(self.reject)
        line = fill(FlowLayout(), 1, self.put, self.take, self.shut)
        layout = fill(QVBoxLayout(self), self.words, self.outcome, line)
        dialog_margins(layout)
        self.look()

    def look(self) -> None:
        """Check whether it is there."""
        present = menu_entry.installed()
        self.words.setText(translate(_PRESENT) if present else translate(_ABSENT))
        self.put.setText(_("Add again") if present else _("Add"))
        self.take.setVisible(present)
        self._say("", "")

    def _say(self, sentence: str, tone: str) -> None:
        self.outcome.setText(sentence)
        self.outcome.setVisible(bool(sentence))
        set_styled(self.outcome, "tone", tone)
        fit_dialog(self, self.fontMetrics().averageCharWidth() * 62)

    def _do(self, action: Callable[[], str]) -> None:
        if self._background is not None:
            return
        for button in (self.put, self.take):
            button.setEnabled(False)
        self._background = Background("menu entry", self)  # it starts programs
        self._background.call(
            lambda _stop: _outcome(action),
            lambda outcome: self._end(outcome[1], "muted" if outcome[0] else "danger"),
            lambda sentence, _details: self._end(sentence, "danger"),
        )

    def _end(self, sentence: str, tone: str) -> None:
        self._end_thread()
        for button in (self.put, self.take):
            button.setEnabled(True)
        self.look()
        self._say(sentence, tone)
        announce(self, sentence)

    def _end_thread(self) -> None:
        if self._background is not None:
            self._background.close()
            self._background.deleteLater()
            self._background = None

    def closeEvent(self, event: QCloseEvent) -> None:
        self._end_thread()
        super().closeEvent(event)
