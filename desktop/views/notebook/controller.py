"""Connects notebooks with the window: the page instead of transcript and message box, commands, search, token
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from desktop.services.composer.document_saver import DocumentSaver
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.settings import Appearance
from desktop.store.conversations.records import SearchHit
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.chat.reply_details_controller import ReplyDetailsController
from desktop.views.settings.settings_pane import Inspector
from desktop.views.widgets.listening import listen
from engine.core import ChatRequest, ChatSource
from engine.settings import Settings
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from desktop.views.notebook.page import NotebookPage

__all__ = ["NotebookController"]

_COUNT_MS = 900
_NO_PROMPT = N_("A notebook is sent to the model as plain text, without a chat template or system prompt.")


class NotebookController(QObject):
    """Makes the page when the first notebook is opened.

    `page` is None before that. `personas` is hidden while a notebook is open.
    """

    def __init__(
        self,
        session: ChatSession,
        chat: ChatPane,
        inspector: Inspector,
        details: ReplyDetailsController,
        personas: QWidget,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._session, self._chat, self._inspector = session, chat, inspector
        self._details, self._personas = details, personas
        self.page: NotebookPage | None = None
        self.saver = DocumentSaver(session, self)
        self.saver.trouble.connect(self._on_trouble)
        self.saver.saved_again.connect(lambda: session.saving.ended("notebook"))
        self._counted = ""
        self._count = debounce(self, self._ask_count, _COUNT_MS)
        listen(self, session.conversation_changed, lambda _conversation: self.show())
        session.document_shown.connect(self._refresh)
        session.settings_changed.connect(self._on_settings)
        session.state_changed.connect(self._on_state)

    def _on_trouble(self, sentence: str) -> None:
        self._session.saving.began("notebook")
        self._chat.show_notice(sentence, "error")

    # -- the page

    @property
    def open_page(self) -> NotebookPage | None:
        """The page while a notebook is open."""
        return self.page if self.page is not None and self.page.document is not None else None

    def show(self) -> None:
        """Show the open notebook's page, or the chat."""
        if self.open_page is not None:
            self.open_page.flush()
        document = self._session.document()
        if document is not None and self.page is None:
            self._make_page()
        was_open = self.open_page is not None
        if self.page is not None:
            self.page.show_document(document)
        opened = document is not None
        if opened != was_open:
            self._exchange(opened)
        if self.open_page is not None:
            self._counted = ""
            self.open_page.bar.show_figures(0, 0)
            self.open_page.editor.setFocus()
            self._count.start()

    def _make_page(self) -> None:
        from desktop.views.notebook.page import NotebookPage  # slow to import: only when it is needed

        page = self.page = NotebookPage(self._session, self.saver)
        self._chat.add_page(page)
        page.changed.connect(self._count.start)
        page.restyled.connect(self._restyle)
        self._restyle()
        self._on_settings(Appearance)

    def _exchange(self, notebook: bool) -> None:
        """Show the page instead of the chat's parts, or the chat's parts instead of the page."""
        if self.page is not None:
            self.page.setVisible(notebook)
        self._chat.transcript.setVisible(not notebook)
        self._chat.composer.setVisible(not notebook)
        self._personas.setVisible(not notebook)
        self._inspector.prompt_field.set_unused(translate(_NO_PROMPT) if notebook else "")

    def _refresh(self) -> None:
        if self.page is not None:
            self.page.flush()
            self.page.show_document(self._session.document())

    def _restyle(self) -> None:
        if self.page is not None:
            self.page.restyle(self._session.settings(Appearance).text_scale)

    def _on_settings(self, cls: type[Settings]) -> None:
        if cls is Appearance and self.page is not None:
            mode = self._session.settings(Appearance).token_colours
            self.page.set_mode("" if mode == "off" else mode)
            self._restyle()

    def close(self) -> None:
        """Save typed text."""
        if self.page is not None:
            self.page.close_page()

    # -- commands

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that create a notebook."""
        return {
            "new_notebook": self._session.new_notebook,
            "new_temporary_notebook": self._session.new_temporary_notebook,
        }

    def run(self, name: str) -> bool:
        """Do a command of the chat in the open notebook's own way; False if there is none, or a chat is open.

        Typed text is saved first.
        """
        page = self.open_page
        if page is None:
            return False
        page.flush()
        own: dict[str, Callable[[], object]] = {
            "regenerate": page.write_again,
            "continue": page.write_on,
            "find": page.finding.open,
            "copy_reply": lambda: self._copy(page),
            "origin": lambda: self._details.open(page.document.message_id) if page.document else None,
        }
        if name in own:
            own[name]()
        return name in own

    def _copy(self, page: NotebookPage) -> None:
        QGuiApplication.clipboard().setText(page.written_text() or page.editor.text())
        self._chat.banner.show_notice(
            _("The last generated text was copied.")
            if page.written_text()
            else _("The document was copied."),
            "info",
        )

    def open_hit(self, hit: SearchHit, words_at: Callable[[str, int], str]) -> bool:
        """Show a search result in the open notebook; False while a chat is open."""
        page = self.open_page
        if page is not None:
            page.finding.go_to(hit.place, words_at(page.editor.text(), hit.place))
        return page is not None

    # -- how long it is

    def _on_state(self, state: str) -> None:
        if state == "idle" and self.open_page is not None:
            self._counted = ""
            self._count.start()

    def _ask_count(self) -> None:
        page, session = self.open_page, self._session
        if page is None or session.model is None or session.state != "idle":
            return
        text = page.editor.text()
        if text == self._counted and text:
            return
        self._counted = text

        def counted(source: ChatSource) -> tuple[int, int]:
            return source.count(text) if text else 0, source.foresee(ChatRequest(())).context_length

        session.ask(counted, lambda answer: self._on_counted(text, answer))

    def _on_counted(self, text: str, answer: tuple[int, int] | None) -> None:
        page = self.open_page
        if text == self._counted and page is not None and answer is not None and not page.editor.streaming:
            page.bar.show_figures(*answer)
