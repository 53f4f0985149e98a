"""What the user does with the messages of the open chat: the buttons below a message, and the commands about
the last one.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication

from desktop.items.chats.messages import MessageItem
from desktop.services.session.chat_session import ChatSession
from desktop.store.attachments.message_format import split
from desktop.store.attachments.picture_marks import in_words
from desktop.views.chat.read_aloud import ReadAloud
from desktop.views.composer.composer import Composer
from desktop.views.transcript import TranscriptView
from desktop.views.widgets.banner import Banner
from engine.words import _

__all__ = ["MessageCommands"]


class MessageCommands(QObject):
    """`show_details(message)` shows the details of a reply."""

    def __init__(
        self, session: ChatSession, transcript: TranscriptView, read_aloud: ReadAloud, composer: Composer,
        banner: Banner, show_details: Callable[[int], None], parent: QObject,
    ) -> None:  # fmt: skip
        super().__init__(parent)
        self._session, self._transcript, self._read_aloud = session, transcript, read_aloud
        self._composer, self._banner, self._show_details = composer, banner, show_details
        composer.previous_requested.connect(self.edit_last_own)
        transcript.action.connect(self._act)
        transcript.edited.connect(self._edited)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands about the open chat's messages."""
        return {
            "stop": self._session.stop,
            "find": self._transcript.finding.open,
            "reading": self._transcript.reading.toggle,
            "copy_reply": self.copy_last,
            "read_aloud": self.read_last_aloud,
            "regenerate": self.regenerate_last,
            "continue": self.continue_last,
            "previous_variant": lambda: self.step_variant(-1),
            "next_variant": lambda: self.step_variant(1),
            "fork": self.fork_last,
        }

    def _act(self, name: str, message: int) -> None:
        session = self._session
        act: dict[str, Callable[[int], object]] = {
            "edit": self._transcript.begin_edit,
            "regenerate": session.regenerate,
            "continue": session.continue_reply,
            "delete": self._delete,
            "fork": self.fork,
            "origin": self._show_details,
            "speak": self._read_aloud.toggle,
            "quote": lambda _message: self._composer.quote(in_words(self._transcript.selection.text())),
            "previous": lambda message: session.show_variant(message, -1),
            "next": lambda message: session.show_variant(message, 1),
            "allow_call": session.tools.allow,
            "always_allow": lambda message: session.tools.allow(message, always=True),
            "refuse_call": session.tools.refuse,
            "stop_calls": lambda _message: session.stop(),
        }
        if name in act:
            act[name](message)

    def _delete(self, message: int) -> None:
        others = self._session.messages.item(message).variant_count - 1
        if self._session.delete_message(message):
            words = (
                _("The version was deleted, and another one is shown.")
                if others
                else _("The message and everything after it were deleted.")
            )
            self._banner.show_notice(words, "info", undo=True)

    def fork(self, message: int) -> None:
        """Continue from a message in a new chat."""
        if self._session.fork(message):
            self._banner.show_notice(
                _("This new chat continues from that message. The original chat is unchanged."),
                "info",
                undo=True,
            )

    def fork_last(self) -> None:
        """Continue from the last message in a new chat."""
        items = self._session.messages.items()
        if items:
            self.fork(items[-1].id)

    def _edited(self, message: int, text: str, answer: bool) -> None:
        """An inline edit was saved; text that is refused goes where it is not lost."""
        refused = (
            not self._session.edit(message, text, answer)
            and self._session.messages.item(message).text != text
        )
        if refused and not self._composer.text():
            self._composer.set_text(text[split(text)[1] :])
        self._composer.setFocus()

    def last_reply(self) -> MessageItem | None:
        """The reply at the end of the conversation, if it ends with one."""
        items = self._session.messages.items()
        return items[-1] if items and items[-1].role == "assistant" else None

    def regenerate_last(self) -> None:
        """Generate another reply to the last message of the user."""
        items = self._session.messages.items()
        if items:
            self._session.regenerate(items[-1].id)

    def continue_last(self) -> None:
        """Continue the last reply."""
        reply = self.last_reply()
        if reply is not None:
            self._session.continue_reply(reply.id)

    def step_variant(self, step: int) -> None:
        """Show the version before (-1) or after (1) the last reply."""
        reply = self.last_reply()
        if reply is not None:
            self._session.show_variant(reply.id, step)

    def copy_last(self) -> None:
        """Put the Markdown of the last reply on the clipboard."""
        if replies := self._replies():
            QGuiApplication.clipboard().setText(replies[-1].text)
            self._banner.show_notice(_("The last reply was copied."), "info")

    def read_last_aloud(self) -> None:
        """Read the last reply aloud, or stop reading."""
        if self._read_aloud.speech.speaking:
            self._read_aloud.end()
        elif replies := self._replies():
            self._read_aloud.toggle(replies[-1].id)

    def _replies(self) -> list[MessageItem]:
        return [item for item in self._session.messages.items() if item.role == "assistant"]

    def edit_last_own(self) -> None:
        """Edit the user's last message."""
        own = [item for item in self._session.messages.items() if item.role == "user"]
        if own:
            self._transcript.begin_edit(own[-1].id)

    def open_message(self, message: int) -> None:
        """Show a message that a search found."""
        if self._session.open_message(message) and any(
            item.id == message for item in self._session.messages.items()
        ):
            self._transcript.scrolling.to_message(message)
