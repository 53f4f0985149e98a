"""The file of the starter model for benchmarks: `INGLENOOK_STARTER`, or the one in the tests' cache,
downloaded once.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from engine.core import Downloaded
from engine.hub import fetch_starter

__all__ = ["starter_model"]


def starter_model() -> Path:
    """The file, downloaded if it is missing. Raises `DownloadError`."""
    if given := os.environ.get("INGLENOOK_STARTER"):
        return Path(given)
    cache = platformdirs.user_cache_path("inglenook-tests", appauthor=False)
    cache.mkdir(parents=True, exist_ok=True)
    last = list(fetch_starter(cache))[-1]
    assert isinstance(last, Downloaded)
    return Path(last.path)
