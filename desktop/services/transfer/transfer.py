"""Imports and exports conversations on a thread and connection of their own; the window stays usable."""

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
REPORT_S = 0.1


class TransferService(QObject):
    """One import or export at a time; others wait for it.

    Signals:
        importing(object report): the `ImportReport` so far, several times a second.
        imported(object report): an import ended: completely, cancelled, or with the report's `trouble`.
        exporting(int done, int total): `done` of `total` parts are written.
        exported(object): the `Exported`: where to, or why not.
    """

    importing = Signal(object)
    imported = Signal(object)
    exporting = Signal(int, int)
    exported = Signal(object)

    def __init__(self, stores: ConversationStores, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stores = stores
        self._worker: StreamThread | None = None  # created on first use
        self._imports: dict[int, Job] = {}
        self._exports: dict[int, Job] = {}

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._imports or self._exports)

    @property
    def importing_now(self) -> bool:
        return bool(self._imports)

    @property
    def exporting_now(self) -> bool:
        return bool(self._exports)

    def import_files(self, paths: Sequence[Path]) -> None:
        """Import everything in these files."""
        path, files = self._stores.database.path, tuple(paths)
        job = self._thread().start(lambda stop: _import(path, files, stop))
        self._imports[job.id] = job

    def cancel_import(self) -> None:
        """Stop after the current conversation; what was imported stays."""
        for job in self._imports.values():
            job.stop()

    def export(self, ids: Sequence[int], label: str, target: Path, thoughts: bool = True) -> None:
        """Write conversations in the format `label` to `target`, a file, or a folder for one file each.

        Raises `StoreError` if a temporary one cannot be read.
        """
        given = {number: self._record(number) for number in ids if number >= FIRST_TEMPORARY}
        from desktop.services.transfer.export_job import Choice, export  # the formats: only for an export

        path, choice = self._stores.database.path, Choice(tuple(ids), thoughts, given)
        job = self._thread().start(lambda stop: export(path, choice, label, target, stop))
        self._exports[job.id] = job

    def cancel_export(self) -> None:
        """Stop soon; an incomplete file is removed."""
        for job in self._exports.values():
            job.stop()

    def markdown(self, conversation_id: int) -> str:
        """The shown path of one conversation as Markdown. Raises `StoreError`."""
        from desktop.store.transfer.exporters.markdown import markdown

        return "".join(markdown([self._record(conversation_id)]))

    def close(self) -> bool:
        """Cancel what runs and end the thread; False if it did not end in time."""
        return self._worker is None or self._worker.close()

    def _record(self, number: int) -> ConversationRecord:
        # here and below: imported only for an import or export
        from desktop.store.conversations.bulk_insert import read_whole

        return read_whole(self._stores.database_of(number), number)

    def _thread(self) -> StreamThread:
        if self._worker is None:
            self._worker = StreamThread("transfer", self)
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
        """`result` is None for a job that was cancelled before it began."""
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
    """Collect events into a report, which is yielded ten times a second."""
    from desktop.services.transfer.transfer_report import ImportReport
    from desktop.store.conversations.bulk_insert import discard_unfinished
    from desktop.store.transfer.importers.run import import_conversations

    report = ImportReport(files=len(files))
    reported = 0.0
    try:
        database = Database.second(path)
    except StoreError as error:
        return dataclasses.replace(report, trouble=str(error))
    try:
        for _ in discard_unfinished(database):
            if stop.is_set():
                break
        for number, file in enumerate(files):
            for event in import_conversations(database, file, stop.is_set):
                report = report.with_event(event, number)
                if time.monotonic() - reported >= REPORT_S:
                    reported = time.monotonic()
                    yield report
                    report = report.without_changes()
            if stop.is_set():
                break
    except StoreError as error:
        report = dataclasses.replace(report, trouble=str(error))
    finally:
        database.close()
    return dataclasses.replace(report, cancelled=stop.is_set(), share=1.0)
