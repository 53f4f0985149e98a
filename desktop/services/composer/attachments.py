"""The files for the next message of each chat, read and counted off the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QImage

from desktop.services.composer.attachment_reading import Found, pasted_picture, read_files, saved
from desktop.services.composer.pictures import ReadPicture
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.store.attachments.message_format import Attachment, message_text
from desktop.store.attachments.picture_marks import PictureMark, mark_of
from desktop.store.attachments.pictures import MOST_STORED, PictureStore, StoredPicture
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, ChatSource, Message, Picture
from engine.lazy_dataclass import dataclass
from engine.remote.estimate import picture_tokens
from engine.words import _

__all__ = ["AttachmentService", "Held", "estimated"]

MOST_PICTURES = 20
"""Of one message: more than most servers take."""
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
    """

    changed = Signal(int)
    reading = Signal(int)
    refused = Signal(str)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._held: dict[int, list[Held]] = {}
        self._whole: dict[int, tuple[tuple[int, ...], tuple[Attachment, ...]]] = {}
        """The files of a chat before they were shortened, and the keys that they have had since."""
        self._background = Background("attachments", self)
        self._reads: dict[Job, int] = {}  # the chat of each
        self._paths: dict[Job, Sequence[str]] = {}
        self._counting: set[tuple[int, int]] = set()
        self._last = 0
        session.model_changed.connect(lambda _model: self._count_again())
        session.state_changed.connect(lambda state: self._count_unknown() if state == "idle" else None)

    def close(self) -> bool:
        """End the thread."""
        return self._background.close()

    def held(self, conversation: int) -> Sequence[Held]:
        """The files for the next message there."""
        return self._held.get(conversation, [])

    def holding(self) -> list[int]:
        """The chats that have files."""
        return list(self._held)

    def forget(self, conversation: int) -> None:
        """Release the files of a chat that is gone."""
        self._keep(conversation, [])

    def read(self, paths: Sequence[Path], conversation: int, known: frozenset[str] = frozenset()) -> None:
        """Read files, but those with the names that are `known`, and hold them for a chat; emits `refused`
        for each that cannot be read.
        """
        library = self._library(conversation)
        names = tuple(map(str, paths))
        self._begin(lambda stop: saved(read_files(tuple(paths), stop, known), library), conversation, names)

    def _begin(self, read: Callable[[threading.Event], Found], chat: int, paths: Sequence[str] = ()) -> None:
        job = self._background.start(
            read,
            lambda _result: self._on_finished(job),
            lambda sentence, _details: self._on_finished(job, sentence),
            lambda found: self._on_read(job, found),
            in_turns=True,
        )
        self._reads[job], self._paths[job] = chat, paths
        self.reading.emit(len(self._reads))

    def is_reading(self, conversation: int) -> bool:
        """Whether files for the next message there are still being read."""
        return conversation in self._reads.values()

    def unread(self) -> dict[int, tuple[str, ...]]:
        """The paths of the files that are being read for each chat on the disk."""
        chats = {chat for chat in self._reads.values() if not is_temporary(chat)}
        each = {chat: [self._paths[job] for job, of in self._reads.items() if of == chat] for chat in chats}
        return {chat: tuple(chain.from_iterable(paths)) for chat, paths in each.items()}

    def stop_reading(self) -> None:
        """Stop reading; what was already read stays."""
        for job in self._reads:
            job.stop()

    def hold(self, attachment: Attachment, conversation: int) -> int:
        """Add a text to the next message of a chat; returns its key."""
        self._last += 1
        held = Held(self._last, attachment, _estimate(attachment))
        self._held.setdefault(conversation, []).append(held)
        self._count(conversation, held)
        self.changed.emit(conversation)
        return held.key

    def hold_picture(self, found: ReadPicture, conversation: int) -> None:
        """Add a picture to the next message of a chat; emits `refused` if that is not possible."""
        model = self._session.model
        count = sum(held.attachment.picture is not None for held in self.held(conversation))
        store = PictureStore(self._session.stores.database_of(conversation))
        try:
            if model is not None and model.why_no_pictures:
                self.refused.emit(model.why_no_pictures)
            elif count >= MOST_PICTURES:
                self.refused.emit(
                    _(
                        "A message can have at most {most} pictures. Send some of them first.",
                        most=MOST_PICTURES,
                    )
                )
            elif (total := store.total()) > MOST_STORED:
                self.refused.emit(
                    _(
                        "The pictures in your chats take {total:,.1f} GB, so no more can be attached. Delete "
                        "chats with pictures, then empty the trash.",
                        total=total / 1e9,
                    )
                )
            else:
                picture = found.picture
                mark = mark_of(found.name, store.put(picture), picture.width, picture.height)
                self.hold(Attachment(mark.name, "", picture=mark), conversation)
        except StoreError as error:
            self.refused.emit(_("The picture cannot be saved: {error}", error=error))

    def picture(self, key: str, conversation: int) -> StoredPicture | None:
        """A picture of a chat, or of its next message; None if it is not there or cannot be read."""
        try:
            return PictureStore(self._session.stores.database_of(conversation)).get(key)
        except StoreError:
            return None

    def paste(self, image: QImage, conversation: int) -> None:
        """Attach a picture that has no file."""
        name, library = _("Pasted picture.png"), self._library(conversation)
        self._begin(lambda stop: saved(pasted_picture(image, name), library), conversation)

    def _library(self, conversation: int) -> Path | None:
        """The database in which the pictures of a chat are saved off the GUI thread; None for a temporary
        one's, which is in memory, and where the model takes no pictures.
        """
        model = self._session.model
        blind = model is not None and bool(model.why_no_pictures)
        return None if blind or is_temporary(conversation) else self._session.stores.database.path

    def remove(self, key: int, conversation: int) -> None:
        self._keep(conversation, [held for held in self.held(conversation) if held.key != key])
        self.changed.emit(conversation)

    def _keep(self, conversation: int, held: list[Held]) -> None:
        """Nothing is kept of a chat without files: there may be thousands of them."""
        if held:
            self._held[conversation] = held
        else:
            self._held.pop(conversation, None)
            self._whole.pop(conversation, None)

    def put(
        self, attachments: Sequence[Attachment], conversation: int, whole: tuple[Attachment, ...] = ()
    ) -> None:
        """Replace the files of a chat; they may be what is left of `whole` ones."""
        self._keep(conversation, [])
        for attachment in attachments:
            self.hold(attachment, conversation)
        if whole:
            self._whole[conversation] = self.keys(conversation), whole
        self.changed.emit(conversation)

    def whole(self, conversation: int) -> tuple[Attachment, ...]:
        """The files of a chat as they were before they were shortened."""
        keys, files = self._whole.get(conversation, ((), ()))
        unchanged = keys == self.keys(conversation)
        return files if unchanged else tuple(each.attachment for each in self.held(conversation))

    def keys(self, conversation: int) -> tuple[int, ...]:
        """What tells whether a chat still has the same files."""
        return tuple(each.key for each in self.held(conversation))

    def move(self, before: int, now: int) -> None:
        """Move the files of one chat, even those still being read, to the next message of another."""
        for job, conversation in self._reads.items():
            self._reads[job] = now if conversation == before else conversation
        self.reading.emit(len(self._reads))
        held = self._held.pop(before, [])
        self._whole.pop(before, None)
        if held:
            self._move_pictures(held, before, now)
            self.put([*(each.attachment for each in (*self.held(now), *held))], now)

    def _move_pictures(self, moved: Sequence[Held], before: int, now: int) -> None:
        """A temporary chat has its pictures in another database."""
        stores = self._session.stores
        source, target = stores.database_of(before), stores.database_of(now)
        keys = [held.attachment.picture.key for held in moved if held.attachment.picture is not None]
        if source is target or not keys:
            return
        try:
            PictureStore(source).copy_to(target, keys)
        except StoreError as error:
            self.refused.emit(_("The picture cannot be saved: {error}", error=error))

    def _count(self, conversation: int, held: Held) -> None:
        text, model = message_text(held.attachment), self._session.model
        if held.attachment.picture is not None:
            self._count_picture(conversation, held, held.attachment.picture)
            return
        # for a server they stay estimated: nothing of a file leaves before it is sent, from whichever chat
        if model is not None and not model.host and len(text) <= _MOST_COUNTED:
            self._counting.add((conversation, held.key))
            self._session.ask(
                lambda source: source.count(text),
                lambda tokens: self._on_counted(conversation, held.key, tokens),
            )

    def _count_picture(self, conversation: int, held: Held, mark: PictureMark) -> None:
        """Ask a model on this computer how many tokens a picture has; of others' it stays estimated."""
        model = self._session.model
        if model is None or not model.reads_pictures:
            return
        shown = Message("user", mark.words, pictures=(Picture(mark.name, mark.key, mark.width, mark.height),))

        def count(source: ChatSource) -> int:
            requests = ChatRequest((shown,)), ChatRequest((Message("user", "-"),))
            seen, bare = (source.size(request).prompt for request in requests)
            return max(1, seen - bare)

        self._counting.add((conversation, held.key))
        self._session.ask(count, lambda tokens: self._on_counted(conversation, held.key, tokens))

    def _on_counted(self, conversation: int, key: int, tokens: int | None) -> None:
        self._counting.discard((conversation, key))
        if tokens is not None:
            counted = [
                replace(held, tokens=tokens, exact=True) if held.key == key else held
                for held in self.held(conversation)
            ]
            self._keep(conversation, counted)
            self.changed.emit(conversation)

    def _count_again(self) -> None:
        """Another model counts differently."""
        for conversation, all_held in self._held.items():
            self._held[conversation] = [
                replace(held, tokens=_estimate(held.attachment), exact=False) for held in all_held
            ]
            self.changed.emit(conversation)
        self._count_unknown()

    def _count_unknown(self) -> None:
        for conversation, all_held in self._held.items():
            for held in all_held:
                if not held.exact and (conversation, held.key) not in self._counting:
                    self._count(conversation, held)

    def _on_read(self, job: Job, found: Attachment | ReadPicture | str | None) -> None:
        if isinstance(found, Attachment):
            self.hold(found, self._reads[job])
        elif isinstance(found, ReadPicture):
            self.hold_picture(found, self._reads[job])
        elif found is not None:
            self.refused.emit(found)

    def _on_finished(self, job: Job, sentence: str = "") -> None:
        del self._reads[job], self._paths[job]
        if sentence:
            self.refused.emit(sentence)
        self.reading.emit(len(self._reads))


def _estimate(attachment: Attachment) -> int:
    mark = attachment.picture
    return estimated(attachment.text) if mark is None else picture_tokens(mark.width, mark.height)
