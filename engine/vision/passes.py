"""Recorded passes on the processor: over all rows of a picture at once, or piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np

from engine.backends.base import Array, AttentionShape, Backend, Forward, Ops, Step
from engine.backends.cpu.program import CpuProgram
from engine.core import PAGE_TOKENS, Loading, Waiting
from engine.drain import mapped
from engine.tensors import Floats

STAGE_ROWS = 1 << 15
"""Rows times stages of a step, such as 4096 rows of one layer: less than a second on two cores."""
MANY_ROWS = 2048
"""From as many on, keys and values are 16-bit numbers: with 4096 rows of Gemma 3 this took 2.3 s of processor
time for two layers, and 3.0 s with 32 bits (AMD Zen 5).
"""
PIECE = 1024
"""Rows of a pass at most whose rows, or windows, have nothing to do with each other."""


class Pass:
    """Runs `forward`, whose inputs are `Ops.given`, over up to `max_rows` rows.

    With attention of a `shape`, all rows attend to each other. Used by one thread.
    """

    def __init__(
        self, backend: Backend, forward: Forward, max_rows: int, shape: AttentionShape | None = None
    ) -> None:
        self._backend, self._forward, self._shape = backend, forward, shape
        self.max_rows = max_rows
        # of one layer, which all layers share
        self._cache_type = "fp16" if max_rows >= MANY_ROWS else "fp32"
        self._pages = np.arange(-(-max_rows // PAGE_TOKENS), dtype=np.int32)
        self._positions = np.arange(max_rows, dtype=np.int32)
        self._ids = np.zeros(max_rows, np.int32)

    def prepare(self) -> Generator[Loading, None, None]:
        """Compile the kernels that are missing, and record; yields progress."""
        yield from self._backend.prepare(self._forward, self._cache_type)
        shapes = [] if self._shape is None else [self._shape]
        self._cache = self._backend.new_cache(shapes, len(self._pages), self._cache_type)
        self._program = self._backend.record(self._forward, self._cache, self.max_rows)

    def work_bytes(self) -> int:
        """The memory of a run over `max_rows` rows, with the keys and values of one layer; weights may be
        specs.
        """
        row, _position, fixed = self._backend.work_space(self._forward)
        shape, each = self._shape, 2 if self._cache_type == "fp16" else 4
        row += 0 if shape is None else 2 * each * shape.kv_heads * shape.head_dim
        return row * self.max_rows + fixed

    def run(self, rows: int) -> Floats:
        """The result's rows (rows, N) float32 for the first `rows` of what is given; the next run overwrites
        them.
        """
        return self._program.run(Step(self._ids[:rows], self._positions[:rows], self._pages, rows))

    def steps(self, rows: int) -> Generator[Waiting, None, Floats]:
        """`run` in short steps, between which other passes may run; the result is that of the generator."""
        step = Step(self._ids[:rows], self._positions[:rows], self._pages, rows)
        if not isinstance(self._program, CpuProgram):
            return self._program.run(step)
        stages = 1 << max(0, (STAGE_ROWS // rows).bit_length() - 1)  # few numbers, so that parts are kept
        parts = self._program.run_in_parts(step, stages)
        return (yield from mapped(parts, lambda _: Waiting()))

    def close(self) -> None:
        """Release the program and its cache."""
        self._program.close()
        self._cache.close()


class Pieces:
    """Runs `forward` over rows that have nothing to do with each other, at most `most` in a pass. It is given
    rows of each of the `widths`.
    """

    def __init__(
        self, backend: Backend, forward: Callable[..., Array], widths: Sequence[int], most: int = PIECE
    ) -> None:
        rows = min(most, PIECE)
        self._given = [np.zeros((rows, width), np.float32) for width in widths]

        def whole(ops: Ops) -> Array:
            return ops.last_rows(forward(ops, *(ops.given(each) for each in self._given)))

        self.run = Pass(backend, whole, rows)

    def rows(self, *given: Floats) -> Generator[Waiting, None, Floats]:
        """The results (T, N) of rows (T, K) of each width; yields between short steps."""
        found, total = list[Floats](), len(given[0])
        for start in range(0, total, self.run.max_rows):
            count = min(self.run.max_rows, total - start)
            for into, rows in zip(self._given, given, strict=True):
                into[:count] = rows[start : start + count]
            found.append((yield from self.run.steps(count)).copy())
            yield Waiting()
        return np.concatenate(found)
