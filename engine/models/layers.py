"""The parts that decoders are made of, with the quirks of all architectures.

Each holds its weights and calls `Ops`; none knows a device. Shape letters as in `engine.core`: T rows, E
width, H heads, G key/value heads, D head dimension, F feed-forward width, X experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.backends.base import Array, AttentionShape, Ops, RotaryTable, Routing, Weight
from engine.tensors import Floats

Order = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Linear:
    """x (T, K) -> (T, N).

    Each of `adapters` is a pair (R, K), (N, R) whose product is added to the matrix (LoRA, arXiv 2106.09685).
    """

    weight: Weight
    bias: Floats | None = None
    adapters: list[tuple[Weight, Weight]] = field(default_factory=list)

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        y = ops.linear(x, self.weight, self.bias, residual)
        for down, up in self.adapters:
            y = ops.linear(ops.linear(x, down), up, None, y)
        return y


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """The place of a LoRA adapter: the linears that hold the rows of one module of the original model.

    Each linear comes with the indices of the rows that it holds (None: all); `rows` is the module's count.
    `inputs` are the indices of the module's columns in the order that the linears have them (None: the same).
    """

    linears: tuple[tuple[Linear, Order | None], ...]
    rows: int
    inputs: Order | None = None

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


@dataclass(frozen=True, slots=True)
class FusedQkv:
    """One matrix for query, key and value; `widths` are the columns of each."""

    linear: Linear
    widths: tuple[int, int, int]

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        y = self.linear(ops, x)
        q, k, v = self.widths
        return ops.columns(y, 0, q), ops.columns(y, q, k), ops.columns(y, q + k, v)


@dataclass(frozen=True, slots=True)
class SeparateQkv:
    """One matrix each for query, key and value."""

    query: Linear
    key: Linear
    value: Linear

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        return self.query(ops, x), self.key(ops, x), self.value(ops, x)


@dataclass(frozen=True, slots=True)
class RopeTables:
    """The rotary tables of a model: `main`, and `local` for the layers with a window that have their own.
    `queries` takes the place of `main` for queries that are scaled by their positions.
    """

    main: RotaryTable | None = None
    local: RotaryTable | None = None
    queries: RotaryTable | None = None

    def table(self, name: str) -> RotaryTable | None:
        """The table called "main" or "local"; None for "none"."""
        return self.main if name == "main" else self.local if name == "local" else None


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention over the cache, then the output projection: normed x (T, E) -> (T, E).

    `rope` is "main", "local" or "none". `query_norm` and `key_norm` are applied before it. The sigmoid of
    `gate` multiplies the result before the projection.
    """

    layer: int
    shape: AttentionShape
    inputs: FusedQkv | SeparateQkv
    output: Linear
    rope: str = "main"
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    sinks: Floats | None = None
    gate: Linear | None = None

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        q, k, v = self.inputs(ops, x)  # (T, H * D), (T, G * D) twice
        q = self.query_norm(ops, q) if self.query_norm else q
        k = self.key_norm(ops, k) if self.key_norm else k
        table = tables.table(self.rope)
        if table is not None:
            of_queries = tables.queries if self.rope == "main" and tables.queries is not None else table
            q, k = ops.rope(q, of_queries, self.shape.heads), ops.rope(k, table, self.shape.kv_heads)
        y = ops.attention(self.layer, q, k, v, self.shape, self.sinks)
        if self.gate is not None:
            y = ops.gated(self.gate(ops, x), y, "sigmoid")
        return self.output(ops, y, residual)


class Mixer(Protocol):
    """What mixes a layer's tokens, `Attention` or a recurrent part: normed x (T, E) -> (T, E)."""

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array: ...


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """down(activation(gate) * up) (arXiv 2002.05202).

    Without `gate`, `up` computes both, the gate's `width` columns first.
    """

    gate: Linear | None
    up: Linear
    down: Linear
    width: int
    activation: str = "silu"

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        up = self.up(ops, x)
        if self.gate is None:
            gate, up = ops.columns(up, 0, self.width), ops.columns(up, self.width, self.width)
        else:
            gate = self.gate(ops, x)
        return self.down(ops, ops.gated(gate, up, self.activation), residual)


@dataclass(frozen=True, slots=True)
class PlainMlp:
    """down(activation(up))."""

    up: Linear
    down: Linear
    activation: str

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return self.down(ops, ops.activate(self.up(ops, x), self.activation), residual)


@dataclass(frozen=True, slots=True)
class Expert:
    """One of the three matrices of a mixture, for all X experts, with biases (X, N)."""

    weights: tuple[Weight, ...]
    bias: Floats | None = None


@dataclass(frozen=True, slots=True)
class Mixture:
    """A router and gated feed-forward experts, of which each row uses a few (arXiv 2401.04088)."""

    router: Linear
    routing: Routing
    gate: Expert
    up: Expert
    down: Expert
    activation: str = "silu"

    def __call__(self, ops: Ops, x: Array, residual: Array) -> Array:
        routes = ops.route(self.router(ops, x), self.routing)
        rows = ops.spread(x, routes)
        gate = ops.expert_linear(rows, self.gate.weights, routes, self.gate.bias)
        up = ops.expert_linear(rows, self.up.weights, routes, self.up.bias)
        down = ops.expert_linear(
            ops.gated(gate, up, self.activation), self.down.weights, routes, self.down.bias
        )
        return ops.gather(down, routes, residual)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. A norm may be None; `scale` multiplies what each half adds. A layer of one part alone lacks
    the other.

    `parallel`: both halves have the same input, normed once by `attention_norm`.
    """

    attention: Mixer | None
    mlp: GatedMlp | PlainMlp | Mixture | None
    attention_norm: Norm | None
    mlp_norm: Norm | None
    attention_post: Norm | None = None
    mlp_post: Norm | None = None
    parallel: bool = False
    scale: float = 1.0

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        if self.parallel:
            assert self.attention is not None
            assert self.mlp is not None
            h = self.attention_norm(ops, x) if self.attention_norm else x
            return self.mlp(ops, h, residual=self.attention(ops, h, tables, residual=x))
        x = x if self.attention is None else self._mixed(ops, x, tables, self.attention)
        return x if self.mlp is None else self._fed_forward(ops, x, self.mlp)

    def _mixed(self, ops: Ops, x: Array, tables: RopeTables, attention: Mixer) -> Array:
        h = self.attention_norm(ops, x) if self.attention_norm else x
        if self.scale == 1.0 and self.attention_post is None:
            return attention(ops, h, tables, residual=x)
        y = attention(ops, h, tables)
        return ops.add(x, self.attention_post(ops, y) if self.attention_post else y, self.scale)

    def _fed_forward(self, ops: Ops, x: Array, mlp: GatedMlp | PlainMlp | Mixture) -> Array:
        h = self.mlp_norm(ops, x) if self.mlp_norm else x
        if isinstance(mlp, Mixture) or (self.scale == 1.0 and self.mlp_post is None):
            return mlp(ops, h, residual=x)
        y = mlp(ops, h)
        return ops.add(x, self.mlp_post(ops, y) if self.mlp_post else y, self.scale)


@dataclass(frozen=True, slots=True)
class Parts:
    """A whole decoder.

    With tied embeddings `head.weight` is `embed` itself. `positions` is a learned table (P, E).
    """

    embed: Weight
    blocks: tuple[Block, ...]
    norm: Norm
    head: Linear
    positions: Floats | None = None
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float = 0.0

    def __call__(self, ops: Ops, tables: RopeTables) -> Array:
        """The logits (logit_rows, V) of the step's last rows."""
        x = ops.embed(self.embed, self.embed_scale)
        if self.positions is not None:
            x = ops.add_positions(x, self.positions)
        for block in self.blocks:
            x = block(ops, x, tables)
        logits = self.head(ops, self.norm(ops, ops.last_rows(x)))
        if self.logit_scale != 1.0 or self.logit_cap:
            logits = ops.soft_cap(logits, self.logit_scale, self.logit_cap)
        return logits
