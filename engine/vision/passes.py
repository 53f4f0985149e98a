"""Recorded passes on the processor: over all rows of a picture at once, or piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import numpy as np

from engine.backends.base import Array, AttentionShape, Backend, Forward, KVCache, Ops, Step
from engine.backends.cpu.program import CpuProgram
from engine.core import PAGE_TOKENS, Loading, Waiting
from engine.drain import mapped
from engine.tensors import Floats, Ints

STAGE_ROWS = 1 << 15
"""Rows times stages of a step, such as 4096 rows of one layer: less than a second on two cores."""
MANY_ROWS = 2048
"""From as many on, keys and values are 16-bit numbers: with 4096 rows of Gemma 3 this took 2.3 s of processor
time for two layers, and 3.0 s with 32 bits (AMD Zen 5).
"""
PIECE = 1024
"""Rows of a pass at most whose rows, or windows, have nothing to do with each other."""


class Prepared(Protocol):
    """What is prepared before it runs."""

    def prepare(self) -> Generator[Loading, None, None]:
        """Compile the kernels that are missing, and record; yields progress."""
        ...

    def close(self) -> None:
        """Release its memory; it cannot be used afterwards."""
        ...


class OfPasses:
    """What runs passes: they are prepared in this order, and released in the other."""

    def __init__(self, *passes: Prepared) -> None:
        self._passes = passes

    def prepare(self) -> Generator[Loading, None, None]:
        """Prepare all; yields progress."""
        for each in self._passes:
            yield from each.prepare()

    def close(self) -> None:
        """Release all; none can be used afterwards."""
        for each in reversed(self._passes):
            each.close()


class Pass:
    """Runs `forward`, whose inputs are `Ops.given`, over up to `max_rows` rows.

    With attention of a `shape`, all rows attend to each other, unless the layers say otherwise; all layers
    share the keys and values of one, unless there are `layers` of them. Of rows that come `after` another
    pass, which has layers of its own, and room for `more` rows, the keys and values follow those of its last
    run. Used by one thread.
    """

    def __init__(
        self, backend: Backend, forward: Forward, max_rows: int, shape: AttentionShape | None = None,
        layers: int = 1, more: int = 0, after: Pass | None = None,
    ) -> None:  # fmt: skip
        self._backend, self._forward, self._after = backend, forward, after
        self._shapes = [] if shape is None else [shape] * layers
        self.max_rows = max_rows
        room: int = max_rows + more if after is None else len(after._positions)
        self._cache_type = "fp16" if room >= MANY_ROWS else "fp32"
        self._pages = np.arange(-(-room // PAGE_TOKENS), dtype=np.int32)
        self._positions: Ints = np.arange(room, dtype=np.int32)
        self._ids = np.zeros(room, np.int32)

    def prepare(self) -> Generator[Loading, None, None]:
        """Compile the kernels that are missing, and record; yields progress."""
        yield from self._backend.prepare(self._forward, self._cache_type)
        self._cache: KVCache = (
            self._backend.new_cache(self._shapes, len(self._pages), self._cache_type)
            if self._after is None
            else self._after._cache
        )
        self._program = self._backend.record(self._forward, self._cache, self.max_rows)

    def work_bytes(self) -> int:
        """The memory of a run over `max_rows` rows, with the keys and values of one layer; weights may be
        specs.
        """
        row, _position, fixed = self._backend.work_space(self._forward)
        each = 2 if self._cache_type == "fp16" else 4
        kept = sum(2 * each * shape.kv_heads * shape.head_dim for shape in self._shapes)
        return row * self.max_rows + kept * len(self._positions) + fixed

    def run(self, rows: int) -> Floats:
        """The result's rows (rows, N) float32 for the first `rows` of what is given; the next run overwrites
        them.
        """
        return self._program.run(self._step(rows, 0))

    def steps(self, rows: int, start: int = 0) -> Generator[Waiting, None, Floats]:
        """`run` in short steps, between which other passes may run; the result is that of the generator. In
        the cache, the rows come after `start` others.
        """
        step = self._step(rows, start)
        if not isinstance(self._program, CpuProgram):
            return self._program.run(step)
        stages = 1 << max(0, (STAGE_ROWS // rows).bit_length() - 1)  # few numbers, so that parts are kept
        parts = self._program.run_in_parts(step, stages)
        return (yield from mapped(parts, lambda _: Waiting()))

    def _step(self, rows: int, start: int) -> Step:
        return Step(self._ids[:rows], self._positions[start : start + rows], self._pages, rows)

    def close(self) -> None:
        """Release the program and its cache, which goes with the pass that the rows come after."""
        self._program.close()
        if self._after is None:
            self._cache.close()


class Pieces(OfPasses):
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
        super().__init__(self.run)

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
