"""The parts that decoders are made of, with the quirks of all architectures.

Each holds its weights and calls `Ops`; none knows a device. Shape letters as in `engine.core`: T rows, E
width, H heads, G key/value heads, D head dimension, F feed-forward width, X experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from engine.backends.base import Array, Ops, RotaryTable, Weight
from engine.lazy_dataclass import dataclass
from engine.models.config.experts import Limits
from engine.tensors import Floats

Order = npt.NDArray[np.int64]
Normed = Callable[[Ops, Array], Array]


@dataclass(slots=True)
class Changes:
    """What adapters change of a matrix (N, K) in the passes that are recorded from now on.

    `weight` takes its place. `factors` are zeros (N, 1) and what multiplies its rows (N,) (DoRA, arXiv
    2402.09353). `bias` (N,) is added to its bias. Each of `pairs` is (R, K), (N, R), whose product is added
    to the matrix, after the factors (LoRA, arXiv 2106.09685).
    """

    weight: Weight | None = None
    factors: tuple[Weight, Floats] | None = None
    bias: Floats | None = None
    pairs: list[tuple[Weight, Weight]] = field(default_factory=list)

    def clear(self) -> None:
        """Leave the matrix as it is in the model."""
        self.weight = self.factors = self.bias = None
        self.pairs.clear()


@dataclass(frozen=True, slots=True)
class Linear:
    """x (T, K) -> (T, N)."""

    weight: Weight
    bias: Floats | None = None
    adapters: Changes = field(default_factory=Changes)

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        changes, bias = self.adapters, self.bias
        if changes.bias is not None:
            bias = changes.bias if bias is None else bias + changes.bias
        weight = self.weight if changes.weight is None else changes.weight
        if changes.factors is None:
            y = ops.linear(x, weight, bias, residual)
        else:
            # The zeros give each row the same numbers, whatever x is.
            zeros, factors = changes.factors
            first = ops.columns(x, 0, 1)
            y = ops.gated(ops.linear(first, zeros, factors), ops.linear(x, weight), "identity")
            residual = residual if bias is None else ops.linear(first, zeros, bias, residual)
            y = y if residual is None else ops.add(residual, y)
        for down, up in changes.pairs:
            y = ops.linear(ops.linear(x, down), up, None, y)
        return y


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """The place of a LoRA adapter: the linears that hold the rows of one module of the original model.

    Each linear comes with the indices of the rows that it holds (None: all); `rows` is the module's count.
    `inputs` are the indices of the module's columns in the order that the linears have them (None: the same).
    An `is_embedding` is a table whose rows are looked up.
    """

    linears: tuple[tuple[Linear, Order | None], ...]
    rows: int
    inputs: Order | None = None
    is_embedding: bool = False

    @property
    def columns(self) -> int:
        """The number of the module's inputs."""
        return self.linears[0][0].weight.shape[1]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm or layer norm of each of `heads` parts of a row: x (T, E) -> (T, E)."""

    weight: Floats
    eps: float
    bias: Floats | None = None
    is_layer_norm: bool = False
    heads: int = 1

    def __call__(self, ops: Ops, x: Array) -> Array:
        if self.is_layer_norm:
            return ops.layer_norm(x, self.weight, self.bias, self.eps, self.heads)
        return ops.rms_norm(x, self.weight, self.eps, self.heads)


def bare_norm(dim: int, eps: float, heads: int) -> Norm:
    """The RMS norm of each head alone, without a weight."""
    return Norm(np.ones(dim, np.float32), eps, heads=heads)


def unit_norm(size: int, eps: float, heads: int = 1) -> Norm:
    """x / sqrt(sum(x^2) + eps) of each of `heads` parts of `size` numbers: they become of length 1."""
    return Norm(np.full(size, size**-0.5, np.float32), eps / size, heads=heads)


def scaled(ops: Ops, x: Array, scale: float) -> Array:
    """scale * x."""
    return x if scale == 1.0 else ops.soft_cap(x, scale, 0.0)


def added(ops: Ops, output: Linear, x: Array, residual: Array | None, scale: float) -> Array:
    """residual + scale * output(x)."""
    if scale == 1.0:
        return output(ops, x, residual)
    y = output(ops, x)
    return scaled(ops, y, scale) if residual is None else ops.add(residual, y, scale)


@dataclass(frozen=True, slots=True)
class RopeTables:
    """The rotary tables of a model: `main`, and `local` for the layers with a window that have their own.
    `queries` takes the place of `main` for queries that are scaled by their positions; `unrotated` scales the
    part of such a query that has no rope, or the queries of layers without rope. `pooled` are those of keys
    of blocks, by the positions of a block: they have the position of their block's first. `back` are by name
    those that take rope away again. `logs` are ln(p + 1) of positions p, (positions, 1),
    `factors` those of `RelativeHeads`.
    """

    main: RotaryTable | None = None
    local: RotaryTable | None = None
    queries: RotaryTable | None = None
    unrotated: RotaryTable | None = None
    pooled: Mapping[int, RotaryTable] = field(default_factory=dict)
    back: Mapping[str, RotaryTable] = field(default_factory=dict)
    logs: Floats | None = None
    factors: Floats | None = None

    def table(self, name: str) -> RotaryTable | None:
        """The table called "main" or "local"; None for others."""
        return self.main if name == "main" else self.local if name == "local" else None


class Mixer(Protocol):
    """What mixes a layer's tokens, `Attention` or a recurrent part: normed x (T, E) -> (T, E)."""

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array: ...


_LARGE = 1e30
"""Beyond any number of a model."""


def limited(ops: Ops, gate: Array, up: Array, activation: str, limits: Limits | None) -> Array:
    """activation(gate) * up within the limits.

    Those of "clamped_swiglu" are instead what stands for 7 and for 1.702 in it, those of "situ" soft caps: it
    is sigmoid(gate) cap(gate) cap(up); 0: none of the last.
    """
    if limits is None:
        return ops.gated(gate, up, activation)
    if activation == "situ":
        capped = ops.soft_cap(gate, 1.0, limits[0])
        up = ops.soft_cap(up, 1.0, limits[1]) if limits[1] else up
        return ops.gated(gate, ops.gated(capped, up, "identity"), "sigmoid")
    if activation == "clamped_swiglu":
        limit, slope = limits
        gate, up = (
            ops.activate_with(gate, "between", (-_LARGE, limit)),
            ops.activate_with(up, "clamp", (limit,)),
        )
        part = ops.gated(ops.soft_cap(gate, slope, 0.0), gate, "sigmoid")
        return ops.add(ops.gated(part, up, "identity"), part)
    factors = ops.activate(gate, activation), up
    gate, up = (
        ops.activate_with(each, "clamp", (limit,)) for each, limit in zip(factors, limits, strict=True)
    )
    return ops.gated(gate, up, "identity")


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """down(activation(gate) * up) (arXiv 2002.05202).

    Without `gate`, `up` computes both, the gate's `width` columns first. `gate_scale` multiplies the gate,
    `scale` the result. `norm` stands before the last matrix. `limits` are as in `limited`.
    """

    gate: Normed | None
    up: Normed
    down: Linear
    width: int
    activation: str = "silu"
    gate_scale: float = 1.0
    scale: float = 1.0
    norm: Norm | None = None
    limits: Limits | None = None

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        up = self.up(ops, x)
        if self.gate is None:
            gate, up = ops.columns(up, 0, self.width), ops.columns(up, self.width, self.width)
        else:
            gate = self.gate(ops, x)
        inner = limited(ops, scaled(ops, gate, self.gate_scale), up, self.activation, self.limits)
        inner = self.norm(ops, inner) if self.norm else inner
        return added(ops, self.down, inner, residual, self.scale)


@dataclass(frozen=True, slots=True)
class PlainMlp:
    """down(activation(up)); an activation with `numbers` is one of `Ops.activate_with`."""

    up: Linear
    down: Linear
    activation: str
    numbers: tuple[float, ...] = ()

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        y = self.up(ops, x)
        if self.numbers:
            y = ops.activate_with(y, self.activation, self.numbers)
        else:
            y = ops.activate(y, self.activation)
        return self.down(ops, y, residual)


class FeedForward(Protocol):
    """The second half of a layer: normed x (T, E) -> (T, E), plus `residual` if there is one."""

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array: ...


class Early(FeedForward, Protocol):
    """One that, if it is `early`, reads the whole block's input, too, before attention and any norm."""

    @property
    def early(self) -> bool: ...

    def begin(self, ops: Ops, x: Array) -> Array:
        """What it makes of the block's input (T, E)."""
        ...

    def finish(self, ops: Ops, x: Array, begun: Array, residual: Array | None = None) -> Array:
        """The second half of the layer, as `FeedForward`, with what `begin` made."""
        ...


Scales = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. A norm may be None. Of each half, `scales` multiply what it is added to and what it adds. A
    layer of one part alone lacks the other.

    `parallel`: both halves have the same input, normed once by `attention_norm`, or for the second half by
    `mlp_norm`. `norms_sum`: what stands after a half norms the sum with its input.
    `norms_both`: a half is added to its normed input. With `norms_sum`, attention's input is added to its
    normed result again before `attention_again`, if there is one; `mlp_residual` then norms, instead of
    `attention_post`, what the second half's result is added to. `keeps` are of each half what changes what it
    is added to.
    """

    attention: Mixer | None
    mlp: FeedForward | None
    attention_norm: Normed | None
    mlp_norm: Normed | None
    attention_post: Normed | None = None
    mlp_post: Normed | None = None
    parallel: bool = False
    scales: tuple[Scales, Scales] = ((1.0, 1.0), (1.0, 1.0))
    norms_sum: bool = False
    norms_both: bool = False
    attention_again: Norm | None = None
    mlp_residual: Norm | None = None
    keeps: tuple[Normed | None, Normed | None] = (None, None)

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        if getattr(self.mlp, "early", False):  # a protocol's `isinstance` takes a hundred times as long
            return self._begun_early(ops, x, tables, cast(Early, self.mlp))
        if self.parallel:
            assert self.attention is not None
            assert self.mlp is not None
            h = self.attention_norm(ops, x) if self.attention_norm else x
            fed = self.mlp_norm(ops, x) if self.mlp_norm else h
            return self.mlp(ops, fed, residual=self.attention(ops, h, tables, residual=x))
        if self.norms_sum:
            return self._summed(ops, x, tables)
        x = x if self.attention is None else self._mixed(ops, x, tables, self.attention)
        return x if self.mlp is None else self._fed_forward(ops, x, self.mlp)

    def _begun_early(self, ops: Ops, x: Array, tables: RopeTables, mlp: Early) -> Array:
        assert self.attention is not None
        assert self.mlp_norm is not None
        begun = mlp.begin(ops, x)
        x = self._mixed(ops, x, tables, self.attention)
        return mlp.finish(ops, self.mlp_norm(ops, x), begun, x)

    def _summed(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        assert self.attention is not None
        assert self.attention_post is not None
        assert self.mlp is not None
        assert self.mlp_post is not None
        mixed = self.attention(ops, x, tables, residual=x)
        y = self.attention_post(ops, mixed)
        x = self.attention_again(ops, ops.add(x, y)) if self.attention_again else y
        residual = self.mlp_residual(ops, mixed) if self.mlp_residual else x
        return self.mlp_post(ops, self.mlp(ops, x, residual=residual))

    def _mixed(self, ops: Ops, x: Array, tables: RopeTables, attention: Mixer) -> Array:
        h, (before, after) = self.attention_norm(ops, x) if self.attention_norm else x, self.scales[0]
        x = scaled(ops, h if self.norms_both else x, before)
        x = self.keeps[0](ops, x) if self.keeps[0] else x
        if after == 1.0 and self.attention_post is None:
            return attention(ops, h, tables, residual=x)
        y = attention(ops, h, tables)
        return ops.add(x, self.attention_post(ops, y) if self.attention_post else y, after)

    def _fed_forward(self, ops: Ops, x: Array, mlp: FeedForward) -> Array:
        h, (before, after) = self.mlp_norm(ops, x) if self.mlp_norm else x, self.scales[1]
        x = scaled(ops, h if self.norms_both else x, before)
        x = self.keeps[1](ops, x) if self.keeps[1] else x
        if after == 1.0 and self.mlp_post is None:
            return mlp(ops, h, residual=x)
        y = mlp(ops, h)
        return ops.add(x, self.mlp_post(ops, y) if self.mlp_post else y, after)
