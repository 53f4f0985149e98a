"""The jobs of a `StreamThread`: generators that it runs, and the words for how they fail."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from engine.lazy_dataclass import dataclass

__all__ = ["Job", "MakeGenerator", "is_no_memory", "message_of", "traceback_text"]

MakeGenerator = Callable[[threading.Event], Iterator[Any]]
"""Called on the worker's thread with the job's stop event; returns the generator to run there."""


@dataclass(frozen=True, eq=False)
class Job:
    """The handle of one started generator; `in_turns`: it runs beside others of its kind.

    `stop` asks it to end soon; it still ends with `finished` or `failed`.
    """

    id: int
    make_generator: MakeGenerator
    in_turns: bool = False
    stop_event: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Set the job's stop event; a job that has not begun yet never begins, and finishes with None."""
        self.stop_event.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self.stop_event.is_set()


def is_no_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the computer or on a GPU; some PyTorch allocators raise RuntimeError."""
    words = message_of(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (
            type(error).__name__ == "OutOfMemoryError"
            or "not enough memory" in words
            or "out of memory" in words
        )
    )


def message_of(error: BaseException) -> str:
    """Its message without what Qt cannot take, such as half a surrogate pair from a file's name."""
    try:
        return str(error).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - __str__ is foreign code
        return type(error).__name__


def traceback_text() -> str:
    """The traceback of the exception that is being handled."""
    try:
        return traceback.format_exc().encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - formatting calls __str__
        return ""
