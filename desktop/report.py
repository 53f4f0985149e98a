"""The text of a report on an error or a crash: what a maintainer needs, and nothing from any chat."""

from __future__ import annotations

import getpass
import importlib.metadata
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.platform.version import version

__all__ = ["build_report", "facts", "last_lines", "shortened"]

_PACKAGES = ("PySide6-Essentials", "torch", "numba", "numpy", "tokenizers", "qasync")
_LOG_LINES = 60
_LOG_BYTES = 64_000
_LONGEST_LINE = 400
"""Longest line of a report: an exception's message can contain anything, even a whole prompt."""


def facts(window: str = "") -> dict[str, str]:
    """Versions and system by name; `window` is Qt's platform plug-in."""
    found = {"Inglenook": version(), "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["System"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    if window:
        found["Windows through"] = window
    return found


def shortened(text: str) -> str:
    """The text with "~" for the home folder, without the user's name in other paths and without very long
    lines.
    """
    home, name = str(Path.home()), _user()
    for form in {home, home.replace("\\", "/"), home.replace("\\", "\\\\")} - {"", "/"}:
        text = re.sub(rf"{re.escape(form)}(?![\w.-])", "~", text)
    if len(name) > 1:
        text = re.sub(rf"(?<=[/\\]){re.escape(name)}(?=[/\\])", "…", text)
    return "\n".join(
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …" for line in text.splitlines()
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user has no name
        return ""


def last_lines(path: Path) -> list[str]:
    """The last lines of a file, of which only the end is read; empty if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return []


def build_report(what: str, trace: str, log: Sequence[str], known: Mapping[str, str], model: str = "") -> str:
    """The report: `what` happened in a sentence, versions, the model, the trace and the last log lines."""
    head = [
        *(f"{name}: {value}" for name, value in known.items()),
        *([f"Model: {model}"] if model else ["Model: none loaded"]),
    ]
    parts = [what, "\n".join(head)]
    if trace.strip():
        parts.append(f"What was running:\n{trace.strip()}")
    if log:
        parts.append("Last lines of the log:\n" + "\n".join(log))
    return shortened("\n\n".join(parts)) + "\n"
