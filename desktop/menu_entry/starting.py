"""The command that starts this program: its AppImage, its environment's script, or Python with its module in
a clone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.lazy_dataclass import dataclass
from engine.platform.program import app_image

__all__ = ["Starting", "starting"]


@dataclass(frozen=True)
class Starting:
    """The command with absolute paths, and the folder to start it in; empty if any will do."""

    command: tuple[str, ...]
    folder: str = ""


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
