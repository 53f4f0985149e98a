"""A step's runtime arguments on a device: one block of memory, filled by one copy before the kernels run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.backends.base import Step
from engine.backends.cuda.lowering.call import SMALL_BATCH
from engine.backends.cuda.runtime.device import Device

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 64
_RUN_WORDS, _STATE_WORDS = 4, 8
"""int32 numbers for each row of a small batch (`Runtime.RUNS`, `Runtime.STATES`)."""


class RowMemory(NamedTuple):
    """The device memory (uint8) of what a step of one row reads: its token, position and rope position (int32
    each), the block table, with room for all pages, and the states.
    """

    token: torch.Tensor
    position: torch.Tensor
    rope_position: torch.Tensor
    pages: torch.Tensor
    states: torch.Tensor


class State:
    """The runs of a step's rows, their states, positions, rope positions, token ids and block tables, on one
    device.

    With `cross_pages`, the pages of a cache for cross-attention, there is what rows attend to there, too, in
    `cross_positions`, `cross_pages` and `cross_runs`. `staging` is the same in the host's memory, and `send`
    copies it to the device. `runs`, `states`, `positions`, `rope_positions`, `tokens` and `pages` are
    addresses on the device. There is room for `pages` pages of one sequence; a step over several has room for
    that many for each row of a small batch.
    """

    def __init__(self, device: Device, rows: int, pages: int, cross_pages: int = 0) -> None:
        self._device = device
        few = SMALL_BATCH if cross_pages else 0
        sizes = (
            _RUN_WORDS * few, few, few * cross_pages,
            _RUN_WORDS * SMALL_BATCH, _STATE_WORDS * SMALL_BATCH, rows, rows, rows,
        )  # fmt: skip
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-4 * size // _ALIGNMENT) * _ALIGNMENT)
        self._one = starts[-1] + 4 * pages
        """The bytes that a step over one sequence needs."""
        size = starts[-1] + 4 * pages * SMALL_BATCH
        self.memory, self.staging = device.zeros(size), device.pinned(size)
        address = int(self.memory.data_ptr())
        self.cross_runs, self.cross_positions, self.cross_pages, self.runs, self.states, self.positions = (
            address + start for start in starts[:6]
        )
        self.rope_positions, self.tokens, self.pages = (address + start for start in starts[6:])
        states, positions, ropes, tokens, table = starts[4:]
        number = slice(0, 4)
        self.one_row = RowMemory(
            self.memory[tokens:][number],
            self.memory[positions:][number],
            self.memory[ropes:][number],
            self.memory[table : self._one],
            self.memory[states : states + 4 * _STATE_WORDS],
        )
        words: npt.NDArray[np.int32] = self.staging.numpy().view(np.int32)
        crossed, self._lasts, self._crossed, *others = np.split(words, [each // 4 for each in starts[1:]])
        runs, places, self._positions, self._ropes, self._tokens, self._pages = others
        self._cross_runs = crossed[: _RUN_WORDS * few].reshape(few, _RUN_WORDS)
        self._runs = runs.reshape(SMALL_BATCH, _RUN_WORDS)
        self._states = places.reshape(SMALL_BATCH, _STATE_WORDS)

    def write(self, step: Step) -> None:
        """Write a step to the staging memory, which no copy may be reading."""
        count, pages = len(step.token_ids), len(step.pages)
        assert pages <= len(self._pages)
        self._positions[:count] = step.positions
        self._ropes[:count] = step.positions if step.rope_positions is None else step.rope_positions
        self._tokens[:count] = step.token_ids
        self._pages[:pages] = step.pages
        row = page = 0
        for rows, pages in step.runs:
            self._runs[row : row + rows] = row, row + rows, page, 0
            row, page = row + rows, page + pages
        if len(self._cross_runs):
            self._cross(step)
        row = 0
        for i, states in enumerate(step.states):
            rows = step.runs[i][0] if step.runs else count
            set_states(self._states[row], int(step.positions[row]), rows, states)
            row += rows

    def _cross(self, step: Step) -> None:
        """Write what each sequence of a step attends to."""
        runs = [rows for rows, _pages in step.runs] or [len(step.token_ids)]
        assert len(step.cross) == len(runs), "a pass with cross-attention lacks what it attends to"
        row = page = 0
        for rows, seen in zip(runs, step.cross, strict=True):
            self._crossed[page : page + len(seen.pages)] = seen.pages
            for own in range(row, min(row + rows, SMALL_BATCH)):
                self._cross_runs[own] = own, own + 1, page, 0
                self._lasts[own] = seen.length - 1
            row, page = row + rows, page + len(seen.pages)

    def send(self, several: bool) -> None:
        """Copy a step to the device, in stream order; `several` says whether it is over several sequences."""
        size = self.memory.nbytes if several else self._one
        self._device.copy(self.staging[:size], self.memory[:size])


def set_states(table: npt.NDArray[np.int32], position: int, rows: int, states: tuple[int, int]) -> None:
    """Write the states before and after `rows` rows from `position` on to a row of `Runtime.STATES`."""
    table[position % 4], table[4 + (position + rows) % 4] = states
