"""The dialog with the prompts or the resources of tool servers, of which the user chooses one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from desktop.services.tools.events import Part
from desktop.services.tools.servers import Offer, OfferedPrompt
from desktop.services.tools.tool_service import ToolService
from desktop.views.layout.bidi import isolated
from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import SCALE, dialog_margins
from desktop.views.layout.tab_order import TabOrder
from desktop.views.widgets.banner import announce
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from desktop.views.widgets.listening import listen
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from engine.printable import one_line
from engine.words import _

__all__ = ["OfferDialog"]

_ID = Qt.ItemDataRole.UserRole


class OfferDialog(QDialog):
    """Shows `offers`, all of them prompts or all of them resources, and fetches the chosen one from its
    server. A prompt's arguments are filled in here.

    `arrived(parts)`: a tuple of `Part`; the dialog is closed then.
    """

    arrived = Signal(object)

    def __init__(self, offers: Sequence[Offer], service: ToolService, parent: QWidget) -> None:
        super().__init__(parent)
        self._offers, self._service = tuple(offers), service
        self._number = 0
        self._tabs = TabOrder(self)
        prompts = isinstance(self._offers[0], OfferedPrompt)
        self.setWindowTitle(_("Insert a prompt") if prompts else _("Attach a resource"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.search = QLineEdit()
        self.search.setClearButtonEnabled(True)
        self.search.setPlaceholderText(_("Search"))
        self.search.setAccessibleName(_("Search"))
        self.list = QListWidget()
        self.list.setObjectName("hubList")
        self.list.setAccessibleName(
            _("Prompts of tool servers") if prompts else _("Resources of tool servers")
        )
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.about = text_label(tone="muted", wraps=True, plain=True)
        self.fields: dict[str, GrowingTextEdit] = {}
        self._area = VerticalScrollArea(QWidget())
        self.state = text_label(wraps=True, plain=True)
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        words = _("Insert") if prompts else _("Attach")
        self.go = self.buttons.addButton(words, QDialogButtonBox.ButtonRole.AcceptRole)
        self.go.setProperty("tone", "primary")
        self.go.setDefault(True)
        self._fill()
        self._connect()
        dialog_margins(
            fill(
                QVBoxLayout(self), self.search, (self.list, 3), self.about, (self._area, 2), self.state,
                self.buttons,
            )
        )  # fmt: skip
        self.resize(min(520, max(340, parent.width() - 40)), min(520, max(320, parent.height() - 40)))
        self._show_offer()
        self.search.setFocus()

    def _fill(self) -> None:
        self.list.ensurePolished()  # else all rows but the first are too low
        several = len({offer.server for offer in self._offers}) > 1
        for number, offer in enumerate(self._offers):
            words = isolated(one_line(offer.title))
            item = QListWidgetItem(
                f"{words}  ·  {isolated(one_line(offer.server))}" if several else words, self.list
            )
            item.setData(_ID, number)
        self.list.setCurrentRow(0)

    def _connect(self) -> None:
        self.search.textChanged.connect(self._find)
        self.list.currentItemChanged.connect(lambda *_unused: self._show_offer())
        self.list.itemDoubleClicked.connect(lambda _item: self._fetch())
        self.buttons.accepted.connect(self._fetch)
        self.buttons.rejected.connect(self.reject)
        listen(self, self._service.fetched, self._on_fetched)

    def _offer(self) -> Offer | None:
        item = self.list.currentItem()
        return self._offers[item.data(_ID)] if item is not None and not item.isHidden() else None

    def _find(self, text: str) -> None:
        """Show the offers that have all words of `text` in their name, server or description."""
        words = text.casefold().split()
        first = None
        with QSignalBlocker(self.list):
            for row, offer in enumerate(self._offers):
                known = f"{offer.title} {offer.server} {offer.description}".casefold()
                hidden = not all(word in known for word in words)
                self.list.item(row).setHidden(hidden)
                if not hidden and first is None:
                    first = row
            current = self.list.currentItem()
            if first is not None and (current is None or current.isHidden()):
                self.list.setCurrentRow(first)
        self._show_offer()

    def _show_offer(self) -> None:
        offer = self._offer()
        about = one_line(offer.description) if offer is not None else _("Nothing is found.")
        self.about.setText(breakable(about))
        self.about.setAccessibleName(about)
        self.about.setVisible(bool(about))
        self._show_fields(offer)
        self._say("")
        self.go.setEnabled(offer is not None)

    def _show_fields(self, offer: Offer | None) -> None:
        self.fields = {}
        body = QWidget()
        body.setObjectName("dialogBody")
        form = QFormLayout(body)
        form.setContentsMargins(0, 0, 0, 0)
        form.setVerticalSpacing(SCALE[1])
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for argument in offer.arguments if isinstance(offer, OfferedPrompt) else ():
            words = one_line(argument.title)
            if not argument.required:
                words = _("{name} (optional)", name=words)
            field = self.fields[argument.name] = GrowingTextEdit(words, least=1, most=4)
            field.setPlaceholderText(one_line(argument.description))
            field.setTabChangesFocus(True)
            field.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)  # as high as its text
            label = QLabel(isolated(words).replace("&", "&&"))
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setBuddy(field)
            form.addRow(label, field)
        self._area.setWidget(body)
        self._area.setVisible(bool(self.fields))
        self._tabs.renew()

    def _fetch(self) -> None:
        offer = self._offer()
        if offer is None or self._number:
            return
        if isinstance(offer, OfferedPrompt):
            for argument in offer.arguments:
                if argument.required and not self.fields[argument.name].text().strip():
                    self._say(_("“{name}” is empty. Fill it in.", name=one_line(argument.title)), "danger")
                    self.fields[argument.name].setFocus()
                    return
            values = {name: field.text() for name, field in self.fields.items() if field.text()}
            self._number = self._service.fetch_prompt(offer.server, offer.name, values)
        else:
            self._number = self._service.fetch_resource(offer.server, offer.uri)
        self._say(_("Waiting for the tool server…"))
        self._wait(True)

    def _on_fetched(self, number: int, parts: tuple[Part, ...], trouble: str) -> None:
        if number != self._number:
            return
        self._number = 0
        self._wait(False)
        if trouble:
            self._say(trouble, "danger")
        else:
            self.arrived.emit(parts)
            self.accept()

    def _wait(self, waits: bool) -> None:
        for widget in (self.go, self.list, self.search, self._area):
            widget.setEnabled(not waits)

    def _say(self, words: str, tone: str = "muted") -> None:
        self.state.setText(breakable(words))
        self.state.setAccessibleName(words)
        self.state.setVisible(bool(words))
        set_styled(self.state, "tone", tone)
        if words:
            announce(self, words)

    def done(self, result: int) -> None:
        """Close; nothing is inserted or attached later."""
        if self._number:
            self._service.cancel(self._number)
            self._number = 0
        super().done(result)
