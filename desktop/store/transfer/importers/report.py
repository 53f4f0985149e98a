"""What an import saves and reports: chats, what is wrong with them, and how far it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from desktop.store.conversations.bulk_insert import RecordWriter
from desktop.store.transfer.importers.formats import labels
from desktop.store.transfer.importers.pictures import PictureImporter
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.sentences import line_of, sentence
from desktop.store.transfer.records import Broken, ConversationRecord, Event, LeftOut, Progress
from engine.words import N_, _, translate

__all__ = ["ImportReport"]

PROGRESS_S = 0.1
_MOST_NOTES = 100
"""Damaged messages reported for one conversation; the others are only counted."""
_OTHER_FILES = N_("Files without chats (pictures, sounds, account data) were not imported")


class ImportReport:
    """The events of one import of `total` bytes, in a file that is `alone` or in several.

    `pictures` makes those of chats ready. What is wrong with a file in an archive is held until a chat is
    found in it: it may have nothing to do with chats.
    """

    def __init__(self, writer: RecordWriter, total: int, alone: bool) -> None:
        self._writer, self._total, self.alone = writer, total, alone
        self.pictures: PictureImporter | None = None
        self._found = self._found_any = False
        self._held: list[Broken] = []
        self._earlier: list[Broken] = []
        self._left_out: Counter[str] = Counter()
        self._others = self._done = 0
        self._reported = 0.0

    def begin_file(self) -> None:
        """What follows is of another file."""
        self._found, self._earlier, self._held = False, self._held, []

    def end_file(self, name: str, size: int, foreign: int, stopped: bool) -> Iterator[Event]:
        """The file `name` of `size` bytes is read, or `stopped`; it had as many `foreign` entries."""
        if self._found and foreign and not stopped:
            words = _(
                "Entries that are not chats of a known program were skipped: {foreign:,}.", foreign=foreign
            )
            yield Broken(name, words)
        self._held = self._earlier if self._found else [*self._earlier, *self._held][:_MOST_NOTES]
        self._others += not self._found
        self._done += size

    def end(self, name: str, used: int) -> Iterator[Event]:
        """The report on the whole import; chats have `used` some of the files without any."""
        if not self._found_any:
            yield from self._held[:_MOST_NOTES]
            programs = ", ".join(labels())
            yield Broken(name, _("It contains no chats of a known program ({programs}).", programs=programs))
        elif others := self._others - used:
            yield LeftOut(translate(_OTHER_FILES), others, files=True)
        for what, count in self._left_out.items():
            yield LeftOut(what, count)
        yield Progress(self._total, self._total)

    def known(self) -> Iterator[Event]:
        """The file has conversations: what is wrong in it is reported."""
        if not self._found:
            self._found = self._found_any = True
            yield from self._held
            self._held = []

    def save(self, read: Callable[[Note], ConversationRecord], place: str) -> Iterator[Event]:
        """Save the chat that `read` finds at a place, and report what it notes."""
        yield from self.known()
        notes: list[Broken] = []
        count = 0

        def note(where: str, reason: str) -> None:
            nonlocal count
            count += 1
            if count <= _MOST_NOTES:
                notes.append(Broken(f"{place}, {line_of(where)}", sentence(reason)))

        try:
            record = read(note)
            if self.pictures is not None:
                record = self.pictures.taken(record)
        except Unreadable as error:
            yield Broken(place, sentence(str(error)))
        else:
            saved = self._writer.save(record)
            if saved.messages:  # otherwise an earlier import has reported it
                self._left_out.update(record.left_out)
            yield saved
        yield from notes
        if count > _MOST_NOTES:
            yield Broken(
                place, _("{count:,} more of its messages could not be read.", count=count - _MOST_NOTES)
            )

    def flaw(self, broken: Broken) -> Iterator[Event]:
        """Something is wrong with the file."""
        if self._found or self.alone:
            yield broken
        elif len(self._held) < _MOST_NOTES:
            self._held.append(broken)

    def progress(self, done: int) -> Iterator[Event]:
        """As many bytes of the file are `done`; reported now and then."""
        now = time.monotonic()
        if now - self._reported >= PROGRESS_S:
            self._reported = now
            yield Progress(min(self._done + done, self._total), self._total)
