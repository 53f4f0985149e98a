"""Has a document read by a separate process, within limits on its size, characters, time and memory."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desktop.store.attachments.unreadable import Unreadable
from engine.units import size_text
from engine.words import _

if TYPE_CHECKING:
    import subprocess

__all__ = ["not_text", "read_document"]

MOST_DOCUMENT_BYTES = 200 << 20
MOST_PAGES = 500
MOST_S = 30.0
_MOST_MEMORY = 3 << 30
_GRACE_S = 5.0
"""Time beyond the reader's own limit, which it checks between two pages."""
_LOOK_S = 0.05


def read_document(path: Path, size: int, most_characters: int, stop: threading.Event) -> tuple[str, str]:
    """The text of a document, or its beginning, and the note of its `Attachment`. Raises `Unreadable`."""
    name = path.name
    if size > MOST_DOCUMENT_BYTES:
        raise Unreadable(
            _(
                "“{path}” is {size}, but documents can be at most {most}. Attach a smaller file.",
                path=name,
                size=size_text(size),
                most=size_text(MOST_DOCUMENT_BYTES),
            )
        )
    answer = _ask_reader(path, most_characters, stop)
    if answer is None:
        raise Unreadable(
            _(
                "“{path}” was not read completely: reading was stopped, or took too long or too much memory.",
                path=name,
            )
        )
    if "pages" not in answer:
        raise Unreadable(_sentence(name, str(answer.get("trouble"))))
    pages, total = [str(page) for page in answer["pages"]], int(answer["total"])
    if total > 1:  # so that the model can name the page
        pages = [f"[Page {number}]\n{page}" if page else "" for number, page in enumerate(pages, 1)]
    text = "\n\n".join(page for page in pages if page)
    if not text.strip():
        raise Unreadable(
            _(
                "“{path}” contains no text. If it has pictures of text, run text recognition (OCR) on it "
                "first.",
                path=name,
            )
        )
    note = f"first {len(pages):,} of {total:,} pages" if len(pages) < total else ""
    return text, f"first {len(text):,} characters" if answer.get("cut") else note


def _sentence(name: str, trouble: str) -> str:
    """Why a document cannot be attached."""
    if trouble == "locked":
        return _(
            "“{path}” is encrypted or copy-protected. Save a copy without a password, then attach the copy.",
            path=name,
        )
    if trouble == "old":
        return _(
            "“{path}” has the format of Word or PowerPoint before 2007. Save it as .docx or .pptx, then "
            "attach that file.",
            path=name,
        )
    if trouble == "unknown":
        return not_text(name)
    return _(
        "“{path}” is damaged: it cannot be read. Save it again in the program that created it, then attach "
        "it again.",
        path=name,
    )


def not_text(name: str) -> str:
    """Why a file that is neither text nor a document cannot be attached."""
    return _(
        "“{path}” is neither text nor a picture. You can attach text, code, PDF, Word, Excel, PowerPoint and "
        "OpenDocument files, e-books, notebooks and pictures.",
        path=name,
    )


def _ask_reader(path: Path, most_characters: int, stop: threading.Event) -> dict[str, Any] | None:
    """What the separate process answers; None if it was stopped, took too long or hit its limits."""
    # not needed to start the window
    import subprocess

    from engine.platform.python_process import NO_WINDOW, python_command

    limits = (MOST_PAGES, most_characters, round(MOST_S), _MOST_MEMORY)
    # its input ends with this process, however that ends: nothing waits for this thread to kill the reader
    given, held = os.pipe()
    try:
        reader = subprocess.Popen(
            python_command(
                "desktop.store.attachments.documents.process", str(path.absolute()), *map(str, limits)
            ),
            stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, creationflags=NO_WINDOW,
        )  # fmt: skip
        return _answer_of(reader, stop)
    finally:
        os.close(given)
        os.close(held)


def _answer_of(reader: subprocess.Popen[bytes], stop: threading.Event) -> dict[str, Any] | None:
    from subprocess import TimeoutExpired

    until = time.monotonic() + MOST_S + _GRACE_S
    try:
        while True:
            try:
                out, _unused = reader.communicate(timeout=_LOOK_S)
                break
            except TimeoutExpired:
                if stop.is_set() or time.monotonic() > until or _memory(reader.pid) > _MOST_MEMORY:
                    return None
    finally:
        if reader.poll() is None:
            reader.kill()
            reader.communicate()
    try:
        answer = json.loads(out)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _memory(process: int) -> int:
    """The bytes that a process holds: not every system bounds them."""
    import psutil

    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:
        return 0
