"""What a forward pass will need beside its weights and its cache, from headers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.backends.base import Floats
from engine.backends.cpu.lowering.recorder import Recorder
from engine.backends.cpu.program import ARGUMENTS
from engine.backends.cpu.runtime.work_stealing import OPERATION
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.memory_plan import assign_places


@dataclass
class Outline(Recorder):
    """Records a pass whose vectors are not there yet, whatever size they have here; nothing is kept but
    counted.
    """

    kept_bytes: int = 0

    def _keep(self, values: Floats) -> int:
        self.kept_bytes += (values.size + 15) // 16 * 64
        return 0

    def _keep_table(self, table: Floats) -> int:
        return 0

    def work_space(self, logits: Buffer, threads: int) -> tuple[int, int]:
        """Bytes that a program has for each row of a step, those of the logits' rows aside; and bytes
        whatever the rows.

        Logits are seldom called for in more than one row: the memory of the others is reserved, but never
        taken.
        """
        places = assign_places(self.operations, logits)
        buffers = {
            thing for operation in self.operations for thing in operation.writes if isinstance(thing, Buffer)
        }
        every_row = {buffer.place for buffer in buffers if not buffer.on_logit_rows}
        rows = sum(size for place, size in enumerate(places) if place in every_row)
        arrays = {
            id(constant): constant.nbytes for constant in self.constants if isinstance(constant, np.ndarray)
        }
        words = 8 * (ARGUMENTS + OPERATION) * len(self.operations)
        return rows, sum(arrays.values()) + self.kept_bytes + words + threads * self.scratch + sum(
            places
        ) - rows
