"""A recorded pass over all rows of a picture at once, on the processor."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from engine.backends.base import AttentionShape, Backend, Forward, Step
from engine.core import PAGE_TOKENS, Loading
from engine.tensors import Floats

CACHE_TYPE = "fp32"
"""Of the keys and values of one layer, which all layers share."""


class Pass:
    """Runs `forward`, whose inputs are `Ops.given`, over up to `max_rows` rows.

    With attention of a `shape`, all rows attend to each other. Used by one thread.
    """

    def __init__(
        self, backend: Backend, forward: Forward, max_rows: int, shape: AttentionShape | None = None
    ) -> None:
        self._backend, self._forward, self._shape = backend, forward, shape
        self.max_rows = max_rows
        self._pages = np.arange(-(-max_rows // PAGE_TOKENS), dtype=np.int32)
        self._positions = np.arange(max_rows, dtype=np.int32)
        self._ids = np.zeros(max_rows, np.int32)

    def prepare(self) -> Generator[Loading, None, None]:
        """Compile the kernels that are missing, and record; yields progress."""
        yield from self._backend.prepare(self._forward, CACHE_TYPE)
        shapes = [] if self._shape is None else [self._shape]
        self._cache = self._backend.new_cache(shapes, len(self._pages), CACHE_TYPE)
        self._program = self._backend.record(self._forward, self._cache, self.max_rows)

    def run(self, rows: int) -> Floats:
        """The result's rows (rows, N) float32 for the first `rows` of what is given; the next run overwrites
        them.
        """
        return self._program.run(Step(self._ids[:rows], self._positions[:rows], self._pages, rows))

    def close(self) -> None:
        """Release the program and its cache."""
        self._program.close()
        self._cache.close()
