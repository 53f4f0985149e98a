"""Imports and exports conversations on a thread and connection of their own; the window stays usable."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.database.database import Database, StoreError

if TYPE_CHECKING:
    from desktop.services.transfer.transfer_report import Exported, ImportReport
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
        self._background = Background("transfer", self)
        self._imports: set[Job] = set()
        self._exports: set[Job] = set()

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
        job = self._background.start(
            lambda stop: _import(path, files, stop),
            lambda report: self._on_imported(job, report),
            lambda sentence, _details: self._on_imported(job, None, sentence),
            self.importing.emit,
        )
        self._imports.add(job)

    def cancel_import(self) -> None:
        """Stop after the current conversation; what was imported stays."""
        for job in self._imports:
            job.stop()

    def export(self, ids: Sequence[int], label: str, target: Path, thoughts: bool = True) -> None:
        """Write conversations in the format `label` to `target`, a file, or a folder for one file each.

        Raises `StoreError` if a temporary one cannot be read.
        """
        given = {number: self._record(number) for number in ids if number >= FIRST_TEMPORARY}
        from desktop.services.transfer.export_job import Choice, export  # the formats: only for an export

        path, choice = self._stores.database.path, Choice(tuple(ids), thoughts, given)
        job = self._background.start(
            lambda stop: export(path, choice, label, target, stop),
            lambda exported: self._on_exported(job, exported),
            lambda sentence, _details: self._on_exported(job, None, sentence),
            lambda progress: self.exporting.emit(progress.done, progress.total),
        )
        self._exports.add(job)

    def cancel_export(self) -> None:
        """Stop soon; an incomplete file is removed."""
        for job in self._exports:
            job.stop()

    def markdown(self, conversation_id: int) -> str:
        """The shown path of one conversation as Markdown, pictures by their names. Raises `StoreError`."""
        from desktop.store.transfer.exporters.markdown import markdown

        return "".join(markdown([dataclasses.replace(self._record(conversation_id), pictures={})]))

    def close(self) -> bool:
        """Cancel what runs and end the thread; False if it did not end in time."""
        return self._background.close()

    def _record(self, number: int) -> ConversationRecord:
        # here and below: imported only for an import or export
        from desktop.store.conversations.bulk_insert import read_whole

        return read_whole(self._stores.database_of(number), number)

    def _on_imported(self, job: Job, report: ImportReport | None, trouble: str = "") -> None:
        """Without a report it failed, or was cancelled before it began."""
        from desktop.services.transfer.transfer_report import ImportReport

        self._imports.discard(job)
        self.imported.emit(report or ImportReport(trouble=trouble, cancelled=not trouble))

    def _on_exported(self, job: Job, exported: Exported | None, trouble: str = "") -> None:
        from desktop.services.transfer.transfer_report import Exported

        self._exports.discard(job)
        self.exported.emit(exported or Exported(Path(), 0, trouble, cancelled=not trouble))


def _import(
    path: Path, files: Sequence[Path], stop: threading.Event
) -> Generator[ImportReport, None, ImportReport]:
    """Collect events into a report, which is yielded ten times a second."""
    from desktop.services.composer.pictures import encoded
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
            for event in import_conversations(database, file, stop.is_set, encode=encoded):
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
