"""Attention with a bias that each query makes by distance, and short convolutions of keys, values and of what
both halves of a layer add (Inkling).

Shape letters as in `engine.models.layers.parts`; R profiles. To each convolution its input is added, which is
as if its last tap were larger by 1.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops, Weight
from engine.backends.relative import RelativeBias
from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import Builder
from engine.models.building.source import PARTS, View, linear_parts, norm
from engine.models.config.relative import RelativeHeads
from engine.models.layers.mixture import Expert, Mixture, mixture
from engine.models.layers.parts import Block, GatedMlp, Linear, Norm, RopeTables
from engine.models.layers.recurrent.parts import Convolution, RecurrentSource
from engine.models.layers.residual.residual_gates import product
from engine.models.layers.whole import Blocks
from engine.tensors import Floats

_NOTHING = product(np.zeros(1, np.float32))
SURE = 2.0
"""More than scores differ: an expert whose correction is the largest one and this is chosen in any case."""


@dataclass(frozen=True, slots=True, eq=False)
class RelativeAttention:
    """Grouped-query attention over the cache, then the output projection: normed x (T, E) -> (T, E). Keys and
    values are convolved before keys are normed. `weights` makes those of the `profiles` (R, extent). If
    `tempered`, queries and weights are multiplied by the factors of their positions.
    """

    layer: int
    shape: AttentionShape
    query: Linear
    key: Linear
    value: Linear
    convolutions: tuple[Convolution, Convolution]
    query_norm: Norm
    key_norm: Norm
    weights: Linear
    profiles: Floats
    output: Linear
    tempered: bool

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        keys, values = self.convolutions
        q, k, v = self.query(ops, x), keys(ops, self.key(ops, x)), values(ops, self.value(ops, x))
        q, k, weights = self.query_norm(ops, q), self.key_norm(ops, k), self.weights(ops, x)
        if self.tempered:
            assert tables.factors is not None
            factors = ops.add_positions(_NOTHING(ops, ops.columns(x, 0, 1)), tables.factors)
            q, weights = (ops.mix([each], factors, 0) for each in (q, weights))
        bias = RelativeBias(weights, self.profiles)
        return self.output(ops, ops.attention(self.layer, q, k, v, self.shape, relative=bias), residual)


# -- building


def relative_blocks(builder: Builder) -> Generator[int, None, Blocks]:
    """All layers; yields the number of finished ones after each."""
    config, names, blocks = builder.config, builder.names, list[Block]()
    for layer in range(config.layers):
        at, attention = names.at(layer), _attention(builder, layer)
        routed = config.experts is not None and layer in config.experts.layers
        blocks.append(
            Block(
                attention, _mixture(builder, at) if routed else _dense(builder, layer, at),
                builder.norm(at + names.attention_norm, config.width),
                builder.norm(at + names.mlp_norm, config.width),
                attention_post=_convolution(builder, layer, 2), mlp_post=_convolution(builder, layer, 3),
            )
        )  # fmt: skip
        yield layer + 1
    return Blocks(tuple(blocks))


def _attention(builder: Builder, layer: int) -> RelativeAttention:
    config, names, kind, at = builder.config, builder.names, builder.config.recurrent, builder.names.at(layer)
    assert isinstance(kind, RelativeHeads)
    shape, eps = config.shape(layer), config.norm_eps
    width, queries, keys = config.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    made, profiles = names.relative
    query_norm, key_norm = (
        norm(builder.source, at + name, shape.head_dim, eps, layer_norm=False, bias=False)
        for name in (names.query_norm, names.key_norm)
    )
    # Scores are divided by head_dim, of which the shape has the root: the queries' norm has the other one.
    share = np.float32(shape.head_dim**-0.5)
    weights = builder.linear(at + made, shape.heads * kind.rank, width, False)
    builder.source.linears[f"model.layers.{layer}.self_attn.r_proj"] = builder.source.linears.pop(at + made)
    return RelativeAttention(
        config.cache_layer(layer), shape, builder.linear(at + names.query, queries, width, False),
        builder.linear(at + names.key, keys, width, False),
        builder.linear(at + names.value, keys, width, False),
        (_convolution(builder, layer, 0), _convolution(builder, layer, 1)),
        replace(query_norm, weight=query_norm.weight * share, heads=shape.heads),
        replace(key_norm, heads=shape.kv_heads), weights,
        builder.source.vector(at + profiles, kind.rank, kind.extents[layer]),
        builder.linear(at + names.output, width, queries, False), layer in kind.tempered,
    )  # fmt: skip


def _convolution(builder: Builder, layer: int, number: int) -> Convolution:
    """Of a layer's keys (0), values (1), attention (2) or feed-forward part (3)."""
    config, names = builder.config, builder.names
    kind, own = config.recurrent, names.recurrent
    assert isinstance(kind, RelativeHeads)
    assert own is not None
    shape, part = kind.parts(config.width, layer)[number], config.first_state_part(layer) + number
    source = RecurrentSource(builder.source, names.at(layer), own)
    made = source.convolution(part, shape.channels, kind.taps, own.convolutions[number])
    taps = made.weight.copy()
    taps[-1] += 1
    return replace(made, weight=taps)


def _dense(builder: Builder, layer: int, at: str) -> GatedMlp:
    """The original files have the rows of gate and up in turn in one matrix."""
    config, names, source, inner = builder.config, builder.names, builder.source, builder.config.ffn_of(layer)
    fused, pair = at + names.gate_up, (at + names.gate, at + names.up)
    if names.gate_up and source.has(fused + ".weight"):
        rows = np.arange(2 * inner)
        gate, up = linear_parts(source, fused, (rows[::2], rows[1::2]), config.width, False)
        for name, part in zip(pair, PARTS, strict=False):
            source.linears[name] = source.linears.pop(fused + part)
    else:
        gate, up = (builder.linear(name, inner, config.width, False) for name in pair)
    down = builder.linear(at + names.down, config.width, inner, False)
    scale = float(source.vector(at + names.dense_scale, 1)[0])
    return GatedMlp(gate, up, down, inner, config.activation, scale=scale)


def _mixture(builder: Builder, at: str) -> Mixture:
    """The shared experts are the last ones: they are scored as the others are, and every token uses them."""
    config, names, source, experts = builder.config, builder.names, builder.source, builder.config.experts
    assert experts is not None
    shared = experts.always
    routed = replace(experts, idle=shared, corrected=False)
    made = mixture(source, config, names, routed, at)
    own = source.vector(at + names.correction, routed.active)
    sure = np.full(shared, own.max() + np.float32(SURE), np.float32)
    stack, size = made.experts, (experts.width, config.width)
    gate, up = (_shared(builder, at, half, shared, *size) for half in (0, 1))
    down = _matrices(builder, at + names.shared_down, View(parts=shared), shared, *size[::-1])
    assert stack.gate is not None
    scale = experts.scale * float(source.vector(at + names.expert_scales, 1)[0])
    return replace(
        made, routing=replace(made.routing, scale=scale), scales=None, correction=np.concatenate([own, sure]),
        experts=replace(
            stack, gate=_followed(stack.gate, gate), up=_followed(stack.up, up),
            down=_followed(stack.down, down),
        ),
    )  # fmt: skip


def _shared(builder: Builder, at: str, half: int, count: int, rows: int, columns: int) -> tuple[Weight, ...]:
    """The gates (0) or what they multiply (1) of the shared experts, which original files have in turn."""
    names, fused = builder.names, at + builder.names.shared_gate_up
    if not (names.shared_gate_up and builder.source.has(fused)):
        own = (names.shared_gate, names.shared_up)[half]
        return _matrices(builder, at + own, View(parts=count), count, rows, columns)
    view = View(parts=count, order=np.arange(half, 2 * rows, 2), stored_rows=2 * rows)
    return _matrices(builder, fused, view, count, rows, columns)


def _matrices(
    builder: Builder, name: str, view: View, count: int, rows: int, columns: int
) -> tuple[Weight, ...]:
    """The matrices (rows, columns) of a stack."""
    return tuple(
        builder.source.matrix(name, rows, columns, replace(view, part=part)) for part in range(count)
    )


def _followed(expert: Expert, shared: tuple[Weight, ...]) -> Expert:
    """The same matrices with the shared experts' in place of those of the last ones."""
    return replace(expert, weights=expert.weights[: -len(shared)] + shared)
