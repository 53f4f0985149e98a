"""Connects the context bar, the plot of figures and the costs of editing with their services."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from desktop.items.chats.reply_stats import figures
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context_meter import ContextMeter, Measured
from desktop.services.system.debounce import debounce
from desktop.store.database.database import StoreError
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.chat.context_meter import ContextBar
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.listening import listen
from engine.words import _

if TYPE_CHECKING:
    from desktop.views.chat.stats_dialog import StatsDialog

__all__ = ["ContextController"]

_SOON_MS = 100


class ContextController(QObject):
    """Puts the context bar and the plot's button into the status line of `chat`.

    `draft()` is all unsent text and attachments.
    """

    def __init__(
        self,
        session: ChatSession,
        meter: ContextMeter,
        chat: ChatPane,
        draft: Callable[[], str],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._session, self._meter, self._chat, self._parent = session, meter, chat, parent
        self.bar = ContextBar()
        self.button = IconButton("chart", _("Chat statistics"))
        self.button.setObjectName("statusTool")
        self.button.clicked.connect(self.open_figures)
        self.figures: StatsDialog | None = None
        chat.status.add_tool(self.bar)
        chat.status.add_tool(self.button)
        meter.changed.connect(self._on_measured)
        self._soon = debounce(self, lambda: meter.set_draft(draft()), _SOON_MS)
        chat.composer.box.textChanged.connect(self.draft_changed)
        listen(self, session.prompt_changed, meter.prompt_changed)
        session.stats_changed.connect(self._show_figures)
        session.conversation_changed.connect(self._show_figures)
        session.conversation_changed.connect(self._show_bar)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands about figures and context."""
        return {"figures": self.open_figures, "context": self.show_context}

    @Slot()
    def open_figures(self) -> None:
        """Show the figures of the open chat's replies."""
        if self.figures is None:
            from desktop.views.chat.stats_dialog import StatsDialog  # when it is first opened

            self.figures = StatsDialog(self._parent)
            self.figures.chosen.connect(self._chat.message_commands.open_message)
        self._fill()
        self.figures.show()
        self.figures.raise_()
        self.figures.activateWindow()
        self.figures.plot.setFocus()

    def show_context(self) -> None:
        """Show the popup of the context bar."""
        self.bar.click()

    @Slot(object)
    def _on_measured(self, now: Measured) -> None:
        self.bar.show_measured(now)

    @Slot()
    def _show_bar(self) -> None:
        """A notebook's page has a count of its own."""
        self._chat.status.show_tool(self.bar, not self._session.notebook)

    @Slot()
    def draft_changed(self) -> None:
        """Measure the changed draft soon: with large files it takes a while to put together."""
        if not self._soon.isActive():
            self._soon.start()

    @Slot()
    def _show_figures(self) -> None:
        if self.figures is not None and self.figures.isVisible():
            self._fill()

    def _fill(self) -> None:
        conversation = self._session.conversation
        if self.figures is None:
            return
        try:
            path = self._session.stores.of(conversation).path(conversation) if conversation else ()
        except StoreError as error:
            self._chat.show_notice(str(error), "error")
            return
        self.figures.plot.show_figures(figures(path))
