"""The second step block, by which cross-attention runs (`step_block.CROSS`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.backends.base import Step
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.step_block import (
    POSITIONS,
    ROWS,
    RUN_FIRST,
    RUN_PAGES,
    RUN_ROWS,
    RUN_TABLE,
    RUN_WORDS,
    RUNS,
)


class CrossBlock:
    """Writes the `words` (int64) of the block, for steps of up to `max_rows` rows."""

    def __init__(self, words: npt.NDArray[np.int64], max_rows: int) -> None:
        self._words = words
        self._places: npt.NDArray[np.int32] = aligned(4 * max_rows).view(np.int32)
        self._pages: npt.NDArray[np.int32] = aligned(4).view(np.int32)
        words[POSITIONS] = self._places.ctypes.data

    def set(self, step: Step) -> None:
        """Write what each sequence of a step attends to."""
        count = len(step.token_ids)
        runs = [rows for rows, _pages in step.runs] or [count]
        assert len(step.cross) == len(runs), "a pass with cross-attention lacks what it attends to"
        sizes = [len(each.pages) for each in step.cross]
        if sum(sizes) > len(self._pages):
            self._pages = aligned(8 * sum(sizes)).view(np.int32)
        row = page = 0
        for number, (rows, seen) in enumerate(zip(runs, step.cross, strict=True)):
            self._places[row : row + rows] = seen.length - 1
            self._pages[page : page + sizes[number]] = seen.pages
            word = RUN_TABLE + RUN_WORDS * number
            self._words[[word + RUN_FIRST, word + RUN_ROWS]] = row, rows
            self._words[word + RUN_PAGES] = self._pages.ctypes.data + 4 * page
            row, page = row + rows, page + sizes[number]
        self._words[[ROWS, RUNS]] = count, len(runs)
