"""Sends messages: with their files, queued while a reply is written, checked for their length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from desktop.items.commands.slash import unescaped
from desktop.services.composer.attachments import estimated
from desktop.services.composer.composer_services import ComposerServices
from desktop.services.composer.fit_to_context import over_text
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.services.session.several import ColumnSettings
from desktop.store.attachments.message_format import join
from desktop.views.chat.announcer import REPLYING
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.composer.attachment_controller import AttachmentController
from desktop.views.composer.passage_offers import PassageOffers
from desktop.views.composer.queue_controller import QueueController
from desktop.views.composer.spell_checker import SpellChecker
from desktop.views.composer.suggestion_bar import SuggestionBar
from desktop.views.widgets.listening import listen
from engine.core import PromptSize
from engine.settings import StopSettings, ThinkingSettings
from engine.words import _, paragraph

if TYPE_CHECKING:
    from desktop.views.composer.emoji_picker import EmojiPicker

__all__ = ["ComposerController"]

_TOO_LONG, _READING = "too long", "reading"
_SURELY_SHORT = 1000
"""Messages of fewer bytes need not be counted."""


class ComposerController(QObject):
    """Stands between the composer and the session; `files` is the controller of attachments, `emoji` the
    picker once it was opened.
    """

    def __init__(
        self, writing: ComposerServices, session: ChatSession, chat: ChatPane, window: QWidget
    ) -> None:
        super().__init__(window)
        self._writing, self._session, self._chat, self._window = writing, session, chat, window
        self._asked: tuple[int, str] | None = None
        self._cut, self._answers, self._sends_when_read = False, "", False
        self._several: Sequence[ColumnSettings] = ()
        self.write_several: Callable[[str, Sequence[ColumnSettings]], bool] = lambda text, settings: False
        """Sends a message and has several replies to it written; False if it is not sent."""
        self.offers = SuggestionBar()
        self.emoji: EmojiPicker | None = None
        composer = chat.composer
        self.waiting = QueueController(writing, session, chat, self)
        composer.add_above(self.waiting.rows)
        composer.add_above(self.offers)
        self.offers.left.connect(composer.setFocus)
        self.files = AttachmentController(writing.attachments, session, chat, self.offers, window)
        self.passages = PassageOffers(self.offers, writing, lambda by: self._trim(by_match=by))
        self.checker = SpellChecker(composer.box, writing.spelling)
        composer.submitted.connect(self.send)
        composer.box.textChanged.connect(self._text_changed)
        writing.fitting.sized.connect(self._on_sized)
        writing.fitting.fitted.connect(self._on_fitted)
        writing.fitting.shortened.connect(self._on_shortened)
        edit, follow_ups = chat.transcript.inline_edit, writing.follow_ups
        follow_ups.ready.connect(self._send_found)
        edit.waits, edit.left = follow_ups.begin_edit, follow_ups.leave_edit
        listen(self, follow_ups.edited, edit.end)
        listen(self, follow_ups.not_kept, lambda sentence: chat.show_notice(sentence, "warning"))
        listen(self, writing.attachments.changed, lambda _conversation: self.offers.withdraw(_TOO_LONG))
        listen(self, writing.attachments.refused, lambda _sentence: self._keep_unsent())
        listen(self, writing.attachments.reading, lambda _files: self._on_read())
        listen(self, session.conversation_changed, lambda _conversation: self._forget())
        composer.thinking.chosen.connect(self._choose_thinking)
        listen(
            self,
            session.settings_changed,
            lambda cls: self._show_thinking() if cls is ThinkingSettings else None,
        )
        listen(self, session.adapted_changed, self._show_thinking)
        listen(self, session.conversation_changed, lambda _conversation: self._show_thinking())
        self.files.chips.stopped.connect(self._keep_unsent)
        self._show_thinking()

    def _show_thinking(self) -> None:
        session = self._session
        self._chat.composer.thinking.show_level(session.adapted, session.settings(ThinkingSettings).thinking)

    def _choose_thinking(self, level: str) -> None:
        self._session.set_settings(ThinkingSettings(level))
        self._chat.composer.setFocus()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands of the message box."""
        composer = self._chat.composer
        return {
            "attach": self.files.ask, "attach_pictures": self.files.ask_pictures,
            "opening": composer.opening_button.toggle, "thinking": composer.thinking.open_menu,
            "emoji": self.open_emoji,
        }  # fmt: skip

    def open_emoji(self) -> None:
        """Show the emoji picker; what is chosen is inserted into the message."""
        from desktop.views.composer.emoji_picker import EmojiPicker  # only when needed

        preferences, box = self._session.preferences, self._chat.composer.box
        if self.emoji is None:
            self.emoji = EmojiPicker(lambda: preferences.recent_emoji, self._window)
            self.emoji.chosen.connect(preferences.remember_emoji)
            self.emoji.chosen.connect(box.insertPlainText)
            self.emoji.finished.connect(lambda _result: box.setFocus())
        self.emoji.open_anew()

    # -- sending

    def message(self, text: str) -> str:
        """The message that would be sent: the files, then the text."""
        return join([held.attachment for held in self.files.held()], unescaped(text))

    def send(self, text: str) -> None:
        """Send the text unless it is too long, once its files are read; while a reply is written or the
        model is loaded, queue it.
        """
        if self._writing.attachments.is_reading(self._session.conversation):
            self._sends_when_read = True
            self.offers.offer(_READING, _("The message is sent when its files are read."), "", None)
            return
        if self._writing.follow_ups.begin(unescaped(text)):
            return
        message, opening = self.message(text), self._chat.composer.opening()
        if self.files.tells_pictures(message, lambda: self.send(self._chat.composer.text())):
            return
        if self._may_be_long(message, opening):
            if self._waits():
                if self._warned(message):
                    return
            elif self._session.state == "idle":
                self._asked, self._cut = (self._session.conversation, message), False
                if self._writing.fitting.check(message, opening):
                    return
        self._submit(message, opening)

    def send_to(self, name: str) -> None:
        """Send the text, to be answered by this participant."""
        self._answers = name
        self.send(self._chat.composer.text())

    def send_several(self, settings: Sequence[ColumnSettings]) -> None:
        """Send the text, and have several replies to it written."""
        if self._chat.composer.opening().strip():
            self._session.notice.emit(
                _("Several replies cannot start with a given text. Clear “Start the reply with” first."),
                "warning",
            )
            return
        self._several = settings
        self.send(self._chat.composer.text())

    def _waits(self) -> bool:
        return self._session.state in (*REPLYING, "loading")

    def _submit(self, message: str, opening: str) -> None:
        answers, self._answers = self._answers, ""
        several, self._several = self._several, ()
        if several:
            if self.write_several(message, several):
                self._taken()
        elif (
            self._writing.queue.add(message, opening)
            if self._waits()
            else self._session.submit(message, opening, answers)
        ):
            self._taken()

    def _on_read(self) -> None:
        """Send what waited for its files."""
        reading = self._writing.attachments.is_reading(self._session.conversation)
        if self._sends_when_read and not reading:
            self._keep_unsent()
            self.send(self._chat.composer.text())

    def _send_found(self, question: str) -> None:
        """Send the question with the passages that were found for it."""
        if unescaped(text := self._chat.composer.text()) == question:
            self.send(text)

    def _keep_unsent(self) -> None:
        """Let a message that waited for its files stay in the box."""
        self._sends_when_read = False
        self.offers.withdraw(_READING)

    def _send_anyway(self) -> None:
        composer = self._chat.composer
        self._submit(self.message(composer.text()), composer.opening())

    def _may_be_long(self, message: str, opening: str) -> bool:
        """Whether counting is worth it: a short message in a short chat fits anyway, and a server may not say
        what does.
        """
        model = self._session.model
        if model is None or not model.context_length:
            return False
        enough = min(_SURELY_SHORT, model.context_length // 4)
        before = 0
        if self._session.settings(StopSettings).when_full == "stop":
            before = sum(len(item.text) for item in self._session.messages.items())
        return (
            bool(self.files.held())
            or len((message + opening + self._session.prompt.text).encode()) + before > enough
        )

    def _warned(self, message: str) -> bool:
        """While a reply is written the model cannot count; warn if the message is far too long by its
        characters.
        """
        model = self._session.model
        known = model.context_length if model is not None else 0
        over = estimated(message) - known if known else 0
        if over <= 0:
            return False
        self.offers.offer(
            _TOO_LONG,
            _(
                "This message is about {over:,} tokens longer than the context. Trim it before you queue it.",
                over=over,
            ),
            _("Trim to fit"),
            self._trim,
            "warning",
            (_("Queue anyway"), self._send_anyway),
        )
        return True

    def _taken(self) -> None:
        if not is_temporary(self._session.conversation):
            self._session.saving.proved()  # before its draft goes, which may never have been saved
        self._chat.composer.accept()
        self._writing.follow_ups.forget()
        self._writing.attachments.put((), self._session.conversation)
        self.offers.hide()

    def _forget(self) -> None:
        self._asked, self._answers, self._several = None, "", ()
        self._keep_unsent()

    def _on_sized(self, size: PromptSize | None) -> None:
        """Send the message now that its length is known, or say by how much it is too long."""
        composer = self._chat.composer
        asked, self._asked = self._asked, None
        if asked is None or asked != (self._session.conversation, self.message(composer.text())):
            return  # Another chat is open, or the text changed.
        if size is None or size.over <= 0:
            if not self._cut:
                self._submit(asked[1], composer.opening())
            else:
                asks = bool(composer.text().strip())
                self.passages.tell(_TOO_LONG, tuple(self.files.held()), asks)
            return
        if self._writing.follow_ups.withdraw():
            self.send(composer.text())
            return
        over = over_text(size)
        if self._cut:
            words = _(
                "The message is still {over} too long after trimming its files. Remove some "
                "files, or choose a larger context length.",
                over=over,
            )
            self.offers.offer(_TOO_LONG, words, "", None, "warning", self._other_way(size))
            return
        drops = self._session.settings(StopSettings).when_full == "drop_oldest"
        words = paragraph(
            _("This message is {over} too long.", over=over)
            if drops
            else _("The chat with this message is {over} too long.", over=over),
            _("It has {prompt:,} tokens.", prompt=size.prompt) if size.exact else "",
            _(
                "The context holds {context:,}, of which {reply:,} are reserved for the reply.",
                context=size.context,
                reply=size.reply,
            )
            if size.reply
            else _("The context holds {context:,}.", context=size.context),
        )
        self.offers.offer(_TOO_LONG, words, _("Trim to fit"), self._trim, "warning", self._other_way(size))

    def _other_way(self, size: PromptSize) -> tuple[str, Callable[[], object]] | None:
        """The alternative for a message that is too long; one that does not fit at all would only fail."""
        if size.prompt <= size.context:
            return _("Send anyway"), self._send_anyway
        if self._session.settings(StopSettings).when_full == "stop" and self._session.messages.rowCount():
            return _("Drop the oldest messages"), self._drop_oldest
        return None

    def _drop_oldest(self) -> None:
        """Let this chat drop its oldest turns when it is full, and send."""
        self._session.set_settings(replace(self._session.settings(StopSettings), when_full="drop_oldest"))
        self.send(self._chat.composer.text())

    def _trim(self, *, by_match: bool = False) -> None:
        composer = self._chat.composer
        if self._waits():
            self.offers.offer(
                _TOO_LONG, _("The message will be trimmed when the current reply is complete."), "", None
            )
        if not self.files.held():
            self._writing.fitting.shorten(self.message(composer.text()), composer.opening())
            return
        own = unescaped(composer.text())
        message = self.message(composer.text())
        self._writing.fitting.fit(message, own, composer.opening(), by_match=by_match)
        composer.setFocus()

    def _on_fitted(self, conversation: int, _files: object) -> None:
        composer = self._chat.composer
        if conversation == self._session.conversation:
            message = self.message(composer.text())
            self._asked, self._cut = (conversation, message), True
            self._writing.fitting.check(message, composer.opening())
        composer.setFocus()

    def _on_shortened(self, conversation: int, text: str) -> None:
        """Replace the user's text by its shortened form; the box can undo that."""
        composer = self._chat.composer
        whole = composer.text()
        if (
            conversation != self._session.conversation
            or not unescaped(whole).startswith(text)
            or self.files.held()
        ):
            return  # It changed meanwhile.
        cut = whole[: len(whole) - (len(unescaped(whole)) - len(text))].rstrip()
        cursor = composer.box.textCursor()
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(cut)
        words = _(
            "The message was trimmed to fit: {whole:,} characters were removed from its end. "
            "Press Ctrl+Z to restore them.",
            whole=len(whole) - len(cut),
        )
        self.offers.offer(_TOO_LONG, words, "", None)
        composer.setFocus()

    def _text_changed(self) -> None:
        self._answers, self._several = "", ()
        self._keep_unsent()
        self._writing.follow_ups.stop()
        self.offers.withdraw(_TOO_LONG)
