"""The command that starts this program: its AppImage, its environment's script, or Python with its module in
a clone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Starting", "app_image", "starting"]


@dataclass(frozen=True)
class Starting:
    """The command with absolute paths, and the folder to start it in; empty if any will do."""

    command: tuple[str, ...]
    folder: str = ""


def app_image(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The AppImage file that this program runs from; None if there is none.

    Its content is mounted somewhere else each time. The variables are inherited by programs that another
    AppImage starts, so they count only if this program is inside the mounted folder
    (https://docs.appimage.org/packaging-guide/environment-variables.html).
    """
    image, mounted = environment.get("APPIMAGE", ""), environment.get("APPDIR", "")
    if not image or not mounted or not getattr(sys, "frozen", False):
        return None
    inside = Path(sys.executable).resolve().is_relative_to(Path(mounted).resolve())
    return Path(image) if inside and Path(image).is_file() else None


def starting(data: Path | None = None) -> Starting:
    """How to start this installation again, with its data in `data` if given."""
    image = app_image()
    extra = ("--data", str(data.expanduser().resolve())) if data is not None else ()
    if image is not None:
        return Starting((str(image), *extra))
    folder = Path(sys.executable).parent  # not resolved: a virtual environment's python is a link
    script = folder / ("inglenook.exe" if sys.platform == "win32" else "inglenook")
    if script.is_file():
        return Starting((str(script), *extra))
    python = folder / "pythonw.exe" if sys.platform == "win32" else Path(sys.executable)
    return Starting((str(python), "-m", "desktop", *extra), str(Path(__file__).resolve().parents[2]))
