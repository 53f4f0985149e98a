"""Reads files for a message; one on a disk or server that does not answer holds up neither the others nor the
end of the program.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from pathlib import Path

from PySide6.QtGui import QImage

from desktop.services.composer.folder_files import MOST_FILES, files_of
from desktop.services.composer.pictures import ReadPicture, encoded, is_picture, picture_bytes, shrunk
from desktop.store.attachments.files import Unreadable, read_attachment
from desktop.store.attachments.message_format import Attachment
from desktop.store.attachments.pictures import MOST_STORED, PictureStore
from desktop.store.database.database import Database, StoreError
from engine.printable import one_line
from engine.words import _

__all__ = ["Found", "Read", "pasted_picture", "read_files", "saved"]

Read = Attachment | ReadPicture
Found = Generator[Read | str | None, None, None]
LONGEST_S = 60.0
"""For one file, longer than the slowest PDF file may take."""
_LOOK_S = 0.05


def read_files(paths: Sequence[Path], stop: threading.Event, known: frozenset[str] = frozenset()) -> Found:
    """What is in each file, or a sentence why it cannot be attached; None while one is being read, so that
    other jobs of the thread have their turn. Of a folder, its files are read. Files with a `known` name are
    left out.
    """
    for path in _files(paths):
        if stop.is_set():
            return
        if isinstance(path, str):
            yield path
            continue
        if one_line(path.name) in known:
            continue
        until = time.monotonic() + LONGEST_S
        reading = _begun(path, stop)
        while not wait([reading], _LOOK_S).done:
            if stop.is_set():
                return
            if time.monotonic() > until:
                break
            yield None
        if reading.done():
            found = _decoded(path, reading.result())
            if not (stop.is_set() and isinstance(found, str)):  # a PDF that stopped says that it did
                yield found
        else:
            yield _(
                "“{path}” was not read: its disk or server does not answer. Copy it to another place, then "
                "attach the copy.",
                path=one_line(path.name),
            )


def _files(paths: Sequence[Path]) -> Generator[Path | str, None, None]:
    """The files, and those in the folders; a sentence where a folder cannot be read, or not all of it is."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        folder = one_line(path.name)
        try:
            files = files_of(path)
        except OSError as error:
            yield _("“{path}” cannot be read: {strerror}.", path=folder, strerror=error.strerror or error)
            continue
        yield from files[:MOST_FILES]
        if len(files) > MOST_FILES:
            yield _(
                "“{folder}” has more than {most} files. Only the first {most} were attached.",
                folder=folder,
                most=MOST_FILES,
            )


def _begun(path: Path, stop: threading.Event) -> Future[Attachment | bytes | str]:
    """A file that is read by a thread of its own: nothing ends a call of the system that waits for a disk. It
    reads only the bytes of a picture: a thread that decodes one with Qt while the program ends crashes it.
    """
    future: Future[Attachment | bytes | str] = Future()

    def read() -> None:
        try:
            future.set_result(picture_bytes(path) if is_picture(path) else read_attachment(path, stop))
        except Unreadable as error:
            future.set_result(str(error))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            future.set_exception(error)

    threading.Thread(target=read, name="attachment", daemon=True).start()
    return future


def _decoded(path: Path, found: Attachment | bytes | str) -> Read | str:
    """What was read; of the bytes of a picture the picture, or a sentence why it cannot be attached."""
    if not isinstance(found, bytes):
        return found
    name = one_line(path.name)
    try:
        return ReadPicture(name, encoded(found, name))
    except Unreadable as error:
        return str(error)


def pasted_picture(image: QImage, name: str) -> Found:
    """A picture that has no file."""
    yield ReadPicture(name, shrunk(image))


def saved(found: Found, library: Path | None) -> Found:
    """What is read, with its pictures saved in the database `library` already: the window would wait 10 to 20
    ms for each. Where that fails, or may not be, `AttachmentService.hold_picture` says so.
    """
    for each in found:
        if library is not None and isinstance(each, ReadPicture):
            with suppress(StoreError), closing(Database.second(library)) as database:
                if (store := PictureStore(database)).total() <= MOST_STORED:
                    store.put(each.picture)
        yield each
