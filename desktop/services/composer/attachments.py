"""The files for the next message of each chat, read and counted off the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.composer.fit_to_context import fitted, shortened, size_of
from desktop.services.engine.stream_thread import Job, StreamThread
from desktop.services.session.chat_session import ChatSession
from desktop.store.attachments.files import Unreadable, read_attachment
from desktop.store.attachments.message_format import Attachment, message_text
from desktop.store.database.database import StoreError

__all__ = ["AttachmentService", "Held", "estimated"]

_CHARACTERS_PER_TOKEN = 3.8
_MOST_COUNTED = 400_000
"""Characters. A longer file exceeds most contexts, and counting it would keep the model busy for seconds."""


@dataclass(frozen=True)
class Held:
    """A file to be sent; `tokens` is an estimate unless `exact`."""

    key: int
    attachment: Attachment
    tokens: int
    exact: bool = False


def estimated(text: str) -> int:
    """Approximate number of tokens in a text, for any tokenizer."""
    return max(1, round(len(text) / _CHARACTERS_PER_TOKEN))


class AttachmentService(QObject):
    """Holds files for each chat separately, while the program runs.

    Signals:
        changed(int conversation): its files or their counts changed.
        reading(int files): the number of files being read.
        refused(str sentence): a file cannot be attached.
        sized(object size): the `PromptSize` for `check`; None if it is not known.
        fitted(int conversation): its files were shortened to fit.
        shortened(int conversation, str text): the beginning of a message that fits.
    """

    changed = Signal(int)
    reading = Signal(int)
    refused = Signal(str)
    sized = Signal(object)
    fitted = Signal(int)
    shortened = Signal(int, str)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._held: dict[int, list[Held]] = {}
        self._worker: StreamThread | None = None
        self._jobs: dict[int, int] = {}
        self._reads: dict[int, Job] = {}
        self._counts: dict[int, tuple[int, int]] = {}
        self._checks: set[int] = set()
        self._shortens: dict[int, int] = {}
        self._fits: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._last = 0
        session.asked.connect(self._on_asked)
        session.model_changed.connect(lambda _model: self._count_again())
        session.state_changed.connect(lambda state: self._count_unknown() if state == "idle" else None)

    def close(self) -> bool:
        """End the thread."""
        return self._worker is None or self._worker.close()

    def held(self, conversation: int) -> Sequence[Held]:
        """The files for the next message there."""
        return self._held.get(conversation, [])

    def read(self, paths: Sequence[Path], conversation: int) -> None:
        """Read files and hold them for a chat; emits `refused` for each that cannot be read."""
        if self._worker is None:
            self._worker = StreamThread("attachments", self)
            self._worker.yielded.connect(self._on_read)
            self._worker.finished.connect(self._on_finished)
            self._worker.failed.connect(self._on_failed)
        job = self._worker.start(lambda stop: _read(tuple(paths), stop))
        self._jobs[job.id], self._reads[job.id] = conversation, job
        self.reading.emit(len(self._jobs))

    def stop_reading(self) -> None:
        """Stop reading; what was already read stays."""
        for job in self._reads.values():
            job.stop()

    def hold(self, attachment: Attachment, conversation: int) -> None:
        """Add a text to the next message of a chat."""
        self._last += 1
        held = Held(self._last, attachment, estimated(attachment.text))
        self._held.setdefault(conversation, []).append(held)
        self._count(conversation, held)
        self.changed.emit(conversation)

    def remove(self, key: int, conversation: int) -> None:
        self._held[conversation] = [held for held in self.held(conversation) if held.key != key]
        self.changed.emit(conversation)

    def put(self, attachments: Sequence[Attachment], conversation: int) -> None:
        """Replace the files of a chat."""
        self._held[conversation] = []
        for attachment in attachments:
            self.hold(attachment, conversation)
        self.changed.emit(conversation)

    def move(self, before: int, now: int) -> None:
        """Move the files of one chat, even those still being read, to the next message of another."""
        self._jobs = {
            job: now if conversation == before else conversation for job, conversation in self._jobs.items()
        }
        held = self._held.pop(before, [])
        if held:
            self.put([*(each.attachment for each in (*self.held(now), *held))], now)

    def check(self, message: str, opening: str) -> bool:
        """Measure the prompt with `message`; emits `sized`. False if that is not possible."""
        try:
            request = self._session.preview_request(message, opening)
        except StoreError:
            return False
        self._checks.add(self._session.ask(size_of(request)))
        return True

    def fit(self, message: str, own: str, opening: str) -> None:
        """Shorten the open chat's files so that `message`, made of them and the user's `own` words, fits;
        emits `fitted`.
        """
        conversation = self._session.conversation
        held = tuple(self.held(conversation))
        try:
            request = self._session.preview_request(message, opening)
        except StoreError as error:
            self.refused.emit(str(error))
            return
        number = self._session.ask(fitted(request, tuple(each.attachment for each in held), own))
        self._fits[number] = (conversation, tuple(each.key for each in held))

    def shorten(self, message: str, opening: str) -> None:
        """Find how much of a message without files fits; emits `shortened`."""
        try:
            request = self._session.preview_request(message, opening)
        except StoreError as error:
            self.refused.emit(str(error))
            return
        self._shortens[self._session.ask(shortened(request))] = self._session.conversation

    def _count(self, conversation: int, held: Held) -> None:
        text = message_text(held.attachment)
        if self._session.model is not None and len(text) <= _MOST_COUNTED:
            self._counts[self._session.ask(lambda source: source.count(text))] = (conversation, held.key)

    def _count_again(self) -> None:
        """Another model counts differently."""
        for conversation, all_held in self._held.items():
            self._held[conversation] = [
                replace(held, tokens=estimated(held.attachment.text), exact=False) for held in all_held
            ]
            self.changed.emit(conversation)
        self._count_unknown()

    def _count_unknown(self) -> None:
        asked = set(self._counts.values())
        for conversation, all_held in self._held.items():
            for held in all_held:
                if not held.exact and (conversation, held.key) not in asked:
                    self._count(conversation, held)

    @Slot(int, object)
    def _on_asked(self, number: int, answer: object) -> None:
        if number in self._checks:
            self._checks.discard(number)
            self.sized.emit(answer)
        elif number in self._fits:
            conversation, keys = self._fits.pop(number)
            if isinstance(answer, tuple) and keys == tuple(held.key for held in self.held(conversation)):
                self.put(answer, conversation)
                self.fitted.emit(conversation)
        elif number in self._shortens:
            conversation = self._shortens.pop(number)
            if isinstance(answer, str):
                self.shortened.emit(conversation, answer)
        elif number in self._counts:
            conversation, key = self._counts.pop(number)
            if isinstance(answer, int):
                self._held[conversation] = [
                    replace(held, tokens=answer, exact=True) if held.key == key else held
                    for held in self.held(conversation)
                ]
                self.changed.emit(conversation)

    @Slot(int, object)
    def _on_read(self, job: int, found: object) -> None:
        if isinstance(found, Attachment):
            self.hold(found, self._jobs[job])
        elif isinstance(found, str):
            self.refused.emit(found)

    @Slot(int, object)
    def _on_finished(self, job: int, _result: object) -> None:
        self._jobs.pop(job, None)
        self._reads.pop(job, None)
        self.reading.emit(len(self._jobs))

    @Slot(int, str, str)
    def _on_failed(self, job: int, sentence: str, _details: str) -> None:
        self._on_finished(job, None)
        self.refused.emit(sentence)


def _read(paths: tuple[Path, ...], stop: threading.Event) -> Generator[Attachment | str, None, None]:
    for path in paths:
        if stop.is_set():
            return
        try:
            yield read_attachment(path, stop)
        except Unreadable as error:
            if not stop.is_set():
                yield str(error)
