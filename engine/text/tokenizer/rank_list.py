"""How a file with tiktoken's list of ranks begins: a base64 text and a rank on each line."""

from __future__ import annotations

import re
from pathlib import Path

_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\s*")


def is_tiktoken(path: Path) -> bool:
    """Whether a file begins like a list of ranks."""
    with path.open("rb") as file:
        return _LINE.fullmatch(file.readline(4096)) is not None
