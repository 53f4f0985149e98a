"""Closes the program's data to other users of the computer; at each start, for older installations too."""

from __future__ import annotations

import logging
import os
from itertools import chain
from pathlib import Path

from engine.platform.folders import cache_dir, close_to_others, private_folder
from engine.words import _

__all__ = ["OUR_FILES", "close_data"]

log = logging.getLogger(__name__)

OUR_FILES = (
    "conversations*", "preferences.json*", ".preferences.json*", "window.ini*", "model-hashes.json*",
    "speeds.json*", "inglenook.*", "logs", "backups", "models",
)  # fmt: skip
"""Patterns of the program's own names in the data folder, which may contain other files too."""


def close_data(folder: Path) -> str:
    """Remove other users' rights from the data folder, what is ours in it, and the cache; returns "" on
    success.

    Otherwise returns a sentence for the user: the disk has no such rights, or the folder belongs to someone
    else.
    """
    for place in (folder, cache_dir()):
        try:
            if place.exists():
                private_folder(place)
        except OSError as error:
            log.warning("cannot close %s to other users: %s", place, error)
    ours = chain.from_iterable(folder.glob(pattern) for pattern in OUR_FILES)
    left = close_to_others(ours)
    if left:
        log.warning("%d files in %s stay open to other users, among them %s", len(left), folder, left[0])
    if not _is_open(folder):
        return ""
    return _(
        "Other users of this computer can open your chats in {folder}, and Inglenook is not "
        "allowed to change that. Choose another data folder with --data.",
        folder=folder,
    )


def _is_open(folder: Path) -> bool:
    try:
        return os.name == "posix" and bool(folder.stat().st_mode & 0o077)
    except OSError:
        return False
