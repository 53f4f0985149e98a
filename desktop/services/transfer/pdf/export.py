"""Prints conversations as PDF with Qt's rich text, off the GUI thread, one small piece after another.

Source: https://doc.qt.io/qt-6/threads-modules.html#painting-in-threads
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from PySide6.QtCore import QEventLoop, QFile, QFileDevice, QIODevice, QLocale, QMarginsF
from PySide6.QtGui import QPageLayout, QPageSize, QPainter, QPdfWriter

from desktop.services.transfer.pdf.outline import add_marks
from desktop.services.transfer.pdf.paginator import Mark, Paginator
from desktop.store.database.errors import StoreError
from desktop.store.transfer.exporters.print import first_words, print_pieces
from desktop.store.transfer.exporters.reading import shown_path, when
from desktop.store.transfer.exporters.write import written_whole
from desktop.store.transfer.records import ConversationRecord, Progress
from engine.words import _

__all__ = ["page_size", "write_pdf"]

DPI = 96
SIDE_MM, TOP_MM, BOTTOM_MM = 20.0, 22.0, 20.0
_LETTER = ("US", "CA", "MX", "PH", "CL", "CO", "VE", "CR", "GT", "PA", "DO", "SV", "NI", "PR")


def page_size(territory: str = "") -> QPageSize:
    """Letter in countries that use it, else A4; without a territory, the system's region decides."""
    code = territory or QLocale.territoryToCode(QLocale.system().territory())
    return QPageSize(QPageSize.PageSizeId.Letter if code in _LETTER else QPageSize.PageSizeId.A4)


def write_pdf(
    conversations: Iterable[ConversationRecord], path: Path, size: QPageSize | None = None, count: int = 1
) -> Iterator[Progress]:
    """Print `count` conversations (at least one) to `path`, each from a new page on; the first one's title is
    the document's. Yields how many pieces are done (the total is estimated from the messages).

    An existing file stays as it was if this ends early or fails. Raises `StoreError` if the file cannot be
    written, and what `conversations` raises.
    """
    from pypdf.errors import PyPdfError

    # laying out a long document starts timers, which need an event dispatcher in this thread
    _dispatcher = QEventLoop()
    rest = iter(conversations)  # read one at a time: all of them may not fit into memory
    first = next(rest)
    title = _title(first)
    made = when(first.created_at) if count == 1 else ""
    about = {"/Title": title, "/Creator": "Inglenook"} | (
        {"/Subject": _("Chat from {made}", made=made)} if made else {}
    )
    with written_whole(path) as part:
        part.touch()  # raises an error that explains trouble with the location
        file = QFile(str(part))
        is_whole = file.open(QIODevice.OpenModeFlag.WriteOnly)
        writer = _writer(file, size or page_size(), title)
        painter = QPainter()
        is_whole = is_whole and painter.begin(writer)
        try:
            if is_whole:
                paginator = Paginator(writer, painter, title)
                if count > 1:
                    paginator.marks.append(Mark(title, 0, 0.0))
                for number, conversation in enumerate(chain([first], rest)):
                    if number:
                        paginator.begin(_title(conversation))
                    for share in _print(paginator, conversation):
                        yield Progress(number * share.total + share.done, count * share.total)
                paginator.end()
        except GeneratorExit:
            part.unlink(missing_ok=True)
            raise
        finally:
            is_whole = is_whole and painter.end()
            is_whole = file.flush() and file.error() == QFileDevice.FileError.NoError and is_whole
            file.close()
        if not is_whole:
            raise _trouble(path)
        layout = writer.pageLayout().margins(QPageLayout.Unit.Point)
        try:
            add_marks(part, paginator.marks, (layout.top(), layout.bottom()), about)
        except PyPdfError as error:  # what Qt wrote is incomplete
            raise _trouble(path) from error


def _title(conversation: ConversationRecord) -> str:
    return first_words(conversation.title, 300) or _("Chat")


def _print(paginator: Paginator, conversation: ConversationRecord) -> Iterator[Progress]:
    total = 2 + 2 * len(shown_path(conversation))
    for done, piece in enumerate(print_pieces(conversation)):
        paginator.put(piece)
        yield Progress(min(done, total), total)
        time.sleep(0)  # layout holds the interpreter lock: let the window run between two pieces


def _writer(file: QFile, size: QPageSize, title: str) -> QPdfWriter:
    writer = QPdfWriter(file)
    writer.setPageSize(size)
    writer.setPageMargins(QMarginsF(SIDE_MM, TOP_MM, SIDE_MM, BOTTOM_MM), QPageLayout.Unit.Millimeter)
    writer.setResolution(DPI)
    writer.setTitle(title)
    writer.setCreator("Inglenook")
    return writer


def _trouble(path: Path) -> StoreError:
    return StoreError(
        _("The PDF cannot be saved as {path}. Choose another place, or free some disk space.", path=path)
    )
