"""Where this program lies: in an AppImage, in a folder of its own, or in a Python environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PORTABLE_NAME", "app_image", "portable_folder"]

PORTABLE_NAME = "inglenook-data"


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


def portable_folder() -> Path | None:
    """The folder `inglenook-data` beside the program, if the user has created one: all data belongs there.

    Beside the AppImage, the application of macOS, or the program's file in its folder; None for one in a
    Python environment, whose folder is removed with it.
    """
    if not getattr(sys, "frozen", False):
        return None
    program = app_image() or Path(sys.executable).resolve()
    bundle = next((folder for folder in program.parents if folder.suffix == ".app"), program)
    folder = bundle.with_name(PORTABLE_NAME)
    return folder if folder.is_dir() else None
