"""The library's second page: recommended models; search the hub, choose a quantisation, and download it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QLineEdit,
    QListView,
    QPushButton,
    QStackedWidget,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from desktop.items.models.hub import ChoicesModel, HubModels
from desktop.items.models.picks import suggestions
from desktop.services.models.hub import HubService
from desktop.views.layout.fill import fill
from desktop.views.models.hub_downloads import DownloadList
from desktop.views.models.hub_token import TokenLine
from desktop.views.models.picks_panel import PicksPanel
from desktop.views.widgets.combo_box import add_clear_button
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.listening import listen
from desktop.views.widgets.scroll_area import DialogBody, VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.turning_splitter import TurningSplitter
from engine.words import N_, _, ngettext, paragraph, translate

if TYPE_CHECKING:
    from engine.hub import HubChoice, HubModel, Pick, Picks
    from engine.models.memory.fit import Fit

__all__ = ["HubPage"]

WELCOME = N_(
    "Search for a model by name, or leave the box empty to see the most popular ones. Nothing is "
    "sent until you search or download."
)
OFFLINE = N_("You are working offline. Clear “Work offline” to search and download.")

_NARROW = 60
"""In fewer average characters than this, the list is above the files."""


class HubPage(QWidget):
    """Shows what `service` recommends, finds and downloads; `load_requested(path)` for a finished one.

    `picks_shown(models)`: the recommended models that `show_fits` needs estimates of, as `ModelInfo`s.
    """

    load_requested = Signal(str)
    picks_shown = Signal(object)

    def __init__(self, service: HubService, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._service = service
        self._begun = False
        self.query = QLineEdit()
        self.query.setProperty("tone", "search")
        self.query.setPlaceholderText(_("Search the Hugging Face Hub, for example: qwen3 gguf"))
        self.query.setAccessibleName(_("Search the Hub"))
        add_clear_button(self.query)
        self.go = QPushButton(_("Search"))
        self.offline = QCheckBox(_("Work offline"))
        self.offline.setToolTip(_("Never connect to the Hub."))
        self.note = text_label(translate(WELCOME), wraps=True, plain=True)
        self.found, self.choices = HubModels(self), ChoicesModel(self)
        self.results, self.options = (
            _list(_("Models on the Hub"), self.found),
            _list(_("Available quantisations"), self.choices),
        )
        EmptyState(self.results, _("Search results appear here."))
        EmptyState(self.options, _("Choose a model to see its files."))
        self.about = text_label(tone="muted", wraps=True, plain=True)
        self.about.hide()
        self.get = QPushButton(_("Download"))
        self.get.setProperty("tone", "primary")
        self.picks = PicksPanel()
        self.back = QPushButton(_("Recommended models"))
        self.back.hide()
        self._listed: Picks | None = None
        self._fits: dict[str, Fit] = {}
        self.downloads = DownloadList(service)
        self.token = TokenLine(service)
        self._lay_out()
        self._connect()
        self._show_offline()
        self._show_choice()

    def _lay_out(self) -> None:
        top = fill(FlowLayout(), (self.query, 1), self.go, self.offline)
        right = QWidget()
        side = fill(QVBoxLayout(right), self.about, (self.options, 1), margins=(0, 0, 0, 0))
        side.addWidget(self.get, 0, Qt.AlignmentFlag.AlignLeft)
        split = TurningSplitter((self.results, right), (1, 1), _NARROW)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.picks)
        self._pages.addWidget(split)
        self._downloads_area = VerticalScrollArea(self.downloads)
        self._downloads_area.setObjectName("downloads")
        body = QWidget()
        fill(
            QVBoxLayout(body),
            top,
            fill(FlowLayout(), (self.note, 1), self.back),
            (self._pages, 1),
            self._downloads_area,
            self.token,
            margins=(12, 12, 12, 8),
        )
        fill(QVBoxLayout(self), DialogBody(body), margins=(0, 0, 0, 0))
        self._fit_downloads()

    def _connect(self) -> None:
        service = self._service
        self.query.returnPressed.connect(self.search)
        self.go.clicked.connect(self.search)
        self.offline.clicked.connect(service.set_offline)
        listen(self, service.offline_changed, lambda _on: self._show_offline())
        self.results.selectionModel().currentChanged.connect(self._choose)
        self.options.selectionModel().currentChanged.connect(lambda *_unused: self._show_choice())
        self.options.activated.connect(lambda _index: self._download())
        self.get.clicked.connect(self._download)
        service.found.connect(self._show_found)
        service.chosen.connect(self._show_choices)
        service.picks_loaded.connect(self._show_list)
        service.trouble.connect(self._show_trouble)
        self.back.clicked.connect(self.show_picks)
        self.picks.download_requested.connect(self._get)
        self.picks.load_requested.connect(self.load_requested)
        self.picks.renew_requested.connect(self._renew)
        service.busy_changed.connect(self._show_busy)
        listen(self, service.downloads_changed, lambda _downloads: self._downloads_changed())
        self.downloads.load_requested.connect(self.load_requested)

    def showEvent(self, event: QShowEvent) -> None:
        """Load the first time only: reading the token may ask for the keyring's password."""
        super().showEvent(event)
        if not self._begun:
            self._begun = True
            self._service.begin()

    # -- the recommended models

    def show_picks(self) -> None:
        """Show the recommended models instead of what was found."""
        self.back.hide()
        self._pages.setCurrentWidget(self.picks)
        self._show_offline()

    def show_fits(self, fits: Mapping[str, Fit]) -> None:
        """Update how the recommended models fit, by the paths of their `ModelInfo`s."""
        self._fits.update(fits)
        self._suggest()

    def show_here(self, paths: Sequence[str]) -> None:
        """The models on this computer."""
        self.picks.show_here(paths)

    def _show_list(self, listed: Picks) -> None:
        self._listed = listed
        self.picks.renew.setEnabled(True)
        self.picks_shown.emit([pick.info for pick in listed.models])
        self._suggest()

    def _suggest(self) -> None:
        if self._listed is not None:
            found = suggestions(self._listed.models, self._fits)
            known = any(pick.info.path in self._fits for pick in self._listed.models)
            self.picks.show_suggestions(found, known, self._listed.updated)

    def _get(self, pick: Pick) -> None:
        if self._service.offline:
            self.picks.show_trouble(translate(OFFLINE))
        else:
            self._service.download(pick.choice)

    def _renew(self) -> None:
        if self._service.offline:
            self.picks.show_trouble(translate(OFFLINE))
        else:
            self.picks.renew.setEnabled(False)
            self._service.renew_picks()

    # -- searching

    def search(self) -> None:
        """Search the hub for the typed text."""
        if not self._service.offline:
            self._pages.setCurrentIndex(1)
            self.back.show()
            self.found.set_rows([])
            self._clear_choices()
            self._say(_("Searching…"))
            self._service.search(self.query.text().strip())

    def _show_about(self, words: str) -> None:
        """Show a text about the selected model; without one the lists begin at the same height."""
        self.about.setText(words)
        self.about.setVisible(bool(words))

    def _show_found(self, query: str, models: list[HubModel]) -> None:
        self.found.set_rows(models)
        if models:
            found = ngettext("{n} model found.", "{n} models found.", len(models))
            self._say(_("{found} Choose one to see its files.", found=found))
            self.results.setFocus()
        elif query:
            self._say(_("The Hub has no text models for “{query}” that can run here.", query=query))
        else:
            self._say(_("The Hub has no text models that can run here."))

    def _choose(self, index: QModelIndex) -> None:
        model = self.found.model(index.row()) if index.isValid() else None
        self._clear_choices()
        if model is not None:
            self._show_about(_("Looking up the files of {id}…", id=model.id))
            self._service.ask_choices(model.id)

    def _show_choices(self, model_id: str, choices: list[HubChoice]) -> None:
        self.choices.set_rows(choices)
        best = self.choices.recommended()
        gated = next((model.gated for model in self.found.models() if model.id == model_id), False)
        words = _(
            "Choose a file of {model_id}. Larger files give better replies but run slower.", model_id=model_id
        )
        if gated:
            words = paragraph(
                words, _("First accept the model author's terms on the model's page and enter a token here.")
            )
        self._show_about(words)
        self.options.setCurrentIndex(self.choices.index(max(best, 0)))
        self._show_choice()

    def _clear_choices(self) -> None:
        self.choices.set_rows([])
        self._show_about("")
        self._show_choice()

    def _show_trouble(self, what: str, sentence: str) -> None:
        if what == "choices":
            self._show_about(sentence)
        elif what == "picks":
            self.picks.renew.setEnabled(True)
            self.picks.show_trouble(sentence)
        else:
            self._say(sentence, "danger")

    def _show_busy(self, busy: bool) -> None:
        self.go.setEnabled(not self._service.offline)
        self.results.setCursor(Qt.CursorShape.BusyCursor if busy else Qt.CursorShape.ArrowCursor)

    def _say(self, text: str, tone: str = "muted") -> None:
        self.note.setText(text)
        set_styled(self.note, "tone", tone)

    # -- downloading

    def _choice(self) -> HubChoice | None:
        index = self.options.currentIndex()
        return self.choices.choice(index.row()) if index.isValid() else None

    def _show_choice(self) -> None:
        choice = self._choice()
        self.get.setText(_("Download {title}", title=choice.title) if choice is not None else _("Download"))
        self.get.setEnabled(choice is not None and choice.fits_disk and not self._service.offline)
        self.get.setToolTip(
            "" if choice is None or choice.fits_disk else _("There is not enough disk space.")
        )

    def _download(self) -> None:
        choice = self._choice()
        if choice is not None and self.get.isEnabled():
            self._service.download(choice)

    def _downloads_changed(self) -> None:
        self.downloads.show_downloads(self._service.downloads)
        self.picks.show_downloads(self._service.downloads)
        self._fit_downloads()

    def _fit_downloads(self) -> None:
        """As high as the downloads, but at most three of them."""
        height = self.downloads.minimumSizeHint().height()
        row = self.fontMetrics().height() * 5
        self._downloads_area.setVisible(bool(self._service.downloads))
        self._downloads_area.setFixedHeight(min(height, 3 * row) + 4)

    # -- the switch

    def _show_offline(self) -> None:
        offline = self._service.offline
        self.offline.setChecked(offline)
        self._say(translate(OFFLINE) if offline else translate(WELCOME))
        for widget in (self.query, self.go):
            widget.setEnabled(not offline)
        self._show_choice()


class _AsWideAsTheView(QStyledItemDelegate):
    """Elides long lines instead of making the list wider."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(0, super().sizeHint(option, index).height())


def _list(name: str, model: HubModels | ChoicesModel) -> QListView:
    view = QListView()
    view.setObjectName("hubList")
    view.setAccessibleName(name)
    view.setModel(model)
    view.setItemDelegate(_AsWideAsTheView(view))
    view.setUniformItemSizes(True)
    view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    view.setTextElideMode(Qt.TextElideMode.ElideRight)
    view.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
    return view
