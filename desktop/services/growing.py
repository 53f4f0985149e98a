"""The text of the reply that runs: gathered from events, handed on once a frame to the eye and twice a second to the disk."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from desktop.items.voices import LeadingName
from desktop.store.tokens import TokenTrace
from engine.core import Done, Stats, Text, TokenInfo

__all__ = ["CHECKPOINT_MS", "FRAME_MS", "GrowingReply"]

FRAME_MS = 16
"""One frame of a 60 Hz display."""
CHECKPOINT_MS = 400
"""A checkpoint is promised within 500 ms of a text's arrival; the rest is for a busy event loop and the write itself."""


class GrowingReply(QObject):
    """One running reply: where it belongs, its text so far, and what its stream said about it. When the prompt left a thought open,
    `opened` closes it. In a document it is written before `tail`; `begun` characters were there before it.

    Signals:
        grown(str): text that arrived since the last frame.
        checkpoint_due(): at most `CHECKPOINT_MS` after text that was not saved yet.
    """

    grown = Signal(str)
    checkpoint_due = Signal()

    def __init__(self, conversation_id: int, message_id: int, text: str = "", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.conversation_id = conversation_id
        self.message_id = message_id
        self.trimmed = 0
        self.avoided = 0
        self.loads_draft = False
        self.opened = ""
        self.begun = len(text)
        self.tail, self.tail_tokens = "", TokenTrace()
        self.cut_tokens = 0
        self.is_document, self.known = False, 0
        self.stats: Stats | None = None
        self.done: Done | None = None
        self.tokens = TokenTrace()
        self.leading: LeadingName | None = None
        self._unsigned: list[TokenInfo] = []
        self._parts = [text]
        self._waiting: list[str] = []
        self._frame = self._timer(FRAME_MS, self.flush)
        self._checkpoint = self._timer(CHECKPOINT_MS, self._on_checkpoint)

    @property
    def text(self) -> str:
        """All text so far, that which waits for the next frame included."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] + "".join(self._waiting)

    @property
    def whole(self) -> str:
        """All text of the message: what stays behind the growing part is of it, too."""
        return self.text + self.tail

    def take(self, event: Text) -> None:
        """Text and tokens have arrived; a name before them is taken off both."""
        if self.leading is None or self.leading.decided:
            self.tokens.extend(event.tokens)
            self.add(event.text)
            return
        self._unsigned += event.tokens
        self.add(self.leading.feed(event.text))
        self._sign()

    def _sign(self) -> None:
        """Hand on the tokens that were held back, once it is known what of their text was a name."""
        if self.leading is None or not (self.leading.decided or self.leading.behind_thought):
            return
        left = 0 if self.leading.behind_thought else self.leading.removed
        for token in self._unsigned:
            self.tokens.extend((dataclasses.replace(token, text=token.text[left:]),) if left else (token,))
            left = max(0, left - len(token.text))
        self._unsigned = []

    def add(self, text: str) -> None:
        """Text has arrived."""
        if not text:
            return
        self._waiting.append(text)
        if not self._frame.isActive():
            self._frame.start()
        if not self._checkpoint.isActive():
            self._checkpoint.start()

    @Slot()
    def flush(self) -> None:
        """Hand on what waits, now."""
        self._frame.stop()
        if self._waiting:
            text = "".join(self._waiting)
            self._parts.append(text)
            self._waiting = []
            self.grown.emit(text)

    def end(self) -> None:
        """Hand on the rest and stop both clocks."""
        if self.leading is not None and not self.leading.decided:
            self.add(self.leading.end())
            self._sign()
        self.flush()
        self._checkpoint.stop()
        self.deleteLater()

    def _timer(self, interval_ms: int, slot: object) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setTimerType(Qt.TimerType.PreciseTimer)
        timer.setInterval(interval_ms)
        timer.timeout.connect(slot)
        return timer

    @Slot()
    def _on_checkpoint(self) -> None:
        self.checkpoint_due.emit()
