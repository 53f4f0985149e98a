"""Conversations in and out, on a thread of their own with a connection of their own: the window and a
reply go on meanwhile.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.stream_thread import Job, StreamThread
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.database.database import Database, StoreError

if TYPE_CHECKING:
    from desktop.services.transfer.transfer_report import ImportReport
    from desktop.store.transfer.records import ConversationRecord

__all__ = ["PDF", "TransferService"]

PDF = "PDF"
"""The name of the format that is printed; the others are those of `exporters.FORMATS`."""
TELL_S = 0.1


class TransferService(QObject):
    """One import or export at a time; a second one waits for the first.

    Signals:
        importing(object report): the `ImportReport` so far, a few times a second.
        imported(object report): an import is over: whole, cancelled, or ended by the report's `trouble`.
        exporting(int done, int total): `done` of `total` parts are written.
        exported(object): the `Exported` that says where to, or why not.
    """

    importing = Signal(object)
    imported = Signal(object)
    exporting = Signal(int, int)
    exported = Signal(object)

    def __init__(self, stores: ConversationStores, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stores = stores
        self._worker: StreamThread | None = None  # made when first needed
        self._imports: dict[int, Job] = {}
        self._exports: dict[int, Job] = {}

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._imports or self._exports)

    @property
    def importing_now(self) -> bool:
        """Whether an import runs."""
        return bool(self._imports)

    @property
    def exporting_now(self) -> bool:
        """Whether an export runs."""
        return bool(self._exports)

    def import_files(self, paths: Sequence[Path]) -> None:
        """Bring in everything that these files hold."""
        path, files = self._stores.database.path, tuple(paths)
        job = self._thread().start(lambda stop: _import(path, files, stop))
        self._imports[job.id] = job

    def cancel_import(self) -> None:
        """End it at the next conversation; what was imported stays."""
        for job in self._imports.values():
            job.stop()

    def export(self, ids: Sequence[int], label: str, target: Path, thoughts: bool = True) -> None:
        """Write conversations in the format `label` to `target`: a file, or a folder for a file each where it
        is one.

        Raises `StoreError` when a temporary one cannot be read.
        """
        given = {number: self._record(number) for number in ids if number >= FIRST_TEMPORARY}
        from desktop.services.transfer.export_job import Choice, export  # the formats: for those who export

        path, choice = self._stores.database.path, Choice(tuple(ids), thoughts, given)
        job = self._thread().start(lambda stop: export(path, choice, label, target, stop))
        self._exports[job.id] = job

    def cancel_export(self) -> None:
        """End it soon; a file that is not whole is removed."""
        for job in self._exports.values():
            job.stop()

    def markdown(self, conversation_id: int) -> str:
        """The shown path of one conversation as Markdown, at once. Raises `StoreError`."""
        from desktop.store.transfer.exporters.markdown import markdown

        return "".join(markdown([self._record(conversation_id)]))

    def close(self) -> bool:
        """Cancel what runs and end the thread; False when it did not end in time."""
        return self._worker is None or self._worker.close()

    # -- parts
    # --------------------------------------------------------------------------------------------------------

    def _record(self, number: int) -> ConversationRecord:
        # here and below: only for who imports or exports
        from desktop.store.conversations.bulk_insert import read_whole

        return read_whole(self._stores.database_of(number), number)

    def _thread(self) -> StreamThread:
        if self._worker is None:
            self._worker = StreamThread("exchange", self)
            self._worker.yielded.connect(self._on_event)
            self._worker.finished.connect(self._on_finished)
            self._worker.failed.connect(self._on_failed)
        return self._worker

    @Slot(int, object)
    def _on_event(self, job: int, event: Any) -> None:
        if job in self._imports:
            self.importing.emit(event)
        elif job in self._exports:
            self.exporting.emit(event.done, event.total)

    @Slot(int, object)
    def _on_finished(self, job: int, result: Any) -> None:
        """None is the result of a job that was cancelled before it began."""
        from desktop.services.transfer.transfer_report import Exported, ImportReport

        if self._imports.pop(job, None) is not None:
            self.imported.emit(result if result is not None else ImportReport(cancelled=True))
        elif self._exports.pop(job, None) is not None:
            self.exported.emit(result if result is not None else Exported(Path(), 0, cancelled=True))

    @Slot(int, str, str)
    def _on_failed(self, job: int, sentence: str, details: str) -> None:
        from desktop.services.transfer.transfer_report import Exported, ImportReport

        if self._imports.pop(job, None) is not None:
            self.imported.emit(ImportReport(trouble=sentence))
        elif self._exports.pop(job, None) is not None:
            self.exported.emit(Exported(Path(), 0, trouble=sentence))


def _import(
    path: Path, files: Sequence[Path], stop: threading.Event
) -> Generator[ImportReport, None, ImportReport]:
    """Gathers what happens into a report that is told ten times a second."""
    from desktop.services.transfer.transfer_report import ImportReport
    from desktop.store.conversations.bulk_insert import discard_unfinished
    from desktop.store.transfer.importers.run import import_conversations

    report = ImportReport(files=len(files))
    told = 0.0
    try:
        database = Database.beside(path)
    except StoreError as error:
        return dataclasses.replace(report, trouble=str(error))
    try:
        for _ in discard_unfinished(database):
            if stop.is_set():
                break
        for number, file in enumerate(files):
            for event in import_conversations(database, file, stop.is_set):
                report = report.with_event(event, number)
                if time.monotonic() - told >= TELL_S:
                    told = time.monotonic()
                    yield report
                    report = report.told()
            if stop.is_set():
                break
    except StoreError as error:
        report = dataclasses.replace(report, trouble=str(error))
    finally:
        database.close()
    return dataclasses.replace(report, cancelled=stop.is_set(), share=1.0)
