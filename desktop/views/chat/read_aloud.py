"""Reads messages aloud with the voice of the system, and the strip that says so and stops it."""

from __future__ import annotations

from PySide6.QtCore import Signal, Slot
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton

from desktop.blocks.spoken_text import sentences, spoken_message
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.speech import Speech, SpeechProgram
from desktop.store.attachments.message_format import split
from desktop.store.attachments.picture_marks import in_words
from desktop.views.layout.fill import fill
from desktop.views.transcript import TranscriptView
from desktop.views.widgets.listening import listen
from desktop.views.widgets.text_label import text_label
from engine.words import _

__all__ = ["ReadAloud"]


class ReadAloud(QFrame):
    """The strip, shown while a message of `transcript` is read aloud with `program`.

    Signals:
        failed(str): a sentence about why nothing is read.
    """

    failed = Signal(str)

    def __init__(
        self, session: ChatSession, transcript: TranscriptView, program: SpeechProgram | None
    ) -> None:
        super().__init__()
        self._session, self._transcript = session, transcript
        self._message = 0
        self.speech = Speech(program, self)
        self.setObjectName("readAloudStrip")
        self.setAccessibleName(_("Reading aloud"))
        self.stop = QPushButton(_("Stop reading"))
        words = text_label(_("A message is being read aloud."), wraps=True, plain=True)
        fill(QHBoxLayout(self), (words, 1), self.stop, margins=(14, 5, 10, 5), spacing=8)
        self.hide()
        self.stop.clicked.connect(lambda: self.end())
        self.speech.ended.connect(self._on_ended)
        listen(self, session.conversation_changed, lambda _conversation: self.end())

    def toggle(self, message: int) -> None:
        """Read a message aloud from its beginning; stop if it is being read."""
        if self._message == message:
            self.end()
            return
        item = self._session.messages.item(message)
        _files, own = split(item.text)  # the text begins after the files
        text = spoken_message(in_words(item.text[own:]), self._transcript.messages.tags, item.opened)
        found = sentences(text)
        if not found:
            self.failed.emit(_("This message has no text to read aloud."))
            return
        self._message = message
        self.show()
        self.speech.say(found)

    def end(self) -> None:
        """Stop reading, and hide the strip."""
        self._message = 0
        self.speech.stop()
        had_focus = self.stop.hasFocus()
        self.hide()
        if had_focus:
            self._transcript.setFocus()

    @Slot(str)
    def _on_ended(self, trouble: str) -> None:
        self.end()
        if trouble:
            self.failed.emit(trouble)

    def hideEvent(self, event: QHideEvent) -> None:
        """The window was closed: be silent. One that is only minimised goes on."""
        super().hideEvent(event)
        if not event.spontaneous() and self._message:
            self._message = 0
            self.speech.stop()
