"""One import: from a path into the store, entry by entry; each kind of file is read in its own way."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from desktop.store.conversations.bulk_insert import RecordWriter
from desktop.store.database.database import Database
from desktop.store.transfer.importers.databases import MAGIC as DATABASE
from desktop.store.transfer.importers.databases import chat_rows
from desktop.store.transfer.importers.fields import mapping
from desktop.store.transfer.importers.formats import chats_in, format_of, line_format_of
from desktop.store.transfer.importers.json_entries import MOST_BYTES, Entry, Flaw, json_entries
from desktop.store.transfer.importers.pictures import Encode, PictureImporter
from desktop.store.transfer.importers.programs import gemini_page
from desktop.store.transfer.importers.programs.character_cards import PNG, card_in_png
from desktop.store.transfer.importers.programs.gpt4all import MAGIC, read_chat
from desktop.store.transfer.importers.programs.markdown_chats import ENDINGS as TEXTS
from desktop.store.transfer.importers.programs.markdown_chats import markdown_chats
from desktop.store.transfer.importers.programs.rows import Rows, table_rows
from desktop.store.transfer.importers.protocol import LineFormat, Unreadable
from desktop.store.transfer.importers.report import ImportReport
from desktop.store.transfer.importers.sentences import reason_of, sentence
from desktop.store.transfer.importers.sources import (
    TROUBLE,
    UTF_16,
    Assets,
    SourceFile,
    after,
    as_utf_8,
    on_disk,
    opened,
    source_files,
)
from desktop.store.transfer.records import Broken, Event
from engine.json_value import json_value
from engine.lazy_dataclass import dataclass
from engine.printable import one_line
from engine.units import size_text
from engine.words import N_, _, translate

__all__ = ["import_conversations"]

_HEAD = 1024
_PIECE = 1 << 18
_DEEPEST = 2
"""Archives within archives."""
_ROW = N_("row {number:,}")


def import_conversations(
    database: Database,
    path: Path,
    cancel: Callable[[], bool] = lambda: False,
    most_bytes: int = MOST_BYTES,
    encode: Encode | None = None,
) -> Iterator[Event]:
    """Import every conversation of a file, zip archive or folder, each completely or not at all; yields
    events.

    `database` was opened by the calling thread. When `cancel()` returns true the import ends between two
    entries; what was imported stays. An entry of more than `most_bytes` is refused, and no more than that is
    held in memory. Pictures are made ready by `encode`; without it, short marks take their places. Whatever
    is wrong with the file is reported as `Broken`; only trouble with the store raises `StoreError`.
    """
    with contextlib.ExitStack() as stack:
        try:
            files = stack.enter_context(source_files(path))
        except TROUBLE as error:
            yield Broken(path.name, _("The file cannot be opened ({reason}).", reason=reason_of(error)))
            return
        total = sum(file.size for file in files)
        report = ImportReport(RecordWriter(database), total, alone=len(files) == 1)
        assets = Assets(files)
        report.pictures = PictureImporter(encode, assets.read)
        run = _Run(report, cancel, most_bytes, assets)
        for file in files:
            yield from run.file(file, path.name if report.alone and file.member is None else file.name)
            if run.stopped:
                return
    yield from report.end(path.name, len(assets.used))


@dataclass
class _Group:
    """A conversation in lines, of which more may follow; those of one that is too large are skipped."""

    format: LineFormat
    place: str
    values: list[Any] = field(default_factory=list)
    bytes: int = 0
    too_large: bool = False


@dataclass
class _Run:
    """The state of one import."""

    report: ImportReport
    cancel: Callable[[], bool]
    most_bytes: int
    assets: Assets
    stopped: bool = False
    _foreign: int = 0
    _depth: int = 0
    _group: _Group | None = None

    def file(self, source: SourceFile, name: str) -> Iterator[Event]:
        """Everything in one file. In an archive, a file with nothing known in it is skipped and counted."""
        yield from self.report.progress(0)
        if self.cancel():
            self.stopped = True
            return
        if source.member is not None and source.ending == ".zip" and self._depth < _DEEPEST:
            yield from self._archive(source, name)
            return
        self._foreign, self._group, self.assets.chats = 0, None, source
        self.report.begin_file()
        try:
            with opened(source) as stream:
                head = stream.read(_HEAD)
                read = after(head, stream)
                if head.startswith(UTF_16):
                    head, read = head.decode("utf-16", "replace").encode("utf-8"), as_utf_8(read)
                if head.startswith(MAGIC):
                    yield from self._chat(head + stream.read(self.most_bytes + 1), name)
                elif head.startswith(DATABASE):
                    yield from self._database(source, name)
                elif source.ending == ".csv":
                    yield from self._parsed(read, name, table_rows, _ROW)
                elif head.startswith(PNG) and self.report.alone and source.member is None:
                    yield from self._card(source, name)
                elif source.ending in TEXTS and head.lstrip()[:1] not in (b"{", b"["):
                    yield from self._parsed(read, name, lambda data: markdown_chats(data, name))
                elif source.ending in gemini_page.ENDINGS:
                    head += stream.read(gemini_page.HEAD)
                    if gemini_page.is_activity(head.decode("utf-8", "replace")):
                        yield from self._parsed(after(head, stream), name, gemini_page.activities)
                elif self.report.alone or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
                    yield from self._entries(read, name)
        except TROUBLE as error:
            yield from self.report.flaw(
                Broken(name, _("The file cannot be read completely ({reason}).", reason=reason_of(error)))
            )
        if not self.stopped:
            yield from self._close()
        yield from self.report.end_file(name, source.size, self._foreign, self.stopped)

    def _chat(self, data: bytes, name: str) -> Iterator[Event]:
        if len(data) > self.most_bytes:
            yield from self.report.flaw(
                Broken(name, _("It is larger than {size}.", size=size_text(self.most_bytes)))
            )
        else:
            yield from self.report.save(lambda note: read_chat(data, note), name)

    def _database(self, source: SourceFile, name: str) -> Iterator[Event]:
        try:
            with on_disk(source, self.cancel) as path:
                for found in chat_rows(path, self.cancel, self.most_bytes) if path is not None else ():
                    if isinstance(found, tuple):
                        yield from self.report.progress(source.size * found[0] // max(found[1], 1))
                    elif isinstance(found, Flaw):
                        yield from self.report.flaw(
                            Broken(f"{name}, {found.place}" if found.place else name, sentence(found.reason))
                        )
                    else:
                        yield from self._entry(found, f"{name}, {found.place}", 0)
                    if self.cancel():
                        break
        except Unreadable as error:
            yield from self.report.flaw(Broken(name, sentence(str(error))))
        self.stopped = self.cancel()

    def _entries(self, read: Callable[[int], bytes], name: str) -> Iterator[Event]:
        last = 0
        for found in json_entries(read, self._accepts, self.most_bytes):
            if self.cancel():
                self.stopped = True
                return
            if isinstance(found, int):
                yield from self.report.progress(found)
            elif isinstance(found, Flaw):
                yield from self.report.flaw(Broken(f"{name}, {found.place}", sentence(found.reason)))
                last = found.end
            else:
                yield from self._entry(found, f"{name}, {found.place}", found.end - last)
                last = found.end

    def _card(self, source: SourceFile, name: str) -> Iterator[Event]:
        """The character card in a picture, if it has one."""
        with opened(source) as stream:
            card = card_in_png(stream)
        if card is not None:
            yield from self._entry(Entry(name, card, source.size), name, 0)

    def _parsed(
        self,
        read: Callable[[int], bytes],
        name: str,
        values: Callable[[bytes], Iterable[Any]],
        where: str = "",
    ) -> Iterator[Event]:
        """The chats that `values` finds in all of a file, at places called `where` in it."""
        data = bytearray()
        while len(data) <= self.most_bytes and (piece := read(_PIECE)):
            data += piece
        if len(data) > self.most_bytes:
            reason = _("It is larger than {size}.", size=size_text(self.most_bytes))
            return (yield from self.report.flaw(Broken(name, reason)))
        for number, value in enumerate(values(bytes(data)), start=1):
            if self.cancel():
                self.stopped = True
                return
            place = translate(where, number=number) if where else name
            yield from self._entry(Entry(place, value, number), f"{name}, {place}" if where else name, 0)

    def _archive(self, source: SourceFile, name: str) -> Iterator[Event]:
        """Everything in an archive that lies in another; its chats refer to its own files."""
        outer = self.assets, self.report.pictures
        self._depth += 1
        try:
            with on_disk(source, self.cancel) as path:
                for file in self._entered(path) if path is not None else ():
                    yield from self.file(file, one_line(f"{name}, {file.name.partition(', ')[2]}"))
                    if self.stopped:
                        return
        except Unreadable as error:
            yield Broken(name, sentence(str(error)))
        except TROUBLE as error:
            reason = _("The file cannot be read completely ({reason}).", reason=reason_of(error))
            yield Broken(name, reason)
        finally:
            self._depth -= 1
            self.assets, self.report.pictures = outer
        self.stopped = self.stopped or self.cancel()

    def _entered(self, path: Path) -> Iterator[SourceFile]:
        """The files of an unpacked archive, which are open while this generator lives."""
        with source_files(path) as files:
            before = self.report.pictures
            self.assets = Assets(files)
            encode = before.encode if before is not None else None
            self.report.pictures = PictureImporter(encode, self.assets.read)
            yield from files

    def _entry(self, entry: Entry, place: str, size: int) -> Iterator[Event]:
        value = entry.value
        format = format_of(value)
        if self._group is not None and format is None and self._group.format.continues(value):
            yield from self._continue(self._group, value, size)
            return
        yield from self._close()
        if format is not None:
            yield from self.report.save(lambda note: format.read(value, note), place)
        elif (begun := line_format_of(value)) is not None:
            self._group = _Group(begun, place, [value], size)
        elif inner := chats_in(value):
            for number, found in enumerate(inner, start=1):
                yield from self._entry(
                    Entry(entry.place, found, entry.end),
                    _("{place}, {number:,} in it", place=place, number=number),
                    size,
                )
                yield from self._close()
        else:
            self._foreign += 1

    def _continue(self, group: _Group, value: Any, size: int) -> Iterator[Event]:
        """Another line of the open conversation."""
        if group.too_large:
            return
        group.values.append(value)
        group.bytes += size
        if group.bytes > self.most_bytes:
            group.too_large, group.values = True, []
            yield from self.report.known()
            yield Broken(group.place, _("It is larger than {size}.", size=size_text(self.most_bytes)))

    def _close(self) -> Iterator[Event]:
        """Save the open conversation of lines: it is complete."""
        group, self._group = self._group, None
        if group is not None and not group.too_large:
            about = self._beside(group.format.beside)
            chats = group.format.chats(group.values) if isinstance(group.format, Rows) else [group.values]
            for lines in chats:
                read = functools.partial(group.format.read_lines, lines, about=about)
                yield from self.report.save(read, group.place)

    def _beside(self, name: str) -> dict[str, Any]:
        """The object in the file of this name in the folder of the chats; empty without one."""
        data = self.assets.beside(name) if name else None
        return mapping(json_value(data)) if data else {}

    def _accepts(self, value: Any) -> bool:
        return format_of(value) is not None or (
            self._group is not None and self._group.format.continues(value)
        )
