"""Small helpers that scripts import."""

from __future__ import annotations

import time
from typing import Self

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
