"""One export: conversations from the store into a file, which appears only when it is whole."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.database.database import Database, StoreError
from desktop.store.transfer.exporters.html import html_page
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.names import free_name
from desktop.store.transfer.exporters.own import own_json
from desktop.store.transfer.exporters.reading import without_thoughts
from desktop.store.transfer.records import ConversationRecord, Progress

__all__ = ["FORMATS", "Choice", "ExportFormat", "export_conversations", "export_folder", "written_whole"]


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A kind of file: its name for people, its ending, and what gives its text piece by piece."""

    label: str
    suffix: str
    write: Callable[[Iterable[ConversationRecord]], Iterator[str]]


FORMATS = (
    ExportFormat("Markdown", ".md", markdown),
    ExportFormat("JSON, without loss", ".inglenook.json", own_json),
    ExportFormat("Web page", ".html", html_page),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to export: the conversations' ids; `given` are those that are no rows of the file (temporary
    ones). Without `thoughts`, what was thought before an answer is left out; JSON keeps everything.
    """

    ids: Sequence[int]
    thoughts: bool = True
    given: Mapping[int, ConversationRecord] = field(default_factory=dict)

    def record(self, database: Database, number: int) -> ConversationRecord:
        """One conversation of the choice. Raises `StoreError` when it is not there."""
        found = self.given[number] if number in self.given else read_whole(database, number)
        return found if self.thoughts else without_thoughts(found)


def export_conversations(
    database: Database,
    choice: Choice | Sequence[int],
    path: Path,
    format: ExportFormat,
    cancel: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Write the conversations into one file, telling how many of them are done; `database` is the calling
    thread's.

    When `cancel()` turns true, or anything fails, a file that was there stays as it was. Raises `StoreError`
    when a conversation is not there or the file cannot be written.
    """
    wanted = choice if isinstance(choice, Choice) else Choice(choice)
    done = 0
    is_cancelled = False

    def records() -> Iterator[ConversationRecord]:
        nonlocal done
        for number in wanted.ids:
            yield wanted.record(database, number)
            done += 1

    with written_whole(path) as part:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for piece in format.write(records()):
                if is_cancelled := cancel():
                    break
                file.write(piece)
                yield Progress(done, len(wanted.ids))
            file.flush()
            os.fsync(file.fileno())
        if is_cancelled:
            part.unlink()
            return
    yield Progress(len(wanted.ids), len(wanted.ids))


def export_folder(
    database: Database,
    choice: Choice,
    folder: Path,
    suffix: str,
    write: Callable[[ConversationRecord, Path], Iterator[Progress]],
    cancel: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """A file of its own for each conversation, named after its title; nothing that is in the folder is
    replaced.

    `write` makes one file. What was written before `cancel()` turned true stays. Raises `StoreError` as
    `export_conversations` does.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = {name.casefold() for name in os.listdir(folder)}
    except OSError as error:
        raise _cannot_save(folder, error) from error
    for done, number in enumerate(choice.ids):
        record = choice.record(database, number)
        for _ in write(record, folder / free_name(record.title, suffix, taken)):
            if cancel():
                return
            yield Progress(done, len(choice.ids))
        yield Progress(done + 1, len(choice.ids))


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` at the end; where that is not reached, or the file is gone,
    `path` stays as it was.

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
        f"The conversations cannot be saved as {path} ({why}); choose another place or make room there."
    )
