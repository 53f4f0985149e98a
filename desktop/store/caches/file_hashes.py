"""SHA-256 of model files, computed once for each path, size and modification time, kept as JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.platform.whole_file import write_whole

__all__ = ["FILE_NAME", "FileHashes", "computed", "identity", "parts"]

FILE_NAME = "model-hashes.json"
_PIECE = 8 << 20
_MOST = 2000
_MATTERS = (".gguf", ".safetensors", ".json", ".model", ".jinja", ".tiktoken", ".txt")


def parts(path: Path) -> list[Path]:
    """The files of a model: the file itself with its other shards, or the relevant files in its folder."""
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.is_file() and _matters(each))
    stem, dash, rest = path.stem.rpartition("-of-")
    if dash and rest.isdigit() and path.exists():
        return sorted(path.parent.glob(f"{stem.rpartition('-')[0]}-*-of-{rest}{path.suffix}"))
    return [path] if path.exists() else []


def _matters(file: Path) -> bool:
    """Whether it is part of the model; Mistral AI's vocabularies are named as tokenizer.model.v3."""
    return file.suffix in _MATTERS or file.name.startswith("tokenizer.model.v")


def identity(path: Path) -> str:
    """Identifies the content of a model's files without reading it, by names, sizes and times; "" if there
    are none.
    """
    try:
        facts = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in parts(path)]
    except OSError:
        return ""
    import hashlib  # here and below: not needed to start the window

    return f"{path}|{hashlib.sha256(repr(facts).encode()).hexdigest()}" if facts else ""


class FileHashes:
    """The known hashes, stored at `path`. If it cannot be read or written, hashes are just computed again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] | None = None

    def get(self, key: str) -> str:
        """The hash of an `identity`; "" if it is not known."""
        return self._all().get(key, "") if key else ""

    def put(self, key: str, found: str) -> None:
        known = self._all()
        known[key] = found
        while len(known) > _MOST:
            del known[next(iter(known))]
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(known, indent=1))

    def _all(self) -> dict[str, str]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
                data = json.loads(self._path.read_text(encoding="utf-8"))
                self._known = {str(key): str(value) for key, value in data.items()}
        return self._known


def computed(path: Path, wait: Callable[[], bool]) -> Iterator[tuple[int, int, str]]:
    """Compute the SHA-256 of one file or, for several, that of the lines "hash name" of each.

    Yields (bytes read, total bytes, hash when done). `wait` is called before each piece and cancels by
    returning False. Raises OSError.
    """
    import hashlib

    files = parts(path)
    total, done, lines = sum(each.stat().st_size for each in files), 0, list[str]()
    for each in files:
        digest = hashlib.sha256()
        with each.open("rb") as file:
            while piece := file.read(_PIECE):
                if not wait():
                    return
                digest.update(piece)
                done += len(piece)
                yield done, total, ""
        lines.append(f"{digest.hexdigest()}  {each.name}")
    if len(lines) == 1:
        yield total, total, lines[0].split()[0]
    elif lines:
        yield total, total, hashlib.sha256("\n".join(lines).encode()).hexdigest()
