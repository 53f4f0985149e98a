"""Builds mixtures of experts: as many files store them, with a tensor for each expert or in stacks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.models.config import ModelConfig
from engine.models.experts_config import Experts
from engine.models.layers.parts import Expert, FeedForward, Mixture, Narrow, Norm
from engine.models.layers.residual_gates import weighed_norm
from engine.models.names import TensorNames
from engine.models.source import View, WeightSource, linear, norm
from engine.tensors import Floats


def mixture(
    source: WeightSource, config: ModelConfig, names: TensorNames, experts: Experts, at: str
) -> Mixture:
    """The router and the routed experts of the layer whose names begin with `at`."""
    made, width = _Stacks(source, names, experts), experts.narrow or config.width
    view = View(transposed=names.router_transposed)
    router = linear(source, at + names.router, experts.count, config.width, experts.router_bias, view)
    fused, down = at + names.expert_gate_up, names.expert_down
    gate = None
    if config.gated and names.expert_gate_up and source.has(fused + names.stack_ends[0]):
        gate, up = (made.stack(fused, experts.width, width, half) for half in (0, 1))
        down = names.expert_down_stack or down
    else:
        if config.gated:
            gate = made.expert(at + names.expert_gate, experts.width, width)
        up = made.expert(at + names.expert_up, experts.width, width)
    return Mixture(
        router,
        experts.routing,
        gate,
        up,
        made.expert(at + down, width, experts.width, last=True),
        config.activation,
        _correction(source, names, experts, at),
        idle_scales(experts, 1.0, 0.0) if experts.idle else None,
        weighs_input=experts.weighs_input,
        early=experts.early,
        router_scale=experts.router_scale,
        router_cap=experts.router_cap,
        narrow=_narrow(source, config, names, experts.narrow, at) if experts.narrow else None,
    )


def _narrow(source: WeightSource, config: ModelConfig, names: TensorNames, width: int, at: str) -> Narrow:
    own = names.narrow
    assert own is not None
    offset, ones = config.norm_offset, np.ones(width, np.float32)
    return Narrow(
        linear(source, at + own.down, width, config.width, False),
        linear(source, at + own.up, config.width, width, False),
        norm(source, at + own.norm, width, config.norm_eps, layer_norm=False, bias=False, offset=offset)
        if own.norm
        else None,
        weighed_norm(source, at + own.each, ones, config.post_norm_eps) if own.each else None,
    )


@dataclass(frozen=True, slots=True)
class BesideExperts:
    """A plain feed-forward part and experts with the same input x (T, E), before any norm; what both make is
    normed and added. The router has a norm of its own (Gemma 4).
    """

    mlp_norm: Norm
    mlp: FeedForward
    mlp_post: Norm
    router_norm: Norm
    experts_norm: Norm
    experts: Mixture
    experts_post: Norm

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        y = self.mlp_post(ops, self.mlp(ops, self.mlp_norm(ops, x)))
        logits = self.experts.router(ops, self.router_norm(ops, x))
        routed = self.experts.routed(ops, self.experts_norm(ops, x), logits)
        y = ops.add(y, self.experts_post(ops, routed))
        return y if residual is None else ops.add(residual, y)


def beside_experts(
    source: WeightSource, config: ModelConfig, names: TensorNames, at: str, mlp: FeedForward, experts: Mixture
) -> BesideExperts:
    """The norms of both parts; the router's input is divided by sqrt(E)."""

    def made(name: str) -> Norm:
        return norm(source, at + name, config.width, config.norm_eps, layer_norm=False, bias=False)

    root = np.float32(config.width**-0.5)
    return BesideExperts(
        made(names.mlp_norm),
        mlp,
        made(names.beside_post),
        Norm(source.vector(at + names.router_norm, config.width) * root, config.norm_eps),
        made(names.experts_norm),
        replace(experts, scales=source.vector(at + names.expert_scales, experts.routing.experts)),
        made(names.experts_post),
    )


def idle_scales(experts: Experts, active: float, idle: float) -> Floats:
    """A number for each expert (X,): one for those with matrices, the other for those without."""
    return np.repeat(np.array([active, idle], np.float32), (experts.active, experts.idle))


def _correction(source: WeightSource, names: TensorNames, experts: Experts, at: str) -> Floats | None:
    name = at + names.correction
    if experts.corrected is False or (experts.corrected is None and not source.has(name)):
        return None
    if not names.correction_rows:
        return source.vector(name, experts.count)
    first: Floats = source.vector(name, names.correction_rows, experts.count)[0]
    return first


class _Stacks:
    def __init__(self, source: WeightSource, names: TensorNames, experts: Experts) -> None:
        self.source, self.names, self.experts = source, names, experts
        self.bias = experts.bias

    def expert(self, name: str, rows: int, columns: int, *, last: bool = False) -> Expert:
        """One matrix of every expert, stored as a tensor each or as a stack; `last`: the second one."""
        if self.names.stacks_flat:
            return self._flat(name, rows, columns, last)
        if "{}" not in name:
            return self.stack(name, rows, columns)
        matrices = [
            self.source.matrix(name.format(i) + ".weight", rows, columns) for i in range(self.experts.active)
        ]
        return Expert(self._all(matrices))

    def _all(self, matrices: list[Weight]) -> tuple[Weight, ...]:
        """With any in place of those that idle experts do not have: these are multiplied by 0."""
        return (*matrices, *matrices[:1] * self.experts.idle)

    def stack(self, name: str, rows: int, columns: int, half: int | None = None) -> Expert:
        """A stack (X, rows, columns), or one `half` (0: gate, 1: up) of a fused one (X, 2 rows, columns)."""
        names, count, order, stored = self.names, self.experts.active, None, rows
        if half is not None:
            stored = 2 * rows
            order = (
                np.arange(half, stored, 2)
                if names.stacks_alternate
                else np.arange(half * rows, (half + 1) * rows)
            )
        views = (View(part, count, names.stacks_transposed, order, stored) for part in range(count))
        full = name + names.stack_ends[0]
        stack = self._all([self.source.matrix(full, rows, columns, view) for view in views])
        full = name + names.stack_ends[1]
        if not (self.source.has(full) if self.bias is None else self.bias):
            return Expert(stack)
        bias = self.source.vector(full, count, stored)
        return Expert(stack, bias if order is None else np.ascontiguousarray(bias[:, order]))

    def _flat(self, name: str, rows: int, columns: int, flipped: bool) -> Expert:
        """Rows of one matrix (X F, E): those of each expert in turn, or with `flipped` its columns."""
        count, inner = self.experts.count, columns if flipped else rows
        parts = np.arange(count * inner).reshape(count, inner)
        views = (View(order=part, stored_rows=count * inner, flipped=flipped) for part in parts)
        full = name + self.names.stack_ends[0]
        return Expert(tuple(self.source.matrix(full, rows, columns, view) for view in views))
