"""Sends what is written in the composer: with its files, into the queue while a reply runs, cut where it is too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from desktop.items.slash import unescaped
from desktop.services.session import ChatSession
from desktop.services.writing import Writing
from desktop.store.attached import join, split
from desktop.views.attachment_desk import PASTED, AttachmentDesk
from desktop.views.chat_pane import BUSY, ChatPane
from desktop.views.offer_bar import OfferBar
from desktop.views.prompt_desk import PromptDesk
from desktop.views.queue_rows import QueueRows
from engine.core import PromptSize

if TYPE_CHECKING:
    from desktop.views.main_window import MainWindow

__all__ = ["WritingDesk"]

_TOO_LONG = "too long"


class WritingDesk(QObject):
    """Stands between the composer and the session; `files` and `prompts` are the desks of attachments and of saved prompts."""

    def __init__(self, writing: Writing, session: ChatSession, chat: ChatPane, window: QWidget) -> None:
        super().__init__(window)
        self._writing, self._session, self._chat = writing, session, chat
        self._asked: tuple[int, str] | None = None
        self._cut = False
        self.offers, self.rows = OfferBar(), QueueRows()
        composer = chat.composer
        composer.add_above(self.rows)
        composer.add_above(self.offers)
        self.files = AttachmentDesk(writing.attachments, session, chat, self.offers, window)
        self.prompts = PromptDesk(writing.prompts, session, chat, window)
        composer.submitted.connect(self.send)
        composer.box.textChanged.connect(self._text_changed)
        writing.attachments.sized.connect(self._on_sized)
        writing.attachments.fitted.connect(self._on_fitted)
        writing.attachments.changed.connect(lambda _conversation: self.offers.take_back(_TOO_LONG))
        writing.queue.changed.connect(self._show_queue)
        session.conversation_changed.connect(lambda _conversation: self._forget())
        self.rows.edited.connect(self._edit_waiting)
        self.rows.removed.connect(self._remove_waiting)
        self.rows.sent.connect(writing.queue.send)
        self._show_queue()

    def begin(self, window: MainWindow) -> None:
        """The window's commands and other takers of files are known now."""
        self.prompts.begin(window.actions_by_name)
        self.prompts.run["model"] = window.picker.showMenu
        window.files.add(lambda path: path.is_file(), self.files.take, "Drop the files here to attach them to your message")

    def handlers(self) -> dict[str, Callable[[], Any]]:
        """What the window's commands about writing do."""
        composer = self._chat.composer
        return {
            "attach": self.files.ask,
            "opening": composer.opening_button.toggle,
            "prompts": self.prompts.open_list,
            "fork": self._chat.fork_last,
        }

    # -- sending

    def _message(self, text: str) -> str:
        """What would be sent: the files, then the words."""
        return join([held.attachment for held in self.files.held()], unescaped(text))

    def send(self, text: str) -> None:
        """Send what is written; while a reply runs, let it wait for its end."""
        message, opening = self._message(text), self._chat.composer.opening()
        if self._session.state in BUSY:
            if self._writing.queue.add(message, opening):
                self._taken()
            return
        if self.files.held() and self._session.state == "idle":
            self._asked, self._cut = (self._session.conversation, message), False
            if self._writing.attachments.check(message, opening):
                return
        self._submit(message, opening)

    def _submit(self, message: str, opening: str) -> None:
        if self._session.submit(message, opening):
            self._taken()

    def _taken(self) -> None:
        self._chat.composer.accept()
        self._writing.attachments.put((), self._session.conversation)
        self.offers.hide()

    def _forget(self) -> None:
        self._asked = None
        self._show_queue()

    def _on_sized(self, size: PromptSize | None) -> None:
        """It is known how long the message is: send it, or say by how much it is too long."""
        composer = self._chat.composer
        asked, self._asked = self._asked, None
        if asked is None or asked != (self._session.conversation, self._message(composer.text())):
            return  # another chat is open, or the message was changed
        if size is None or size.over <= 0:
            if not self._cut:
                self._submit(asked[1], composer.opening())
            else:
                self.offers.offer(_TOO_LONG, "Cut to fit: a click on a file shows what is left of it.", "", None)
            return
        over = f"{size.over:,} {'token' if size.over == 1 else 'tokens'}"
        if self._cut:
            words = f"Even with the files cut to their beginnings it is {over} too long: remove some, or choose a larger context length."
            self.offers.offer(_TOO_LONG, words, "", None, "warning")
            return
        room = f"it has {size.prompt:,}, the context holds {size.context:,}"
        room += f" and {size.reply:,} of them are for the reply." if size.reply else "."
        self.offers.offer(_TOO_LONG, f"This message is {over} too long: {room}", "Trim to fit", self._trim, "warning")

    def _trim(self) -> None:
        composer = self._chat.composer
        own = unescaped(composer.text())
        self._writing.attachments.fit(self._message(composer.text()), own, composer.opening())

    def _on_fitted(self, conversation: int) -> None:
        composer = self._chat.composer
        if conversation == self._session.conversation:
            message = self._message(composer.text())
            self._asked, self._cut = (conversation, message), True
            self._writing.attachments.check(message, composer.opening())
        composer.setFocus()

    def _text_changed(self) -> None:
        self.offers.take_back(_TOO_LONG)
        if not self._chat.composer.text():
            self.offers.take_back(PASTED)

    # -- what waits

    def _show_queue(self) -> None:
        conversation = self._session.conversation
        self.rows.show_waiting(self._writing.queue.waiting(conversation), self._writing.queue.is_held(conversation))

    def _remove_waiting(self, number: int) -> None:
        found = self._writing.queue.remove(number)
        if found is not None:
            self._session.push_undo("removing a waiting message", lambda: self._put_back(found.conversation_id, found.text, found.opening))
            self._chat.banner.show_notice("The waiting message was removed.", "info", undo=True)

    def _put_back(self, conversation: int, text: str, opening: str) -> None:
        if conversation != self._session.conversation:
            self._session.open_conversation(conversation)
        self._writing.queue.add(text, opening)

    def _edit_waiting(self, number: int) -> None:
        """Back into the composer, before what is written there."""
        found = self._writing.queue.remove(number)
        if found is None:
            return
        composer = self._chat.composer
        files, place = split(found.text)
        held = [each.attachment for each in self.files.held()]
        self._writing.attachments.put([*(attachment for _, attachment in files), *held], self._session.conversation)
        composer.set_text("\n\n".join(part for part in (found.text[place:], composer.text()) if part.strip()))
        if found.opening:
            composer.set_opening(found.opening)
        composer.setFocus()
