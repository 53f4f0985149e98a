"""The text of a reply that runs, which is due on the disk a few times a second."""

from __future__ import annotations

import dataclasses
import math
import time

from PySide6.QtCore import QObject, Qt, Signal, Slot

from desktop.services.session.leading_name import LeadingName
from desktop.services.system.debounce import debounce
from desktop.store.conversations.token_trace import TokenTrace
from engine.core import CallPiece, ChatRequest, Done, Stats, Text, TokenInfo, ToolCall

__all__ = ["CHECKPOINT_MS", "RunningReply"]

CHECKPOINT_MS = 200
"""Text is on the disk within 500 ms; the rest is for its way to the GUI thread and the write itself."""


class RunningReply(QObject):
    """One running reply: its place, its text so far, and what its events said. `opened` closes a thought that
    the prompt left open; `label` says how it differs from others that are compared with it. In a document it
    is written before `tail`; `begun` characters were there before.

    Signals:
        checkpoint_due(int message): at most `CHECKPOINT_MS` after text that is not saved yet; at once with
            text that arrives that long after the last time, because the GUI thread is awake then anyway.
    """

    checkpoint_due = Signal(int)

    def __init__(
        self, conversation_id: int, message_id: int, text: str = "", parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.conversation_id = conversation_id
        self.message_id = message_id
        self.model_name = self.label = ""
        self.trimmed = 0
        self.avoided = 0
        self.loads_draft = False
        self.opened = ""
        self.request: ChatRequest | None = None
        self.begun = len(text)
        self.tail, self.tail_tokens = "", TokenTrace()
        self.cut_tokens = 0
        self.is_document, self.known = False, 0
        self.stats: Stats | None = None
        self.done: Done | None = None
        self.tokens = TokenTrace()
        self.leading: LeadingName | None = None
        self._unsigned: list[TokenInfo] = []
        self._calls: list[ToolCall] = []
        self._parts = [text]
        self._checkpoint = debounce(self, self._on_checkpoint)
        self._checkpoint.setTimerType(Qt.TimerType.PreciseTimer)
        # time of the last checkpoint, or of the first text
        self._asked_to_save: float | None = None

    @property
    def language(self) -> str:
        """ "json" for a reply that has to be JSON and nothing else; "" for Markdown."""
        if self.request is None or self.is_document:
            return ""
        return "json" if self.request.constraint.format in ("json", "json_schema") else ""

    @property
    def text(self) -> str:
        """All text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    @property
    def whole(self) -> str:
        """All text of the message, with the tail."""
        return self.text + self.tail

    def take(self, event: Text) -> str:
        """Text and tokens have arrived; returns the text to show, without a name at the beginning."""
        if self.leading is None or self.leading.decided:
            self.tokens.extend(event.tokens)
            return self.add(event.text)
        self._unsigned += event.tokens
        shown = self.add(self.leading.feed(event.text))
        self._sign()
        return shown

    def take_call(self, piece: CallPiece) -> bool:
        """A piece of a call has arrived; returns whether it is the first of its call."""
        is_first = piece.index == len(self._calls)
        if is_first:
            self._calls.append(ToolCall(piece.id, piece.name, piece.arguments))
        else:
            before = self._calls[piece.index]
            self._calls[piece.index] = dataclasses.replace(
                before, arguments=before.arguments + piece.arguments
            )
        return is_first

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, the last one as far as it was written."""
        return tuple(self._calls)

    def _sign(self) -> None:
        """Add the tokens that were held back, once it is known how much of their text was a name."""
        if self.leading is None or not (self.leading.decided or self.leading.after_thought):
            return
        left = 0 if self.leading.after_thought else self.leading.removed
        for token in self._unsigned:
            self.tokens.extend((token._replace(text=token.text[left:]),) if left else (token,))
            left = max(0, left - len(token.text))
        self._unsigned = []

    def add(self, text: str) -> str:
        """Text has arrived; returns it."""
        if not text:
            return text
        self._parts.append(text)
        now = time.monotonic()
        if self._asked_to_save is None:
            self._asked_to_save = now
        left = self._asked_to_save + CHECKPOINT_MS / 1000 - now
        if left <= 0:
            self._checkpoint.stop()
            self._on_checkpoint()
        elif not self._checkpoint.isActive():
            self._checkpoint.start(math.ceil(1000 * left))
        return text

    def end(self) -> str:
        """No more text comes; returns what was held back as a possible name."""
        rest = ""
        if self.leading is not None and not self.leading.decided:
            rest = self.add(self.leading.end())
            self._sign()
        self._checkpoint.stop()
        self.deleteLater()
        return rest

    @Slot()
    def _on_checkpoint(self) -> None:
        self._asked_to_save = time.monotonic()
        self.checkpoint_due.emit(self.message_id)
