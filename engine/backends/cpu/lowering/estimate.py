"""What a forward pass will need beside its weights and its cache, from headers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.backends.base import AttentionShape, Floats, Weight
from engine.backends.cpu.lowering.recorder import RecordedRoutes, Recorder
from engine.backends.cpu.program import ARGUMENTS
from engine.backends.cpu.runtime.thread_pool import OPERATION
from engine.backends.memory_plan import Buffer, assign_places


def _ones(*shape: int) -> Floats:
    """Stands for a vector of this shape; takes no memory."""
    return np.broadcast_to(np.float32(1), shape)


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

    def _norm(
        self, kernel: str, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int
    ) -> Buffer:
        size = weight.size or x.width // heads
        return super()._norm(kernel, x, _ones(size), None, eps, heads)

    def linear(
        self, x: Buffer, weight: Weight, bias: Floats | None = None, residual: Buffer | None = None
    ) -> Buffer:
        """See `Ops.linear`."""
        return super().linear(x, weight, None if bias is None else _ones(weight.shape[0]), residual)

    def add_positions(self, x: Buffer, table: Floats) -> Buffer:
        """See `Ops.add_positions`."""
        return super().add_positions(x, _ones(1, x.width))

    def attention(
        self, layer: int, q: Buffer, k: Buffer, v: Buffer, shape: AttentionShape, sinks: Floats | None = None
    ) -> Buffer:
        """See `Ops.attention`."""
        return super().attention(layer, q, k, v, shape, None if sinks is None else _ones(shape.heads))

    def expert_linear(
        self, x: Buffer, weights: Sequence[Weight], routes: RecordedRoutes, bias: Floats | None = None
    ) -> Buffer:
        """See `Ops.expert_linear`."""
        return super().expert_linear(
            x, weights, routes, None if bias is None else _ones(len(weights), weights[0].shape[0])
        )

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
