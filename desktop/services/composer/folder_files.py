"""The files of a folder that is attached as a whole."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["MODEL_KINDS", "MOST_FILES", "files_of", "holds_files"]

MODEL_KINDS = (".gguf", ".safetensors")
MOST_FILES = 50
"""Of one folder: more fill any context, and a project may have ten thousand."""


def files_of(folder: Path) -> list[Path]:
    """The files in a folder, by name; none that are hidden or in folders inside. Raises OSError."""
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if not each.name.startswith(".") and each.is_file()]
    return [folder / name for name in sorted(names, key=str.casefold)]


def holds_files(folder: Path) -> bool:
    """Whether this folder can be attached: it has files, and none of them is of a model."""
    try:
        files = files_of(folder)
    except (OSError, ValueError):  # not a folder, not readable, or a null character in its name
        return False
    return bool(files) and not any(
        file.suffix.lower() in MODEL_KINDS or file.name == "config.json" for file in files
    )
