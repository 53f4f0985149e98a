"""The runs of a step, as kernels read them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.simt.interpreter import Memory


def runs_of(
    memory: Memory, positions: int, pages: int, runs: int, count: int
) -> Iterator[tuple[int, int, int, int]]:
    """First row, rows, first position and address of the block table of each run of `count` rows; all of
    them are one run if `runs` is 0.
    """
    row = 0
    while row < count:
        known = memory.view(runs + 16 * row, np.int32, 3) if runs else (0, count, 0)
        first, stop, page = (int(each) for each in known)
        assert first == row < stop
        yield row, stop - row, int(memory.view(positions + 4 * row, np.int32, 1)[0]), pages + 4 * page
        row = stop
    assert row == count
