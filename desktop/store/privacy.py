"""What the program keeps is closed to other users of the computer: looked after at each start, for older
installations as well.
"""

from __future__ import annotations

import logging
import os
from itertools import chain
from pathlib import Path

from engine.platform.folders import cache_dir, close_to_others, private_folder

__all__ = ["close_data"]

log = logging.getLogger(__name__)

_OURS = (
    "conversations*", "preferences.json*", ".preferences.json*", "window.ini*", "model-hashes.json*",
    "inglenook.*", "logs", "backups", "models",
)  # fmt: skip
"""Names in the data folder that are the program's, as patterns: somebody may have chosen a folder with
other files in it.
"""


def close_data(folder: Path) -> str:
    """Take the rights of others off the data folder, what is ours in it, and the cache; "" when that was
    possible.

    Else a sentence for the user: a disk without such rights, or a folder that belongs to somebody else.
    """
    for place in (folder, cache_dir()):
        try:
            if place.exists():
                private_folder(place)
        except OSError as error:
            log.warning("%s cannot be closed to others: %s", place, error)
    ours = chain.from_iterable(folder.glob(pattern) for pattern in _OURS)
    left = close_to_others(ours)
    if left:
        log.warning("%d files in %s stay open to others, %s among them", len(left), folder, left[0])
    if not _is_open(folder):
        return ""
    return (
        f"Other users of this computer can open your chats in {folder}: its disk or its owner does not let "
        "Inglenook change that. Choose a data folder of your own with --data."
    )


def _is_open(folder: Path) -> bool:
    try:
        return os.name == "posix" and bool(folder.stat().st_mode & 0o077)
    except OSError:
        return False
