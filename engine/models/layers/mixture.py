"""Mixtures of experts, and how they are built: files store a tensor for each expert, or stacks.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops, Routes, Weight
from engine.backends.routing import Routing
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts, Limits
from engine.models.layers.narrow import Narrow, narrow_of
from engine.models.layers.parts import FeedForward, GatedMlp, Linear, Norm, PlainMlp, limited, scaled
from engine.models.names import TensorNames
from engine.tensors import Floats, Ints
from engine.words import _


@dataclass(frozen=True, slots=True)
class Expert:
    """One of the three matrices of a mixture, for all X experts, with biases (X, N)."""

    weights: tuple[Weight, ...]
    bias: Floats | None = None


@dataclass(frozen=True, slots=True)
class ExpertStack:
    """The feed-forward parts of all experts; without `gate`, `PlainMlp`s. `limits` are as in `limited`."""

    gate: Expert | None
    up: Expert
    down: Expert
    activation: str = "silu"
    limits: Limits | None = None
    narrow: Narrow | None = None

    def __call__(self, ops: Ops, x: Array, routes: Routes, residual: Array | None = None) -> Array:
        """The weighted sum of what each row's experts make of it."""
        rows = ops.spread(self.narrow(ops, x) if self.narrow else x, routes)
        gate = self.gate and ops.expert_linear(rows, self.gate.weights, routes, self.gate.bias)
        up = ops.expert_linear(rows, self.up.weights, routes, self.up.bias)
        made = ops.expert_linear(self.inner(ops, gate, up), self.down.weights, routes, self.down.bias)
        if self.narrow is None:
            return ops.gather(made, routes, residual)
        made = self.narrow.each(ops, made) if self.narrow.each else made
        summed = ops.gather(made, routes)
        return self.narrow.up(ops, self.narrow.last(ops, summed) if self.narrow.last else summed, residual)

    def inner(self, ops: Ops, gate: Array | None, up: Array) -> Array:
        """What stands before the last matrix."""
        if self.gate is None:
            return ops.activate(up, self.activation)
        return limited(ops, gate, up, self.activation, self.limits)


FOR_ALL = Routing(1, 1, False, "sigmoid")
"""Of the one expert that every token uses: its weight is the sigmoid of its logit."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A router and feed-forward experts, of which each row uses a few (arXiv 2401.04088).

    `correction` and `scales` are the `bias` and `scales` of `Ops.route`. What the `shared` expert makes of
    every row is added (arXiv 2401.06066), times the sigmoid of `shared_gate` (E -> 1) if there is one; with
    `shares` (E -> 2) times the second of a softmax, whose first multiplies what the experts make. With
    `weighs_input` the weight of a row's only expert multiplies its input instead of its result. With `early`
    the router's input is the whole block's, before any norm. `router_scale` multiplies the router's logits,
    `router_cap` is their soft cap; 0: none. What the `adjugates` of a row's experts make is added, times
    `adjugate_scale`. `table` is that of `Ops.route`.
    """

    router: Linear
    routing: Routing
    experts: ExpertStack
    correction: Floats | None = None
    scales: Floats | None = None
    shared: GatedMlp | PlainMlp | None = None
    shared_gate: Linear | None = None
    shares: Linear | None = None
    weighs_input: bool = False
    early: bool = False
    router_scale: float = 1.0
    router_cap: float = 0.0
    adjugates: ExpertStack | None = None
    adjugate_scale: float = 1.0
    table: Ints | None = None

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return self.finish(ops, x, self.begin(ops, x), residual)

    def begin(self, ops: Ops, x: Array) -> Array:
        """The router's logits (T, X)."""
        return self.router(ops, x)

    def finish(self, ops: Ops, x: Array, begun: Array, residual: Array | None = None) -> Array:
        """The mixture with these logits of the router."""
        own = None
        if self.shares is not None:
            both = self.shares(ops, x)
            # The softmax of two numbers is the sigmoid of their difference, either way.
            ahead = ops.add(ops.columns(both, 0, 1), ops.columns(both, 1, 1), -1.0)
            own = ops.route(ahead, FOR_ALL)
            residual = self._with_shared(ops, x, scaled(ops, ahead, -1.0), residual)
        elif self.shared is not None:
            gate = self.shared_gate(ops, x) if self.shared_gate else None
            residual = self._with_shared(ops, x, gate, residual)
        logits = begun
        if self.router_cap or self.router_scale != 1.0:
            logits = ops.soft_cap(begun, self.router_scale, self.router_cap)
        routes = ops.route(logits, self.routing, self.correction, self.scales, self.table)
        if self.adjugates is not None:
            y = self.adjugates(ops, x, routes)
            residual = (
                scaled(ops, y, self.adjugate_scale)
                if residual is None
                else ops.add(residual, y, self.adjugate_scale)
            )
        if self.weighs_input:
            x = ops.gather(ops.spread(x, routes), routes)
            routes = ops.route(logits, Routing(self.routing.experts, self.routing.used))
        if own is not None:
            return ops.gather(self.experts(ops, x, routes), own, residual)
        return self.experts(ops, x, routes, residual)

    def _with_shared(self, ops: Ops, x: Array, gate: Array | None, residual: Array | None) -> Array:
        """What the shared expert makes, times the sigmoid of `gate` (T, 1), is added."""
        assert self.shared is not None
        if gate is None:
            return self.shared(ops, x, residual)
        return ops.gather(self.shared(ops, x), ops.route(gate, FOR_ALL), residual)


def mixture(
    source: WeightSource,
    config: ModelConfig,
    names: TensorNames,
    experts: Experts,
    at: str,
    limits: Limits | None = None,
) -> Mixture:
    """The router and routed experts of the layer whose names begin with `at`; `limits` as in `limited`."""
    made, width = _Stacks(source, names, experts), experts.narrow or config.width
    view = View(transposed=names.router_transposed)
    inputs = experts.router_width or config.width
    router = linear(source, at + names.router, experts.count, inputs, experts.router_bias, view)
    fused, down, split = at + names.expert_gate_up, names.expert_down, names.expert_gate_up.replace
    gate = None
    if config.gated and names.expert_gate_up and made.has(fused):
        gate, up = (made.expert(fused, experts.width, width, half=half) for half in (0, 1))
        down = names.expert_down_stack or down
    else:
        if config.gated:
            gate = made.expert(at + (names.expert_gate or split("gate_up", "gate")), experts.width, width)
        up = made.expert(at + (names.expert_up or split("gate_up", "up")), experts.width, width)
    last = made.expert(at + down, width, experts.width, last=True)
    narrow = narrow_of(source, config, names, experts.narrow, at) if experts.narrow else None
    return Mixture(
        router,
        experts.routing,
        ExpertStack(gate, up, last, config.activation, limits, narrow),
        _correction(source, names, experts, at),
        idle_scales(experts, 1.0, 0.0) if experts.idle else None,
        weighs_input=experts.weighs_input,
        early=experts.early,
        router_scale=experts.router_scale,
        router_cap=experts.router_cap,
        adjugates=_adjugates(source, config, names, experts, at) if experts.adjugates else None,
        adjugate_scale=experts.adjugate_scale,
    )


def _adjugates(
    source: WeightSource, config: ModelConfig, names: TensorNames, experts: Experts, at: str
) -> ExpertStack:
    """The adjugate expert of each expert: neighbours have one in common."""
    count = experts.count // experts.adjugates
    made, width = _Stacks(source, names, replace(experts, count=count, used=1)), experts.adjugate_width

    def each(name: str, rows: int, columns: int) -> Expert:
        weights = made.stack(at + name, rows, columns).weights
        return Expert(tuple(weights[i // experts.adjugates] for i in range(experts.count)))

    return ExpertStack(
        each(names.adjugate_gate, width, config.width), each(names.adjugate_up, width, config.width),
        each(names.adjugate_down, config.width, width), config.activation,
    )  # fmt: skip


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
        logits = self.experts.begin(ops, self.router_norm(ops, x))
        routed = self.experts.finish(ops, self.experts_norm(ops, x), logits)
        y = ops.add(y, self.experts_post(ops, routed))
        return y if residual is None else ops.add(residual, y)


@dataclass(frozen=True, slots=True)
class ExpertsPastAttention:
    """A plain feed-forward part, and experts whose input is that of the whole block, with a norm of its own:
    they look past attention (Snowflake Arctic).
    """

    mlp: FeedForward
    experts_norm: Norm
    experts: Mixture
    early: bool = True

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return self.finish(ops, x, self.begin(ops, x), residual)

    def begin(self, ops: Ops, x: Array) -> Array:
        """What the experts make of the block's input."""
        return self.experts(ops, self.experts_norm(ops, x))

    def finish(self, ops: Ops, x: Array, begun: Array, residual: Array | None = None) -> Array:
        """What the plain part makes, and `begun`."""
        return self.mlp(ops, x, begun if residual is None else ops.add(residual, begun))


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


def past_attention(
    source: WeightSource, config: ModelConfig, names: TensorNames, at: str, mlp: FeedForward, experts: Mixture
) -> ExpertsPastAttention:
    """The experts beside a plain feed-forward part, with their norm."""
    own = norm(source, at + names.experts_norm, config.width, config.norm_eps, layer_norm=False, bias=False)
    return ExpertsPastAttention(mlp, own, experts)


def expert_table(
    source: WeightSource, config: ModelConfig, names: TensorNames, experts: Experts, at: str
) -> Ints:
    """The experts of each token (V, used) in the layer whose names begin with `at`. Raises `BadCheckpoint`
    for numbers of none.
    """
    name = at + names.expert_table
    found = source.vector(name, config.vocab_size, experts.used)
    # A survey of the headers gives ones.
    if not (found.min() >= 0 and found.max() < max(experts.count, 2)):
        raise BadCheckpoint(
            _(
                "The tensor {name} names expert {expert}, but the model has {count}; the file is damaged.",
                name=name,
                expert=int(found.max() if found.min() >= 0 else found.min()),
                count=experts.count,
            )
        )
    return np.minimum(found, experts.count - 1).astype(np.int32)


def _correction(source: WeightSource, names: TensorNames, experts: Experts, at: str) -> Floats | None:
    name = at + names.correction
    if experts.corrected is False or (experts.corrected is None and not source.has(name)):
        return None
    if not names.correction_rows:
        return source.vector(name, experts.count)
    first: Floats = source.vector(name, names.correction_rows, experts.count)[0]
    return first


UPRIGHT = (".weight", ".bias")
"""How the names of stacks (X, N, K) end that mlx-lm makes, whatever the authors' own are like."""


class _Stacks:
    def __init__(self, source: WeightSource, names: TensorNames, experts: Experts) -> None:
        self.source, self.names, self.experts = source, names, experts
        self.bias = experts.bias

    def has(self, name: str) -> bool:
        """Whether there are such matrices, in any form."""
        ends = (self.names.stack_ends[0], UPRIGHT[0])
        return any(self.source.has(name + end) for end in ends) or self._one_by_one(name) is not None

    def _one_by_one(self, name: str) -> str | None:
        """The name of each expert's tensor where a tool took a stack apart: a number before the last part."""
        at, _dot, matrix = name.rpartition(".")
        each = f"{at}.{{}}.{matrix}"
        return each if self.source.has(each.format(0) + UPRIGHT[0]) else None

    def expert(
        self, name: str, rows: int, columns: int, *, half: int | None = None, last: bool = False
    ) -> Expert:
        """One matrix of every expert, a tensor each or a stack; `last`: the second. `half` as in `_view`."""
        if self.names.stacks_flat:
            return self._flat(name, rows, columns, last)
        joined, end = name.replace(".{}", ""), self.names.stack_ends[0]
        own = joined == name and end == UPRIGHT[0]
        if not own and self.source.has(joined + UPRIGHT[0]):
            upright = replace(self.names, stack_ends=UPRIGHT, stacks_transposed=False)
            return _Stacks(self.source, upright, self.experts).stack(joined, rows, columns, half)
        each = name if "{}" in name else None if self.source.has(name + end) else self._one_by_one(name)
        return (
            self.stack(name, rows, columns, half) if each is None else self._each(each, rows, columns, half)
        )

    def _each(self, name: str, rows: int, columns: int, half: int | None) -> Expert:
        """A tensor for each expert; `half` as in `_view`."""
        view = self._view(rows, half)
        names = [name.format(i) for i in range(self.experts.active)]
        matrices = self._all([self.source.matrix(each + UPRIGHT[0], rows, columns, view) for each in names])
        if not self._has_bias(names[0] + UPRIGHT[1]):
            return Expert(matrices)
        biases = np.stack([self.source.vector(each + UPRIGHT[1], view.stored_rows) for each in names])
        return Expert(matrices, biases if view.order is None else np.ascontiguousarray(biases[:, view.order]))

    def _has_bias(self, name: str) -> bool:
        return self.source.has(name) if self.bias is None else self.bias

    def _all(self, matrices: list[Weight]) -> tuple[Weight, ...]:
        """With any in place of those that idle experts do not have: these are multiplied by 0."""
        return (*matrices, *matrices[:1] * self.experts.idle)

    def _view(self, rows: int, half: int | None) -> View:
        """A whole matrix (rows, columns), or one `half` (0: gate, 1: up) of a fused one (2 rows, columns)."""
        if half is None:
            return View(stored_rows=rows)
        first, step = (half, 2) if self.names.stacks_alternate else (half * rows, 1)
        return View(order=np.arange(first, first + step * rows, step)[:rows], stored_rows=2 * rows)

    def stack(self, name: str, rows: int, columns: int, half: int | None = None) -> Expert:
        """A stack (X, rows, columns), or one `half` of a fused one, as in `_view`."""
        names, count, view = self.names, self.experts.active, self._view(rows, half)
        view = replace(view, parts=count, transposed=names.stacks_transposed)
        full = name + names.stack_ends[0]
        stack = self._all(
            [self.source.matrix(full, rows, columns, replace(view, part=part)) for part in range(count)]
        )
        full = name + names.stack_ends[1]
        if not self._has_bias(full):
            return Expert(stack)
        bias = self.source.vector(full, count, view.stored_rows)
        return Expert(stack, bias if view.order is None else np.ascontiguousarray(bias[:, view.order]))

    def _flat(self, name: str, rows: int, columns: int, flipped: bool) -> Expert:
        """Rows of one matrix (X F, E): those of each expert in turn, or with `flipped` its columns."""
        count, inner = self.experts.count, columns if flipped else rows
        parts = np.arange(count * inner).reshape(count, inner)
        views = (View(order=part, stored_rows=count * inner, flipped=flipped) for part in parts)
        full = name + self.names.stack_ends[0]
        return Expert(tuple(self.source.matrix(full, rows, columns, view) for view in views))
