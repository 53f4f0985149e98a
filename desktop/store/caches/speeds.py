"""How fast models and this machine were in recent replies, kept as JSON."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from statistics import median

from engine.platform.whole_file import write_whole

__all__ = ["FILE_NAME", "Speeds"]

FILE_NAME = "speeds.json"
_RECENT = 5
"""A median of this many follows a machine that becomes faster or slower, and not a single busy moment."""
_MOST = 1000


class Speeds:
    """Recent speeds by key, stored at `path`. If that cannot be read or written, speeds are learned again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, list[float]] | None = None

    def of(self, key: str) -> float:
        """The median of the recent speeds; 0 if there are none."""
        return self.medians().get(key, 0.0)

    def medians(self) -> dict[str, float]:
        """The median of the recent speeds of each key."""
        return {key: median(speeds) for key, speeds in self._all().items()}

    def put(self, *found: tuple[str, float]) -> None:
        """Add speeds by key and save them."""
        known = self._all()
        for key, speed in found:
            known[key] = [*known.pop(key, []), speed][-_RECENT:]
        while len(known) > _MOST:
            del known[next(iter(known))]
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(known, indent=1), synced=False)

    def _all(self) -> dict[str, list[float]]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
                data = json.loads(self._path.read_text(encoding="utf-8"))
                read = {str(key): [float(each) for each in speeds] for key, speeds in data.items()}
                self._known = {
                    key: speeds
                    for key, speeds in read.items()
                    if speeds and all(math.isfinite(each) and each > 0 for each in speeds)
                }
        return self._known
