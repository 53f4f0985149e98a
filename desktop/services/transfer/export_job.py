"""One export, run on the transfer thread."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from desktop.services.transfer.transfer_report import Exported
from desktop.store.database.database import Database, StoreError
from desktop.store.transfer.exporters.write import (
    FORMATS,
    Choice,
    ExportFormat,
    export_conversations,
    export_folder,
)
from desktop.store.transfer.records import ConversationRecord, Progress

__all__ = ["Choice", "export"]

REPORT_S = 0.1


def export(
    path: Path, choice: Choice, label: str, target: Path, stop: threading.Event
) -> Generator[Progress, None, Exported]:
    """Write the chosen conversations of the database at `path` to `target`, a file or a folder, in the format
    `label`.
    """
    reported = 0.0
    try:
        database = Database.second(path)
    except StoreError as error:
        return Exported(target, 0, str(error))
    try:
        for event in _writing(database, choice, label, target, stop.is_set):
            if stop.is_set():
                break
            if time.monotonic() - reported >= REPORT_S:
                reported = time.monotonic()
                yield event
    except StoreError as error:
        return Exported(target, 0, str(error))
    finally:
        database.close()
    return Exported(target, len(choice.ids), cancelled=stop.is_set())


def _writing(
    database: Database, choice: Choice, label: str, target: Path, cancel: Callable[[], bool]
) -> Iterator[Progress]:
    format = next((found for found in FORMATS if found.label == label), None)
    if format is not None and format.lossless:
        choice = dataclasses.replace(choice, thoughts=True)
    if format is not None and not target.is_dir():
        yield from export_conversations(database, choice, target, format, cancel)
        return
    if format is not None:
        suffix, write = format.suffix, _writer_of(format, database, cancel)
    else:
        from desktop.services.transfer.pdf.export import write_pdf  # needs Qt's painting: only for PDF

        if not target.is_dir():
            records = (choice.record(database, number) for number in choice.ids)
            yield from write_pdf(records, target, count=len(choice.ids))
            return
        suffix, write = ".pdf", lambda record, path: write_pdf([record], path)
    yield from export_folder(database, choice, target, suffix, write, cancel)


def _writer_of(
    format: ExportFormat, database: Database, cancel: Callable[[], bool]
) -> Callable[[ConversationRecord, Path], Iterator[Progress]]:
    return lambda record, path: export_conversations(
        database, Choice((0,), given={0: record}), path, format, cancel
    )
