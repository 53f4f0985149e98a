"""Starts the program again, after it has ended."""

from __future__ import annotations

from PySide6.QtCore import QProcess

from desktop.menu_entry.starting import starting

__all__ = ["relaunch"]


def relaunch() -> bool:
    """Start this installation as a new process, without arguments; False if that failed."""
    start = starting()
    program, *arguments = start.command
    answer: object = QProcess.startDetached(program, arguments, start.folder)
    return bool(answer[0] if isinstance(answer, tuple) else answer)
