"""One export: conversations from the store into a file, which appears only when it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from desktop.store.database import Database, StoreError
from desktop.store.exchange import ConversationRecord, Progress
from desktop.store.exporters.html import html_page
from desktop.store.exporters.markdown import markdown
from desktop.store.exporters.own import own_json
from desktop.store.intake import read_whole

__all__ = ["FORMATS", "ExportFormat", "export_conversations"]


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A kind of file: its name for people, its ending, and what gives its text piece by piece."""

    label: str
    suffix: str
    write: Callable[[Iterable[ConversationRecord]], Iterator[str]]


FORMATS = (
    ExportFormat("Markdown", ".md", markdown),
    ExportFormat("JSON, without loss", ".json", own_json),
    ExportFormat("Web page", ".html", html_page),
)


def export_conversations(
    database: Database, ids: Sequence[int], path: Path, format: ExportFormat, cancel: Callable[[], bool] = lambda: False
) -> Iterator[Progress]:
    """Write the conversations into one file, telling how many of them are done; `database` is the calling thread's.

    When `cancel()` turns true, or anything fails, a file that was there stays as it was. Raises `StoreError` when a conversation is
    not there or the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    done = 0

    def records() -> Iterator[ConversationRecord]:
        nonlocal done
        for number in ids:
            yield read_whole(database, number)
            done += 1

    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for piece in format.write(records()):
                if cancel():
                    return
                file.write(piece)
                yield Progress(done, len(ids))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(f"The conversations cannot be saved as {path} ({why}); choose another place or make room there.") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    yield Progress(len(ids), len(ids))
