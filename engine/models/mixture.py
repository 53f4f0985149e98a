"""Builds mixtures of experts: as many files store them, with a tensor for each expert or in stacks."""

from __future__ import annotations

import numpy as np

from engine.models.config import Experts, ModelConfig
from engine.models.layers import Expert, Mixture
from engine.models.names import TensorNames
from engine.models.source import View, WeightSource, linear
from engine.tensors import Floats


def mixture(
    source: WeightSource, config: ModelConfig, names: TensorNames, experts: Experts, at: str
) -> Mixture:
    """The router and the routed experts of the layer whose names begin with `at`."""
    made = _Stacks(source, config, names, experts)
    router = linear(source, at + names.router, experts.count, config.width, experts.router_bias)
    fused, down = at + names.expert_gate_up, names.expert_down
    gate = None
    if config.gated and names.expert_gate_up and source.has(fused + names.stack_ends[0]):
        gate, up = (made.stack(fused, experts.width, config.width, half) for half in (0, 1))
        down = names.expert_down_stack or down
    else:
        if config.gated:
            gate = made.expert(at + names.expert_gate, experts.width, config.width)
        up = made.expert(at + names.expert_up, experts.width, config.width)
    return Mixture(
        router,
        experts.routing,
        gate,
        up,
        made.expert(at + down, config.width, experts.width),
        config.activation,
        _correction(source, names, experts, at),
    )


def _correction(source: WeightSource, names: TensorNames, experts: Experts, at: str) -> Floats | None:
    name = at + names.correction
    if experts.corrected is False or (experts.corrected is None and not source.has(name)):
        return None
    shape = (1, experts.count) if names.correction_row else (experts.count,)
    return source.vector(name, *shape).reshape(-1)


class _Stacks:
    def __init__(
        self, source: WeightSource, config: ModelConfig, names: TensorNames, experts: Experts
    ) -> None:
        self.source, self.names, self.experts = source, names, experts
        self.bias = config.mlp_bias

    def expert(self, name: str, rows: int, columns: int) -> Expert:
        """One matrix of every expert, stored as a tensor each or as a stack (X, rows, columns)."""
        if "{}" not in name:
            return self.stack(name, rows, columns)
        matrices = (
            self.source.matrix(name.format(i) + ".weight", rows, columns) for i in range(self.experts.count)
        )
        return Expert(tuple(matrices))

    def stack(self, name: str, rows: int, columns: int, half: int | None = None) -> Expert:
        """A stack (X, rows, columns), or one `half` (0: gate, 1: up) of a fused one (X, 2 rows, columns)."""
        names, count, order, stored = self.names, self.experts.count, None, rows
        if half is not None:
            stored = 2 * rows
            order = (
                np.arange(half, stored, 2)
                if names.stacks_alternate
                else np.arange(half * rows, (half + 1) * rows)
            )
        views = (View(part, count, names.stacks_transposed, order, stored) for part in range(count))
        stack = tuple(self.source.matrix(name + names.stack_ends[0], rows, columns, view) for view in views)
        full = name + names.stack_ends[1]
        if not (self.source.has(full) if self.bias is None else self.bias):
            return Expert(stack)
        bias = self.source.vector(full, count, stored)
        return Expert(stack, bias if order is None else np.ascontiguousarray(bias[:, order]))
