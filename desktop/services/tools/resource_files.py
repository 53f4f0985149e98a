"""Resources of tool servers as files of a temporary folder, from where they are read like attached files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from desktop.services.tools.events import Part
from desktop.store.transfer.exporters.names import free_name

__all__ = ["ResourceFiles"]


class ResourceFiles:
    """The files in a folder that only this user may read."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._count = 0

    def save(self, parts: Iterable[Part]) -> tuple[Path, ...]:
        """Write each part to a file of its name. Raises OSError."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="inglenook-"))
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        taken: set[str] = set()
        paths = []
        for part in parts:
            name = Path(part.name)
            path = folder / free_name(name.stem, name.suffix, taken)
            path.write_bytes(part.data)
            paths.append(path)
        return tuple(paths)

    def clear(self) -> None:
        """Delete the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
