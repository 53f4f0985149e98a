"""One export: conversations from the store into a file, which appears only once it is complete."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.database.database import Database, StoreError
from desktop.store.transfer.exporters.html import html_page
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.names import free_name
from desktop.store.transfer.exporters.own import own_json
from desktop.store.transfer.exporters.reading import without_thoughts
from desktop.store.transfer.records import ConversationRecord, Progress
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["FORMATS", "Choice", "ExportFormat", "export_conversations", "export_folder", "written_whole"]


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A file format: its name for the user, its extension, and the function that yields its text. One that is
    `lossless` keeps everything, whatever is chosen to be left out.
    """

    label: str
    suffix: str
    write: Callable[[Iterable[ConversationRecord]], Iterator[str]]
    lossless: bool = False


FORMATS = (
    ExportFormat("Markdown", ".md", markdown),
    ExportFormat("Lossless JSON", ".inglenook.json", own_json, lossless=True),
    ExportFormat("Web page", ".html", html_page),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to export: the ids of conversations; `given` has those that are not in the file (temporary ones).

    Without `thoughts`, thoughts are left out of replies, except in a lossless format.
    """

    ids: Sequence[int]
    thoughts: bool = True
    given: Mapping[int, ConversationRecord] = field(default_factory=dict)

    def record(self, database: Database, number: int) -> ConversationRecord:
        """One conversation of the choice. Raises `StoreError` if it does not exist."""
        found = self.given[number] if number in self.given else read_whole(database, number)
        return found if self.thoughts else without_thoughts(found)


def export_conversations(
    database: Database,
    choice: Choice | Sequence[int],
    path: Path,
    format: ExportFormat,
    cancel: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Write the conversations into one file, yielding how many are done; `database` belongs to this thread.

    When `cancel()` returns true, or anything fails, an existing file stays unchanged. Raises `StoreError` if
    a conversation does not exist or the file cannot be written.
    """
    chosen = choice if isinstance(choice, Choice) else Choice(choice)
    done = 0
    is_cancelled = False

    def records() -> Iterator[ConversationRecord]:
        nonlocal done
        for number in chosen.ids:
            yield chosen.record(database, number)
            done += 1

    with written_whole(path) as part:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for piece in format.write(records()):
                if is_cancelled := cancel():
                    break
                file.write(piece)
                yield Progress(done, len(chosen.ids))
            file.flush()
            os.fsync(file.fileno())
        if is_cancelled:
            part.unlink()
            return
    yield Progress(len(chosen.ids), len(chosen.ids))


def export_folder(
    database: Database,
    choice: Choice,
    folder: Path,
    suffix: str,
    write: Callable[[ConversationRecord, Path], Iterator[Progress]],
    cancel: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Write a file for each conversation, named after its title; existing files in the folder are not
    replaced.

    `write` writes one file. Files finished before `cancel()` returned true are kept. Raises `StoreError` like
    `export_conversations`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = {name.casefold() for name in os.listdir(folder)}
    except OSError as error:
        raise _cannot_save(folder, error) from error
    for done, number in enumerate(choice.ids):
        record = choice.record(database, number)
        for _unused in write(record, folder / free_name(record.title, suffix, taken)):
            if cancel():
                return
            yield Progress(done, len(choice.ids))
        yield Progress(done + 1, len(choice.ids))


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name to write to, which replaces `path` at the end unless an error occurs or the file is
    gone.

    Raises `StoreError` for an `OSError` inside.
    """
    part = path.with_name(f".{os.getpid()}.{threading.get_ident()}.part")
    try:
        yield part
        if part.exists():
            os.replace(part, path)
    except OSError as error:
        raise _cannot_save(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _cannot_save(path: Path, error: OSError) -> StoreError:
    why = error.strerror or str(error)
    return StoreError(
        _(
            "The chats cannot be exported to {path} ({why}). Choose another place, or free some disk space.",
            path=path,
            why=why,
        )
    )
