"""Help > Check for updates: what is new, its installation, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QMessageBox, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from desktop.services.system.updates import UpdateService
from desktop.views.dialogs.message_box import question_box
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import fit_dialog
from desktop.views.layout.spacing import dialog_margins
from desktop.views.transcript.links import LinkDialog
from desktop.views.transcript.rendering.markdown import SafeDocument, set_markdown
from desktop.views.transcript.style import TranscriptColours, make_style
from desktop.views.widgets.banner import announce
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.progress_bar import progress_bar
from desktop.views.widgets.text_label import text_label
from engine.errors import DownloadError
from engine.units import size_text
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.hub.updates.manifest import Update

__all__ = ["UpdateDialog"]

_NO_ADDRESS = N_("This copy of Inglenook was built without an address for updates.")
_BACK = N_(
    "The version that you used before the last update is restored. If the newer version has changed the "
    "format of your chats, the previous version cannot open them and says so; then install the newer version "
    "again."
)


class _Notes(QTextBrowser):
    """Markdown in the colours and sizes of a chat; a link is opened outside only after the reader agreed."""

    def __init__(self) -> None:
        super().__init__()
        self._source, self._shown = "", SafeDocument()
        self._shown.setDocumentMargin(6)
        self._shown.setParent(self)
        self.setDocument(self._shown)
        self.setOpenLinks(False)
        self.anchorClicked.connect(lambda address: LinkDialog.ask(self, address.toString()))
        self.setProperty("tone", "field")
        self.setTabChangesFocus(True)
        self.setAccessibleName(_("What's new"))

    def show_markdown(self, source: str) -> None:
        """Show this instead of what is there."""
        self._source = source
        style = make_style(self.font(), 100, TranscriptColours.from_palette(self.palette()))
        set_markdown(self._shown, source, style)

    def changeEvent(self, event: QEvent) -> None:
        """Follow theme and text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and self._source:
            self.show_markdown(self._source)


class UpdateDialog(QDialog):
    """Checks at once, if this program can. `restart_requested()`: the user wants the new version now."""

    restart_requested = Signal()

    def __init__(self, updates: UpdateService, parent: QWidget, found: Update | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("updateDialog")
        self.setWindowTitle(_("Updates"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._updates, self._found = updates, found
        self.words = text_label(wraps=True, plain=True)
        self.advice = text_label(updates.api.advice(), "muted", wraps=True, plain=True)
        self.advice.setVisible(bool(self.advice.text()))
        self.notes = _Notes()
        self.bar = progress_bar(_("Download of the update"))
        self.back = QPushButton(_("Roll back…"))
        self.back.clicked.connect(self._ask_back)
        self.act, self.shut = QPushButton(), QPushButton(_("Close"))
        self.act.setProperty("tone", "primary")
        self.act.clicked.connect(self._on_act)
        self.shut.clicked.connect(self.reject)
        for button in (self.back, self.shut):
            button.setAutoDefault(False)
        line = fill(FlowLayout(), self.back, 1, self.act, self.shut)
        layout = fill(QVBoxLayout(self), self.words, (self.notes, 1), self.bar, self.advice, line)
        dialog_margins(layout)
        updates.checked.connect(self.show_found)
        updates.failed.connect(self._on_failed)
        updates.progress.connect(self._on_progress)
        updates.installed.connect(self._on_installed)
        updates.stopped.connect(self._on_stopped)
        self.notes.hide()
        if found is not None:
            self.show_found(found)
        elif updates.api.can_check():
            self.check()
        else:
            self._show(
                _(
                    "This is Inglenook {version}. {no_address}",
                    version=updates.api.version,
                    no_address=translate(_NO_ADDRESS),
                ),
                "",
            )

    def check(self) -> None:
        """Ask for the latest version."""
        self._show(_("Checking for the latest version…"), "")
        self.bar.setRange(0, 0)
        self.bar.show()
        self._updates.check()

    @Slot(object)
    def show_found(self, update: Update | None) -> None:
        """Show the newer version, or that there is none."""
        self._found = update
        if update is None:
            self._show(_("Inglenook {version} is the latest version.", version=self._updates.api.version), "")
            return
        self.notes.show_markdown(update.notes)
        self.notes.show()
        parent = self.parentWidget()
        room = parent.size() if parent is not None else self.size()
        self.resize(min(max(self.width(), 480), room.width()), min(max(self.height(), 320), room.height()))
        can = not self.advice.text()
        self._show(
            _(
                "Inglenook {version} ({published}) is available. You have {version_2}.",
                version=update.version,
                published=update.published,
                version_2=self._updates.api.version,
            ),
            _("Install") if can else "",
        )

    def _show(self, words: str, act: str) -> None:
        self.words.setText(words)
        announce(self, words)
        self.bar.hide()
        self.act.setText(act)
        self.act.setVisible(bool(act))
        self.back.setVisible(self._updates.api.before() is not None)
        self.shut.setText(_("Close"))
        first = self.act if act else self.shut
        first.setDefault(True)  # Enter presses it, wherever the focus is
        if self.isVisible():
            first.setFocus()
        if self.notes.isHidden():
            fit_dialog(self, self.fontMetrics().averageCharWidth() * 70)

    def showEvent(self, event: QShowEvent) -> None:
        """The focus is on the button that Enter presses."""
        super().showEvent(event)
        (self.act if self.act.isVisible() else self.shut).setFocus()

    @Slot()
    def _on_act(self) -> None:
        if self.act.text() == _("Restart now"):
            self.accept()
            self.restart_requested.emit()
        elif self._found is None:
            self.check()
        else:
            self.act.hide()
            self.back.hide()
            self.shut.setText(_("Cancel"))
            self.bar.setRange(0, 0)
            self.bar.show()
            self._updates.install(self._found)

    @Slot(str, object, object)
    def _on_progress(self, stage: str, done: int, total: int) -> None:
        self.words.setText(
            _("{stage}: {size} of {size_2}", stage=stage, size=size_text(done), size_2=size_text(total))
        )
        self.bar.setRange(0, 1000)
        self.bar.setValue(done * 1000 // max(1, total))

    @Slot()
    def _on_installed(self) -> None:
        version = self._found.version if self._found is not None else ""
        self.notes.hide()
        self._show(
            _("Inglenook {version} is installed and will be used from the next start.", version=version),
            _("Restart now"),
        )

    @Slot(str)
    def _on_failed(self, sentence: str) -> None:
        self._show(sentence, _("Try again"))

    @Slot()
    def _on_stopped(self) -> None:
        self._show(
            _("The update was stopped. What was downloaded is kept for the next attempt."), _("Try again")
        )

    def _ask_back(self) -> None:
        question = _("Go back to the previous version?")
        box = question_box(self, question, translate(_BACK), "backQuestion", _("Updates"))
        agree = box.addButton(_("Go back"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(QMessageBox.StandardButton.Cancel)
        agree.clicked.connect(self._go_back)
        box.finished.connect(box.deleteLater)
        box.open()

    def _go_back(self) -> None:
        try:
            self._updates.api.roll_back()
        except DownloadError as error:
            self._show(str(error), "")
            return
        self.notes.hide()
        self._show(
            _("The previous version is restored and will be used from the next start."), _("Restart now")
        )

    def done(self, result: int) -> None:
        """Closing stops what runs."""
        self._updates.stop()
        super().done(result)
