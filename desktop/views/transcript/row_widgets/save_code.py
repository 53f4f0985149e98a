"""Saving a block of code as a file: a name that fits its language, and one sentence when saving fails."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from desktop.views.dialogs.file_dialogs import ask_save
from desktop.views.dialogs.message_box import warn
from engine.platform.whole_file import write_whole
from engine.words import _

__all__ = ["ask_and_save", "file_name", "write_code"]


def file_name(language: str) -> str:
    """The suggested file name for code in `language` as its fence names it: code.py, Dockerfile, code.txt for
    an unknown language.
    """
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        patterns = get_lexer_by_name(language).filenames if language else []
    except ClassNotFound:
        patterns = []
    plain = [pattern for pattern in patterns if not set("?[]") & set(pattern)]
    endings = [pattern[1:] for pattern in plain if pattern.startswith("*.") and "*" not in pattern[1:]]
    own = next((pattern for pattern in plain if pattern.lower() == language.lower()), "")
    if own:
        return own
    if endings:
        ending = f".{language.lower()}"
        return "code" + (ending if ending in endings else endings[0])
    return next((pattern for pattern in plain if "*" not in pattern), "code.txt")


def write_code(path: Path, code: str) -> str:
    """Write `code` as UTF-8 with a line break at its end; returns one sentence about a failure, or
    nothing.
    """
    try:
        write_whole(path, code if code.endswith("\n") or not code else code + "\n", "\n")
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _(
            "The code could not be saved as “{path}” ({reason}). Choose another place.",
            path=path,
            reason=reason,
        )
    return ""


def ask_and_save(parent: QWidget, code: str, language: str) -> QFileDialog:
    """Ask where to save `code`, without blocking, and save it there."""
    dialog = ask_save(
        parent, _("Save code"), file_name(language), lambda chosen: _save(parent, chosen[0], code)
    )
    dialog.setObjectName("saveCode")
    return dialog


def _save(parent: QWidget, path: Path, code: str) -> None:
    problem = write_code(path, code)
    if problem:
        warn(problem, parent).setObjectName("saveFailed")
