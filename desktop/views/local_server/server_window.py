"""The window of the local server: its switch, its address and token, and who uses it."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QSignalBlocker, Qt, QTimer
from PySide6.QtGui import QGuiApplication, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFormLayout,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from desktop.services.local_server.local_server import LocalServer
from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.wheel_guard import guard_wheel
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.units import number_text, rate_text, seconds_text
from engine.words import N_, _, ngettext, translate

__all__ = ["LocalServerWindow"]

_LOOK_MS = 1000
_ABOUT = N_(
    "Programs that use the API of OpenAI, Anthropic or Ollama can use the model loaded in this window. "
    "Programs for the last two need the address without /v1. Your own chats always come first."
)
_OPEN = N_(
    "Any computer on this network that has the token can use the model: replace 127.0.0.1 with this "
    "computer's name or address. Requests and replies are not encrypted."
)
_NO_MODEL = N_(
    "The server is running. Programs can use it as soon as a model on this computer is loaded in the window."
)
_COLUMNS = (N_("Program"), N_("Request"), N_("Since"), N_("Tokens"), N_("Tokens/s"))
_REQUEST = 1
_BY_IMPORTANCE = (0, 4, 2, 3)
"""The other columns: the last ones are left out where there is no room for them."""
_LEAST_REQUEST = 14
"""Characters of a request that are shown at least; the rest is in its tip."""


class LocalServerWindow(QDialog):
    """Shows and changes a `LocalServer`."""

    def __init__(self, server: LocalServer, parent: QWidget) -> None:
        super().__init__(parent)
        self._server = server
        self.setWindowTitle(_("Local server"))
        self.setSizeGripEnabled(True)
        self.on = WrappingCheckBox(_("Let other programs use the loaded model"))
        self.network = WrappingCheckBox(_("Allow other computers on the network"))
        self.port = QSpinBox()
        guard_wheel(self, self.port)
        self.port.setRange(0, 65535)
        self.port.setSpecialValueText(_("any free port"))
        self.port.lineEdit().setTextMargins(6, 0, 6, 0)
        self.port.setAccessibleName(_("Port"))
        self.port.setKeyboardTracking(False)
        self.address, self.token = _shown(_("Address")), _shown(_("Token"))
        self.copy_address, self.copy_token = QPushButton(_("Copy")), QPushButton(_("Copy"))
        self.copy_address.setAccessibleName(_("Copy address"))
        self.copy_token.setAccessibleName(_("Copy token"))
        self.renew = QPushButton(_("New token"))
        self.renew.setToolTip(_("Replace the token. Programs that use the old one lose access."))
        self.state = text_label(wraps=True, plain=True)
        self.warning = text_label(translate(_OPEN), tone="warning", wraps=True, plain=True)
        self.visits = _Visits()
        self.end = QPushButton(_("End request"))
        self.shut = QPushButton(_("Close"))
        for button in (self.copy_address, self.copy_token, self.renew, self.end, self.shut):
            button.setAutoDefault(False)
        self._arrange()
        self._timer = QTimer(self)
        self._timer.setInterval(_LOOK_MS)
        self._timer.timeout.connect(self.look)
        self.on.clicked.connect(self._apply)
        self.network.clicked.connect(self._apply)
        self.port.valueChanged.connect(self._apply)
        self.renew.clicked.connect(server.renew_token)
        self.copy_address.clicked.connect(lambda: _copy(self.address))
        self.copy_token.clicked.connect(lambda: _copy(self.token))
        self.end.clicked.connect(self._end)
        self.visits.itemSelectionChanged.connect(self._show_end)
        self.shut.clicked.connect(self.close)
        server.changed.connect(self.show_server)
        self.show_server()
        self.resize(min(640, max(360, parent.width() - 60)), min(520, max(360, parent.height() - 80)))

    def _arrange(self) -> None:
        form = QFormLayout()
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.addRow(_("Port"), fill(QHBoxLayout(), self.port, 1))
        form.addRow(_("Address"), fill(FlowLayout(), (self.address, 1), self.copy_address))
        form.addRow(_("Token"), fill(FlowLayout(), (self.token, 1), self.copy_token, self.renew))
        body = QWidget()
        fill(
            QVBoxLayout(body), text_label(translate(_ABOUT), tone="muted", wraps=True, plain=True), self.on,
            self.network, self.warning, form, self.state, (self.visits, 1), margins=(0, 0, 0, 0),
        )  # fmt: skip
        self.visits.setMinimumHeight(4 * self.fontMetrics().height())
        EmptyState(self.visits, _("Requests from other programs appear here while they are answered."))
        below = fill(FlowLayout(), self.end, 1, self.shut)
        dialog_margins(fill(QVBoxLayout(self), (DialogBody(body), 1), below))

    def show_server(self) -> None:
        """Show what the server is set to and whether it listens."""
        server, settings = self._server, self._server.settings
        for box, on in ((self.on, settings.on), (self.network, settings.network)):
            box.setChecked(on)
        with QSignalBlocker(self.port):
            self.port.setValue(settings.port)
        self.warning.setVisible(settings.network)
        self.address.setText(server.url)
        self.token.setText(settings.token)
        for line in (self.address, self.token):
            line.setCursorPosition(0)  # where it does not fit, its beginning is shown
        for widget in (self.copy_address, self.address):
            widget.setEnabled(bool(server.url))
        for widget in (self.copy_token, self.token, self.renew):
            widget.setEnabled(bool(settings.token))
        self.look()

    def look(self) -> None:
        """Show who uses the server now."""
        server, visits = self._server, self._server.visits()
        chosen = self._chosen()
        self.visits.setRowCount(len(visits))
        for row, visit in enumerate(visits):
            texts = (
                visit.address, isolated(visit.path), seconds_text(visit.seconds), number_text(visit.tokens),
                rate_text(visit.speed) if visit.tokens else _("waiting"),
            )  # fmt: skip
            for column, text in enumerate(texts):
                item = self.visits.item(row, column)
                if item is None:
                    item = QTableWidgetItem()
                    if column > 1:
                        item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                    self.visits.setItem(row, column, item)
                item.setText(text)
                item.setToolTip(text)
                item.setData(Qt.ItemDataRole.UserRole, visit.number)
        self.visits.fit_columns()
        rows = [visit.number for visit in visits]
        self.visits.setCurrentCell(rows.index(chosen) if chosen in rows else -1, 0)
        self._show_end()
        if server.trouble:
            words, tone = server.trouble, "danger"
        elif server.changing:
            words, tone = _("Please wait…"), "muted"
        elif not server.url:
            words, tone = _("The server is off."), "muted"
        elif not visits and not server.has_model:
            words, tone = translate(_NO_MODEL), "muted"
        elif not visits:
            words, tone = _("The server is running. No program is using it."), "muted"
        else:
            count = len(visits)
            words = ngettext("{n} request is being answered.", "{n} requests are being answered.", count)
            tone = ""
        self.state.setText(words)
        set_styled(self.state, "tone", tone)

    def _apply(self) -> None:
        self._server.change(
            dataclasses.replace(
                self._server.settings,
                on=self.on.isChecked(), network=self.network.isChecked(), port=self.port.value(),
            )
        )  # fmt: skip

    def _chosen(self) -> int:
        item = self.visits.item(self.visits.currentRow(), 0) if self.visits.selectedItems() else None
        return int(item.data(Qt.ItemDataRole.UserRole)) if item is not None else 0

    def _end(self) -> None:
        self._server.end_visit(self._chosen())
        self.look()

    def _show_end(self) -> None:
        self.end.setEnabled(bool(self._chosen()))

    def showEvent(self, event: QShowEvent) -> None:
        """Follow who uses the server while the window is visible."""
        super().showEvent(event)
        self.show_server()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Stop following."""
        super().hideEvent(event)
        self._timer.stop()


def _shown(name: str) -> QLineEdit:
    """A line of text to copy."""
    line = QLineEdit()
    line.setReadOnly(True)
    line.setAccessibleName(name)
    return line


def _copy(line: QLineEdit) -> None:
    QGuiApplication.clipboard().setText(line.text())


class _Visits(QTableWidget):
    """The requests that are being answered; nothing scrolls sideways."""

    def __init__(self) -> None:
        super().__init__(0, len(_COLUMNS))
        self.setHorizontalHeaderLabels([translate(title) for title in _COLUMNS])
        self.setAccessibleName(_("Requests being answered"))
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTabKeyNavigation(False)
        self.setWordWrap(False)
        self.verticalHeader().hide()
        header = self.horizontalHeader()
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(_REQUEST, QHeaderView.ResizeMode.Stretch)

    def fit_columns(self) -> None:
        """Show the columns that fit beside the request, which gets the rest."""
        letters = self.horizontalHeader().fontMetrics()
        room = self.viewport().width() - _LEAST_REQUEST * self.fontMetrics().averageCharWidth()
        for column in _BY_IMPORTANCE:
            title = letters.horizontalAdvance(translate(_COLUMNS[column])) + 2 * letters.height()
            room -= max(title, self.sizeHintForColumn(column))
            self.setColumnHidden(column, room < 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit_columns()
