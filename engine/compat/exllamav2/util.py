"""Small helpers that scripts import."""

from __future__ import annotations

import re
import sys
import time
from typing import Any, Self

from engine.compat.absent import refusing
from engine.compat.exllamav2.absent import UTIL

__getattr__ = refusing(__name__, UTIL)


class Timer:
    """Measures the body of a `with` statement: `interval` in seconds once it has ended."""

    def __enter__(self) -> Self:
        self.start_time = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_time = time.perf_counter()
        self.interval = self.end_time - self.start_time


class BasicProgress:
    """Shows how far tasks are on stderr, with the methods of `rich.progress.Progress` that scripts use.

    A task is its number. What describes a task's looks is ignored.
    """

    def __init__(self) -> None:
        self._tasks: list[tuple[str, float | None, float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Does nothing: a task is shown once there is news of it."""

    def stop(self) -> None:
        """End the line on the terminal."""
        if self._tasks:
            print(file=sys.stderr)
        self._tasks = []

    def add_task(self, description: str, total: float | None = 100.0, completed: float = 0, **_: Any) -> int:
        """Show a task that has `total` steps, and return its number."""
        self._tasks.append((description, total, completed))
        self._show(len(self._tasks) - 1)
        return len(self._tasks) - 1

    def update(
        self, task: int, *, advance: float = 0, completed: float | None = None, total: float | None = None,
        description: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Change what is known of a task; `advance` steps are added to those completed."""
        text, most, done = self._tasks[task]
        done = done + advance if completed is None else completed
        self._tasks[task] = (
            text if description is None else description,
            most if total is None else total,
            done,
        )
        self._show(task)

    def advance(self, task: int, advance: float = 1) -> None:
        """Add steps to those completed."""
        self.update(task, advance=advance)

    def _show(self, task: int) -> None:
        text, total, done = self._tasks[task]
        of = "" if total is None else f" / {total:g}"
        text = re.sub(r"\[/?[a-z. ]+\]", "", text)  # colours, as in "[red]Creating jobs"
        print(f"\r{text}: {done:g}{of}", end="", file=sys.stderr, flush=True)


def get_basic_progress() -> BasicProgress:
    """A progress display, to be entered with `with`."""
    return BasicProgress()
