"""Connects comparisons with the window: the page in the place of the transcript, the dialog, the commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.chats.messages import MessageItem
from desktop.items.models.local_models import model_name
from desktop.services.comparison.columns import Column
from desktop.services.comparison.comparison import ComparisonService
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.several import ColumnSettings
from desktop.services.system.debounce import debounce
from desktop.settings import Appearance, Behaviour
from desktop.store.attachments.message_format import auto_source
from desktop.store.settings.presets import all_presets
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.composer.controller import ComposerController
from desktop.views.personas.controller import PersonaController
from desktop.views.widgets.listening import listen
from engine.settings import Settings
from engine.words import _

if TYPE_CHECKING:
    from desktop.views.comparison.dialog import CompareDialog, Offers
    from desktop.views.comparison.page import ComparisonPage

__all__ = ["ComparisonController"]

_PROMPT_CHARACTERS = 200


class ComparisonController(QObject):
    """Makes the page when replies are first compared; `page` is None before that.

    Signals:
        page_made(object): the page.
        details_requested(int message): what produced a reply is to be shown.
        load_requested(str path): a model is to be loaded.
    """

    page_made = Signal(object)
    details_requested = Signal(int)
    load_requested = Signal(str)

    def __init__(
        self,
        session: ChatSession,
        comparisons: ComparisonService,
        chat: ChatPane,
        composer: ComposerController,
        personas: PersonaController,
        local_models: LocalModelsService,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._session, self._comparisons, self._chat = session, comparisons, chat
        self._composer, self._personas, self._local_models = composer, personas, local_models
        self.page: ComparisonPage | None = None
        self.dialog: CompareDialog | None = None
        self._last: Sequence[ColumnSettings] = (ColumnSettings(), ColumnSettings())
        composer.write_several = comparisons.submit
        comparisons.opened.connect(self._show)
        comparisons.closed.connect(self._show)
        session.conversation_changed.connect(self._show)
        self._begun = set[int]()
        self._soon = debounce(self, self._look)  # the columns know their messages then
        session.replies.begun.connect(self._on_begun)
        listen(self, session.model_changed, lambda _model: self._on_settings(Appearance))
        session.settings_changed.connect(self._on_settings)
        chat.transcript.action.connect(self._act)
        chat.composer.previous_requested.connect(self._leave)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that have several replies written, or put versions side by side."""
        return {"several": self.write_several, "compare": self.compare, "versions": self.compare_versions}

    def run(self, name: str) -> bool:
        """Run a command of the transcript for the replies side by side; False if it is still to be run."""
        page = self.page
        if page is None or page.comparison is None:
            return False
        if name == "find":
            page.open_find()
        elif name == "tokens":
            page.leave()
        return name == "find"

    # -- what the user asks for

    def write_several(self) -> None:
        """Have several replies with different seeds written to the last message, or to the text in the
        message box.
        """
        if self._text():
            drawn = self._comparisons.seeded(self._session.settings(Behaviour).several)
            if drawn:
                self._composer.send_several(drawn)
        elif (item := self._last_item()) is not None:
            self._several(item.id)

    def compare(self) -> None:
        """Ask how replies to the last message, or to the text in the message box, are to be written."""
        item = self._last_item()
        if self._text():
            self._ask(0, self._text())
        elif item is not None:
            self._ask(item.id, self._prompt_of(item))

    def compare_versions(self) -> None:
        """Put the versions of the last reply side by side."""
        reply = self._chat.message_commands.last_reply()
        if reply is not None:
            self._comparisons.show_versions(reply.id)

    def _several(self, message: int) -> None:
        self._comparisons.write_several(message, self._session.settings(Behaviour).several)

    @Slot(str, int)
    def _act(self, name: str, message: int) -> None:
        if name == "several":
            self._several(message)
        elif name == "compare":
            self._ask(message, self._prompt_of(self._session.messages.item(message)))
        elif name == "versions":
            self._comparisons.show_versions(message)

    def _text(self) -> str:
        """What would be sent now."""
        return self._composer.message(self._chat.composer.text()).strip()

    def _last_item(self) -> MessageItem | None:
        items = self._session.messages.items()
        return items[-1] if items else None

    def _prompt_of(self, item: MessageItem) -> str:
        """The text that is answered by a reply, or that of a user's message."""
        items = self._session.messages.items()
        place = self._session.messages.row(item.id)
        return items[place - 1].text if item.role == "assistant" and place else item.text

    def _ask(self, message: int, prompt: str) -> None:
        """Open the dialog; `message` 0 is the text in the message box."""
        if self.dialog is not None:
            self.dialog.activateWindow()
            return
        from desktop.views.comparison.dialog import CompareDialog  # only when needed

        words = " ".join(auto_source(prompt).split())
        words = words if len(words) <= _PROMPT_CHARACTERS else words[: _PROMPT_CHARACTERS - 1] + "…"
        conversation = self._session.conversation
        self.dialog = CompareDialog(self._offers(), self._last, words, self._chat.window())
        self.dialog.chosen.connect(lambda settings: self._begin(conversation, message, settings))
        self.dialog.finished.connect(self._closed)
        self.dialog.open()

    def _offers(self) -> Offers:
        from desktop.views.comparison.dialog import Offers

        session, model = self._session, self._session.model
        loaded = model.path if model is not None else ""
        personas = () if session.participants else self._personas.service.personas()
        return Offers(
            [preset.name for preset in all_presets(session.preferences)],
            [(persona.id, persona.name) for persona in personas],
            [(entry.path, entry.name) for entry in self._local_models.choices
             if not entry.trouble and entry.path != loaded],
        )  # fmt: skip

    def _begin(self, conversation: int, message: int, settings: Sequence[ColumnSettings]) -> None:
        self._last = settings
        if conversation != self._session.conversation:
            return
        if message:
            self._comparisons.begin(message, settings)
        else:
            self._composer.send_several(settings)

    def _closed(self) -> None:
        self.dialog = None

    # -- the page

    @Slot()
    def _show(self) -> None:
        """Show the comparison of the open chat in the place of the transcript, or the transcript."""
        found = self._comparisons.of(self._session.conversation)
        if found is not None and self.page is None:
            self._make_page()
        if self.page is None or found is self.page.comparison:
            return
        self.page.show_comparison(found)
        self.page.setVisible(found is not None)
        self._chat.transcript.setVisible(found is None and not self._session.notebook)
        if found is not None:
            self.page.focus_target().setFocus()
        elif not self._session.notebook:
            self._chat.composer.setFocus()

    def _make_page(self) -> None:
        from desktop.views.comparison.page import ComparisonPage  # only when it is needed

        page = self.page = ComparisonPage(self._session, self._comparisons)
        self._chat.add_page(page)
        self.page_made.emit(page)
        page.details_requested.connect(self.details_requested)
        page.kept.connect(self._on_kept)
        self._on_settings(Appearance)

    @Slot(object, bool)
    def _on_kept(self, column: Column, discarded: bool) -> None:
        """Offer what the user may want next."""
        model, path = self._session.model, column.settings.model
        if path and (model is None or model.path != path):
            name = model_name(path)
            self._chat.banner.show_notice(
                _("This reply was written by {name}, which is not loaded.", name=name), "info",
                offer=(_("Load {name}", name=name), lambda: self.load_requested.emit(path)),
            )  # fmt: skip
        elif discarded:
            self._chat.banner.show_notice(_("The other replies were deleted."), "info", undo=True)

    @Slot()
    def _leave(self) -> None:
        """A message of the chat is to be edited: show the chat."""
        if self.page is not None and self.page.comparison is not None:
            self.page.leave()
            self._chat.message_commands.edit_last_own()

    @Slot(object)
    def _on_settings(self, cls: type[Settings]) -> None:
        if cls is Appearance and self.page is not None:
            look = self._session.settings(Appearance)
            self.page.set_look(self._session.thought_tags, look.unfold_thoughts)

    @Slot(int)
    def _on_begun(self, message: int) -> None:
        reply, page = self._session.replies.growing(message), self.page
        comparison = page.comparison if page is not None else None
        if reply is not None and comparison is not None and reply.conversation_id == comparison.conversation:
            self._begun.add(message)
            self._soon.start(0)

    @Slot()
    def _look(self) -> None:
        """Replies have begun: if one of them is not side by side with the others, show the chat."""
        begun, self._begun = self._begun, set()
        comparison = self.page.comparison if self.page is not None else None
        columns = comparison.columns if comparison is not None else ()
        if self.page is not None and not begun.issubset(column.message for column in columns):
            self.page.leave()
