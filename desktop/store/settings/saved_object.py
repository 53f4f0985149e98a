"""One small JSON object in a file that is replaced as a whole, so never half written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from desktop.store.database.data_folder import set_aside
from desktop.store.database.errors import StoreError
from engine.platform.regular_file import regular_file
from engine.platform.whole_file import write_whole
from engine.printable import json_text
from engine.words import _

__all__ = ["SavedObject"]


class SavedObject:
    """The preferences' file and what is in it; keys that nobody here knows are kept.

    `notices` holds sentences about what had to be replaced on reading; it is usually empty. Every change is
    written at once. If `write_soon` is set, it is called instead, and its owner calls `save` soon; `unsaved`
    says whether there is something to save.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write_soon: Callable[[], object] | None = None
        self.unsaved = False
        self.notices: tuple[str, ...] = ()
        self._data = self._read()

    def _text(self, key: str) -> str:
        value = self._data.get(key)
        return value if isinstance(value, str) else ""

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def _remember(self, key: str, text: str, most: int) -> None:
        """Put a text first in a list, in which it then stands once, with at most `most` texts."""
        self._data[key] = [text, *(each for each in self._texts(key) if each != text)][:most]
        self._changed()

    def _read(self) -> dict[str, Any]:
        try:
            regular_file(self.path)
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(
                _(
                    "The preferences in {path} cannot be read ({strerror}). Check the file's permissions.",
                    path=self.path,
                    strerror=error.strerror,
                )
            ) from error
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested without an end
            data = None
        if isinstance(data, dict):
            return data
        target = set_aside(self.path)
        self.notices = (
            _(
                "The preferences file was damaged. It is kept as {target}, and all settings were reset.",
                target=target.name,
            ),
        )
        return {}

    def save(self) -> None:
        """Write what has changed since the last time, if anything.

        Raises `StoreError`; the next `save` then tries again.
        """
        if self.unsaved:
            self._write()
            self.unsaved = False

    def _changed(self) -> None:
        self.unsaved = True
        if self.write_soon is not None:
            self.write_soon()
        else:
            self.save()

    def _write(self) -> None:
        """Write a new file and put it in place of the old one."""
        try:
            write_whole(self.path, json_text(json.dumps(self._data, indent=2, ensure_ascii=False)) + "\n")
        except OSError as error:
            raise StoreError(
                _(
                    "The preferences cannot be saved in {path} ({strerror}). Check free space and "
                    "permissions.",
                    path=self.path,
                    strerror=error.strerror,
                )
            ) from error
