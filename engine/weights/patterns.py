"""Regular expressions that come from files."""

from __future__ import annotations

import re

_REPEATED, _REPEATED_GROUP = re.compile(r"[*+?{]"), re.compile(r"\)[*+?{]")
_LONGEST, _MOST_REPEATS = 1000, 3
"""Without repeated groups, a search takes a power of the text's length."""


def is_quick(pattern: str) -> bool:
    """Whether no search for it can take very long."""
    repeats = len(_REPEATED.findall(pattern))
    return len(pattern) <= _LONGEST and repeats <= _MOST_REPEATS and not _REPEATED_GROUP.search(pattern)
