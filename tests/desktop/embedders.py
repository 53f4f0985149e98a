"""A fake embedding model, whose vectors tell which subjects a text is about."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from desktop.items.models.local_models import ModelEntry, entry
from engine.core import ModelInfo

SUBJECTS = (("cat", "feline", "kitten"), ("lantern", "lamp", "light"), ("ship", "vessel", "boat"))


def vector_of(text: str) -> Any:
    """One number for each subject and one for what has none; of length 1."""
    found = [sum(text.lower().count(word) for word in words) for words in SUBJECTS]
    whole = np.array([*found, 0.0 if any(found) else 1.0])
    return whole / np.linalg.norm(whole)


@dataclass
class FakeEmbedder:
    """Stands for `open_embedder`: pass `fake.open`. `read` has the (role, text) of all vectors; `closed`
    counts; `hold` is waited for before each document, and `error` raised while the model is loaded.
    """

    read: list[tuple[str, str]] = field(default_factory=list)
    opened: list[Path] = field(default_factory=list)
    closed: int = 0
    hold: threading.Event | None = None
    error: Exception | None = None
    threads: set[str] = field(default_factory=set)

    def open(self, path: Path, stop: threading.Event) -> Generator[Any, None, FakeEmbedder]:
        yield None
        if self.error is not None:
            raise self.error
        self.opened.append(path)
        return self

    def vector(self, text: str, role: str) -> Generator[Any, None, Any]:
        while role == "document" and self.hold is not None and not self.hold.wait(0.01):
            yield None
        self.threads.add(threading.current_thread().name)
        self.read.append((role, text))
        yield None
        return vector_of(text)

    def close(self) -> None:
        self.closed += 1


def embedding_entry(path: str, size: int, info: ModelInfo) -> ModelEntry:
    """An embedding model in the library, of a size in bytes."""
    return entry(replace(info, path=path, name=Path(path).stem, embedding=True, file_bytes=size))
