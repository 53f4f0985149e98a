"""Where the program keeps things for this user."""

from __future__ import annotations

import os
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
