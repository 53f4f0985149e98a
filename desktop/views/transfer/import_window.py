"""The window of an import: its progress, then its result."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QGridLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from desktop.services.transfer.transfer_report import MOST_BROKEN, ImportReport
from desktop.store.transfer.records import LeftOut
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import fit_dialog
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import announce
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.progress_bar import progress_bar
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from engine.units import number_text
from engine.words import N_, _, ngettext, translate

__all__ = ["ImportWindow", "summary"]

_ROWS = (
    ("new", N_("New chats")),
    ("extended", N_("Chats with new or changed messages")),
    ("known", N_("Already imported")),
    ("trashed", N_("In the trash, not imported")),
    ("broken_count", N_("Unreadable")),
)


def summary(report: ImportReport) -> str:
    """The heading of an import's result."""
    if report.trouble:
        return _("The import stopped early")
    if report.cancelled:
        return _("The import was cancelled")
    came = report.new + report.extended
    if not came and not report.known and not report.trashed:
        return _("No chats were found")
    if not came:
        return (
            _("All of these chats have already been imported")
            if not report.trashed
            else _("Nothing new was found")
        )
    return ngettext("{n} chat was imported", "{n} chats were imported", came)


def _counted(found: LeftOut) -> str:
    if found.files:
        return ngettext("{n} file", "{n} files", found.count)
    return ngettext("{n} chat", "{n} chats", found.count)


class ImportWindow(QDialog):
    """`open_requested(int)`: show an imported conversation. `cancel_requested()`."""

    open_requested = Signal(int)
    cancel_requested = Signal()

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("importWindow")
        self.setWindowTitle(_("Import chats"))
        self._report = ImportReport()
        self._running = True
        self.heading = text_label(_("Importing {name}", name=name), "heading", wraps=True, plain=True)
        self.bar = progress_bar(_("Progress of the import"))
        self.bar.setRange(0, 1000)
        self.so_far = text_label(_("You can continue chatting in the meantime."), "muted", wraps=True)
        self.trouble = text_label(tone="danger", wraps=True, plain=True)
        self.trouble.hide()
        self.left_out = text_label(tone="muted", wraps=True, plain=True)
        self.left_out.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.left_out.hide()
        body, counts, broken = QWidget(), self._make_counts(), self._make_broken()
        parts = (self.heading, self.bar, self.so_far, self.trouble, counts, self.left_out, broken)
        fill(QVBoxLayout(body), *parts, 1, margins=(0, 0, 0, 0))
        dialog_margins(fill(QVBoxLayout(self), (DialogBody(body), 1), self._make_buttons()))
        fit_dialog(self, 520)

    def _make_counts(self) -> QWidget:
        self.counts = QWidget()
        grid = QGridLayout(self.counts)
        grid.setContentsMargins(0, 4, 0, 4)
        grid.setHorizontalSpacing(16)
        grid.setColumnStretch(1, 1)
        self._numbers: dict[str, tuple[QLabel, QLabel]] = {}
        for row, (name, words) in enumerate(_ROWS):
            number, label = QLabel(), text_label(translate(words), wraps=True)
            number.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            grid.addWidget(number, row, 0)
            grid.addWidget(label, row, 1)
            self._numbers[name] = (number, label)
        self.counts.hide()
        return self.counts

    def _make_broken(self) -> QWidget:
        self.broken = QPlainTextEdit()
        self.broken.setProperty("tone", "field")
        self.broken.setReadOnly(True)
        self.broken.setTabChangesFocus(True)
        self.broken.setAccessibleName(_("Unreadable items, with their location and the reason"))
        self.broken.setMinimumHeight(130)
        self.broken.hide()
        return self.broken

    def _make_buttons(self) -> FlowLayout:
        self.copy, self.show_chats, self.close_button = (
            QPushButton(_("Copy list")),
            QPushButton(_("Open chat")),
            QPushButton(_("Cancel")),
        )
        self.copy.setToolTip(_("Copy the list of unreadable items, with their location and the reason."))
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.broken.toPlainText()))
        self.show_chats.clicked.connect(self._open)
        self.close_button.clicked.connect(self.reject)
        self.copy.hide()
        self.show_chats.hide()
        return fill(FlowLayout(), self.copy, 1, self.show_chats, self.close_button)

    def show_report(self, report: ImportReport) -> None:
        """Show the progress."""
        self.bar.setValue(round(1000 * report.share))
        came = report.new + report.extended
        parts = [
            ngettext("{n} chat so far", "{n} chats so far", came),
            _("{known:,} already imported", known=report.known) if report.known else "",
        ]
        parts.append(
            _("{broken_count:,} unreadable", broken_count=report.broken_count) if report.broken_count else ""
        )
        self.so_far.setText(
            _(
                "{counts}. You can continue chatting in the meantime.",
                counts=", ".join(part for part in parts if part),
            )
        )
        fit_dialog(self, self.width())

    def show_end(self, report: ImportReport) -> None:
        """Show the result."""
        self._running, self._report = False, report
        self.heading.setText(summary(report))
        announce(self, summary(report))
        self.bar.hide()
        self.so_far.setVisible(report.cancelled)
        self.so_far.setText(_("The chats imported until then are in the list of chats."))
        self.trouble.setText(report.trouble)
        self.trouble.setVisible(bool(report.trouble))
        for name, labels in self._numbers.items():
            count = getattr(report, name)
            labels[0].setText(number_text(count))
            for label in labels:
                label.setVisible(bool(count))
        other = any(getattr(report, name) for name in self._numbers if name != "new")
        self.counts.setVisible(other or bool(report.new and (report.trouble or report.cancelled)))
        lines_left = [
            _("{sentence} ({count}).", sentence=found.what, count=_counted(found))
            for found in report.left_out
        ]
        self.left_out.setText("\n".join(lines_left))
        self.left_out.setVisible(bool(lines_left))
        lines = [f"{found.place}: {found.reason}" for found in report.broken]
        if report.broken_count > MOST_BROKEN:
            lines.append(_("and {broken_count:,} more", broken_count=report.broken_count - MOST_BROKEN))
        self.broken.setPlainText("\n".join(lines))
        self.broken.setVisible(bool(lines))
        self.copy.setVisible(bool(lines))
        self.show_chats.setVisible(bool(report.first))
        self.show_chats.setText(
            _("Open chat") if report.new + report.extended + report.known == 1 else _("Open the first chat")
        )
        self.close_button.setText(_("Close"))
        ends_here = self.close_button if self.show_chats.isHidden() else self.show_chats
        ends_here.setDefault(True)
        ends_here.setFocus()
        fit_dialog(self, self.width())

    def _open(self) -> None:
        self.accept()
        self.open_requested.emit(self._report.first)

    def reject(self) -> None:
        """Cancel a running import, and stay to show its result; afterwards, close."""
        if self._running:
            self.close_button.setEnabled(False)
            self.cancel_requested.emit()
            self.close_button.setEnabled(True)
            return
        super().reject()
