"""The note that says where the user has moved the data to, in the folder where it is looked for."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from engine.lazy_dataclass import dataclass
from engine.platform.whole_file import write_whole
from engine.words import _

__all__ = ["NOTE_NAME", "Moved", "read_moved", "write_moved"]

NOTE_NAME = "moved-to.json"


@dataclass(frozen=True)
class Moved:
    """`folder` holds the data now; `before` may still hold a copy from before the move, None once deleted."""

    folder: Path
    before: Path | None = None


def read_moved(usual: Path) -> Moved | None:
    """The note in the folder `usual`; None if the data was not moved.

    Raises OSError, with a sentence as `strerror`, if the note cannot be read: the data is somewhere else.
    """
    path = usual / NOTE_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        folder, before = Path(found["folder"]), found["before"]
        if not folder.is_absolute():
            raise ValueError("not an absolute path")
        return Moved(folder, Path(before) if before else None)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = _("it should name the folder that the data was moved to; write that into it, or delete it")
        raise OSError(errno.EINVAL, why, str(path)) from error


def write_moved(usual: Path, moved: Moved) -> None:
    """Replace the note as a whole. Raises OSError, and changes nothing then."""
    content = {"folder": str(moved.folder), "before": str(moved.before) if moved.before else None}
    write_whole(usual / NOTE_NAME, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
