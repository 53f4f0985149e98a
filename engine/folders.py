"""Where the program keeps things for this user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs

DATA_VARIABLE = "INGLENOOK_DATA"
CACHE_VARIABLE = "INGLENOOK_CACHE"


def data_dir() -> Path:
    """Conversations, settings and models; the environment variable INGLENOOK_DATA moves it. Not made here."""
    named = os.environ.get(DATA_VARIABLE, "")
    return Path(named).expanduser() if named else platformdirs.user_data_path("inglenook", appauthor=False)


def cache_dir() -> Path:
    """What can be made again, compiled kernels; the environment variable INGLENOOK_CACHE moves it. Not made here."""
    named = os.environ.get(CACHE_VARIABLE, "")
    return Path(named).expanduser() if named else platformdirs.user_cache_path("inglenook", appauthor=False)


def code_folder(name: str) -> Path | None:
    """A folder for compiled code, made here: in the user's cache, or a private temporary one, or None when neither can be written."""
    places = [cache_dir(), Path(tempfile.gettempdir()) / f"inglenook-{os.getuid() if hasattr(os, 'getuid') else 'user'}"]
    for place in places:
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Code is loaded from here: a folder that belongs to somebody else is not trusted.
            if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
                continue
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None
