"""Attention whose heads are no longer than a limit, with a bias by distance and a sink that each query makes
(Inkling 2).

Shape letters as in `engine.models.layers.parts`; K taps, R profiles.
"""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops
from engine.backends.relative import RelativeBias
from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import Builder
from engine.models.config.relative import ClippedHeads
from engine.models.layers.parts import Linear, Norm, RopeTables, bare_norm
from engine.models.layers.recurrent.parts import Convolution
from engine.models.layers.residual.residual_gates import product
from engine.tensors import Floats

_NOTHING = product(np.zeros(1, np.float32))
_EPS = 1e-12
"""Keeps a head of zeros from dividing by 0."""
MODULES = {
    "attn.wq_du": "self_attn.q_proj.linear", "attn.wk_dv": "self_attn.k_proj.linear",
    "attn.wv_dv": "self_attn.v_proj.linear", "attn.wo_ud": "self_attn.o_proj.linear",
    "attn.gate_attn": "self_attn.o_proj.gate_proj", "attn.attn_sink_proj": "self_attn.sink_proj",
    "attn.wr_du": "self_attn.relative_position_bias.linear", "mlp.gate": "mlp.gate",
    "attn.k_sconv.weight_proj": "self_attn.k_proj.sconv.weight_proj",
    "attn.v_sconv.weight_proj": "self_attn.v_proj.sconv.weight_proj",
}  # fmt: skip
"""The names of a layer's matrices in the original files, and those of transformers' modules, for adapters."""


@dataclass(frozen=True, slots=True)
class LengthClip:
    """The heads of x (T, H * D), times `scale` if there is one, and those that are then longer than a limit
    made as long as it; `limit` makes all so long.
    """

    limit: Norm
    scale: Norm | None = None

    def __call__(self, ops: Ops, x: Array) -> Array:
        x = self.scale(ops, x) if self.scale else x
        return ops.gated(x, self.limit(ops, x), "smaller")


@dataclass(frozen=True, slots=True, eq=False)
class RowTaps:
    """y[t] = sum over l of (w_l + s_l[t]) x[t - l], for x (T, G * D) and the input u (T, E) of which the
    numbers s (T, G * K) are `made`: each is of a head and of a tap.

    `lags` (K, K * G * D) make K copies of x, the one numbered l of l rows before; `spread` gives every number
    of a head its taps, and adds w.
    """

    part: int
    lags: Floats
    made: Linear
    spread: Linear

    def __call__(self, ops: Ops, x: Array, u: Array) -> Array:
        taps, wide = self.lags.shape
        copies = x
        for _tap in range(1, taps):
            copies = ops.join(copies, x, 1)
        lagged = ops.convolve(self.part, copies, self.lags)
        products = ops.gated(self.spread(ops, self.made(ops, u)), lagged, "identity")
        y = ops.columns(products, 0, wide // taps)
        for tap in range(1, taps):
            y = ops.add(y, ops.columns(products, tap * (wide // taps), wide // taps))
        return y


@dataclass(frozen=True, slots=True)
class Convolved:
    """Keys or values: u (T, E) times a matrix, convolved by fixed taps or by those of rows."""

    linear: Linear
    convolution: Convolution | RowTaps

    def __call__(self, ops: Ops, u: Array) -> Array:
        y = self.linear(ops, u)
        own = self.convolution
        return own(ops, y, u) if isinstance(own, RowTaps) else own(ops, y)


Inputs = tuple[Array, Array, Array]
"""Of queries, keys and values, normed: (T, E) each."""


@dataclass(frozen=True, slots=True, eq=False)
class ClippedAttention:
    """Grouped-query attention over the cache, times the sigmoid of `gate`, then the output projection:
    (T, E). `weights` makes those of the `profiles` (R, extent), `sinks` a sink for each head. If `tempered`,
    queries and weights are multiplied by the factors of their positions.
    """

    layer: int
    shape: AttentionShape
    query: Linear
    keys: Convolved
    values: Convolved
    query_clip: LengthClip
    key_clip: LengthClip
    value_norm: Norm
    weights: Linear
    weights_clip: LengthClip
    profiles: Floats
    sinks: Linear
    gate: Linear
    output: Linear
    tempered: bool

    def __call__(self, ops: Ops, inputs: Inputs, tables: RopeTables) -> Array:
        x, of_keys, of_values = inputs
        q = self.query_clip(ops, self.query(ops, x))
        weights = self.weights_clip(ops, self.weights(ops, x))
        k = self.key_clip(ops, self.keys(ops, of_keys))
        v = self.value_norm(ops, self.values(ops, of_values))
        if self.tempered:
            assert tables.factors is not None
            factors = ops.add_positions(_NOTHING(ops, ops.columns(x, 0, 1)), tables.factors)
            q, weights = (ops.mix([each], factors, 0) for each in (q, weights))
        bias = RelativeBias(weights, self.profiles, self.sinks(ops, x))
        y = ops.attention(self.layer, q, k, v, self.shape, relative=bias)
        return self.output(ops, ops.gated(self.gate(ops, x), y, "sigmoid"))


# -- building


def clipped_attention(builder: Builder, run: int, at: str) -> ClippedAttention:
    """The attention of the layer whose names begin with `at`, which is number `run` of those that run."""
    config, kind, source = builder.config, builder.config.recurrent, builder.source
    assert isinstance(kind, ClippedHeads)
    shape, width, part = config.shape(run), config.width, config.first_state_part(run)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def linear(name: str, rows: int, columns: int = width) -> Linear:
        return builder.linear(at + name, rows, columns, False)

    def clip(name: str, heads: int, dim: int, length: float) -> LengthClip:
        limit = Norm(np.full(dim, length * dim**-0.5, np.float32), _EPS, heads=heads)
        scale = source.vector(at + name, heads, dim).reshape(-1) if name else None
        return LengthClip(limit, None if scale is None else product(scale))

    def convolved(name: str, own: str, number: int) -> Convolved:
        if run in kind.dynamic:
            taps: Convolution | RowTaps = _row_taps(builder, at + own, part + number, shape, kind.taps)
        else:
            taps = convolution(builder, at + own, part + number, keys)
        return Convolved(linear(name, keys), taps)

    return ClippedAttention(
        config.cache_layer(run), shape, linear("attn.wq_du", queries),
        convolved("attn.wk_dv", "attn.k_sconv", 0), convolved("attn.wv_dv", "attn.v_sconv", 1),
        clip("attn.q_l2_clip.scale", shape.heads, shape.head_dim, kind.clip),
        clip("", shape.kv_heads, shape.head_dim, kind.clip),
        bare_norm(shape.head_dim, config.norm_eps, shape.kv_heads),
        linear("attn.wr_du", shape.heads * kind.rank),
        clip("attn.rel_l2_clip.scale", shape.heads, kind.rank, kind.profile_clip),
        source.vector(at + "attn.rel_logits_proj.proj", kind.rank, kind.extents[run]),
        linear("attn.attn_sink_proj", shape.heads), linear("attn.gate_attn", queries),
        linear("attn.wo_ud", width, queries), run in kind.tempered,
    )  # fmt: skip


def convolution(builder: Builder, name: str, part: int, channels: int) -> Convolution:
    """Fixed taps (C, 1, K); the input is added, and the sum divided by sqrt(K + 1)."""
    kind = builder.config.recurrent
    assert isinstance(kind, ClippedHeads)
    taps = builder.source.vector(name + ".weight", channels, 1, kind.taps).reshape(channels, -1).T.copy()
    taps[-1] += 1
    return Convolution(part, np.ascontiguousarray(taps) * np.float32((kind.taps + 1) ** -0.5), None)


def _row_taps(builder: Builder, name: str, part: int, shape: AttentionShape, taps: int) -> RowTaps:
    """The input is added, and the sum divided by sqrt(2 K + 1)."""
    source, groups, dim = builder.source, shape.kv_heads, shape.head_dim
    keys, factor = groups * dim, np.float32((2 * taps + 1) ** -0.5)
    fixed = source.vector(name + ".static_w", taps, keys).copy()
    fixed[0] += 1
    lags = np.zeros((taps, taps, keys), np.float32)
    lags[np.arange(taps)[::-1], np.arange(taps)] = 1
    # Row (l, g, d) of the matrix takes number l of head g.
    places = np.arange(groups) * taps + np.arange(taps)[:, None]
    spread = np.eye(groups * taps, dtype=np.float32)[np.repeat(places, dim)] * factor
    made = Linear(source.matrix(name + ".weight_proj", groups * taps, builder.config.width))
    source.linears[name + ".weight_proj"] = made
    return RowTaps(
        part, lags.reshape(taps, -1), made,
        Linear(source.constant(spread), fixed.reshape(-1) * factor),
    )  # fmt: skip
