"""Attention whose queries and keys are convolved over time and among the numbers of each head, and whose
values are half those of the row before (compressed convolutional attention, arXiv 2510.04476), and layers of
it whose experts a network chooses that reads what that of the layer before made of a row (ZAYA1).

Shape letters as in `engine.models.layers.parts`; C channels of queries and keys, K taps.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.decoder import Builder
from engine.models.building.source import View, linear
from engine.models.config.convolved import ConvolvedHeads
from engine.models.layers.mixture import Mixture, idle_scales, mixture
from engine.models.layers.parts import Linear, Norm, RopeTables
from engine.models.layers.recurrent.parts import Convolution, RecurrentSource
from engine.models.layers.residual.residual_gates import product
from engine.models.layers.vectors import same_rows
from engine.tensors import Floats

_LEAST = float(np.finfo(np.float32).eps)
"""The least length that a query or key is divided by."""


@dataclass(frozen=True, slots=True, eq=False)
class ConvolvedQkv:
    """Of q and k, made by matrices: u is both, each channel convolved, and row t of the results is the sum
    over j of W_j u[t - j], plus `bias` (C,), with matrices W_j (D, D) of each head. To that, the mean of q
    and the head's k is added to a query, and the mean of those of its heads to a key. Values are `current`
    (T, G D / 2), then what `delayed` makes of the row before.

    `channels` make u[t - K + 1] ... u[t]; `mixed` (D, D K) has a head's W_j, in turn for each number of u.
    """

    query: Linear
    key: Linear
    current: Linear
    delayed: Linear
    channels: tuple[Convolution, ...]
    mixed: tuple[Weight, ...]
    bias: Floats
    before: Convolution
    kind: ConvolvedHeads

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        kind = self.kind
        groups, dim, shared = kind.groups, kind.dim, kind.heads // kind.groups
        q, k = self.query(ops, x), self.key(ops, x)
        current, delayed = self.current(ops, x), self.before(ops, self.delayed(ops, x))
        both = ops.join(q, k, 1)
        taps = self.channels[0](ops, both)
        for convolution in self.channels[1:]:
            taps = ops.join(taps, convolution(ops, both), kind.channels)
        made = ops.head_linear(taps, self.mixed)
        made = ops.add(made, same_rows(ops, made, self.bias))
        queries, keys = ops.columns(made, 0, kind.queries), ops.columns(made, kind.queries, groups * dim)
        repeated = k
        for head in range(shared):
            repeated = ops.join(repeated, k, groups) if head else k
            keys = ops.add(keys, ops.columns(q, head * dim, dim, groups), 0.5 / shared)
        queries = ops.add(ops.add(queries, q, 0.5), repeated, 0.5)
        return queries, ops.add(keys, k, 0.5), ops.join(current, delayed, 1)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledSum:
    """x * kept + y * added + shift, each (E,)."""

    kept: Norm
    added: Norm
    shift: Floats

    def __call__(self, ops: Ops, x: Array, y: Array) -> Array:
        x = ops.add(self.kept(ops, x), same_rows(ops, x, self.shift))
        return ops.add(x, self.added(ops, y))


@dataclass(frozen=True, slots=True)
class RouterNetwork:
    """What chooses experts: `down` makes numbers of a row, to which those of the layer before are added times
    `carried`; two layers with gelu follow, and the router itself.
    """

    down: Linear
    carried: Norm | None
    norm: Norm
    inner: tuple[Linear, Linear]

    def __call__(self, ops: Ops, x: Array, before: Array | None) -> tuple[Array, Array]:
        """The router's input, and the numbers for the next layer."""
        made = self.down(ops, x)
        if self.carried is not None and before is not None:
            made = ops.add(made, self.carried(ops, before))
        y = self.norm(ops, made)
        for each in self.inner:
            y = ops.activate(each(ops, y), "gelu")
        return y, made


@dataclass(frozen=True, slots=True)
class Layer:
    """Attention and experts, with what is added scaled number by number, as is what it is added to."""

    attention_norm: Norm
    attention: Attention
    after_attention: ScaledSum
    mlp_norm: Norm
    network: RouterNetwork
    experts: Mixture
    after_experts: ScaledSum

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, before: Array | None) -> tuple[Array, Array]:
        """The layer's result, and the numbers of its router network."""
        x = self.after_attention(ops, x, self.attention(ops, self.attention_norm(ops, x), tables))
        h = self.mlp_norm(ops, x)
        y, made = self.network(ops, h, before)
        return self.after_experts(ops, x, self.experts.finish(ops, h, self.experts.begin(ops, y))), made


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """All layers; see `engine.models.layers.whole.Stack`. Embeddings are multiplied by `scale`, and `shift`
    (E,) is added to them.
    """

    layers: tuple[Layer, ...]
    scale: Norm
    shift: Floats
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        x = ops.add(self.scale(ops, x), same_rows(ops, x, self.shift))
        before: Array | None = None
        for layer in self.layers:
            x, before = layer(ops, x, tables, before)
        return x


# -- building


def convolved_layers(builder: Builder) -> Generator[int, None, Layers]:
    """All layers; yields the number of finished ones after each."""
    source, config, names = builder.source, builder.config, builder.names
    experts, width, made = config.experts, config.width, list[Layer]()
    assert experts is not None
    for layer in range(config.layers):
        at = names.at(layer)
        routed = mixture(source, config, names, experts, at)
        made.append(
            Layer(
                builder.norm(at + names.attention_norm, width), _attention(builder, layer, at),
                _scaled_sum(builder, at + names.attention_residual_gate),
                builder.norm(at + names.mlp_norm, width), _network(builder, layer, at),
                replace(routed, scales=idle_scales(experts, 1.0, 0.0)),
                _scaled_sum(builder, at + names.mlp_residual_gate),
            )
        )  # fmt: skip
        yield layer + 1
    scale = source.vector(names.embed_norm + "_scale", width)
    shift = scale * source.vector(names.embed_norm + "_bias", width)
    return Layers(tuple(made), product(scale), shift)


def _attention(builder: Builder, layer: int, at: str) -> Attention:
    config, names, shape = builder.config, builder.names, builder.config.shape(layer)
    dim, own = shape.head_dim, names.recurrent
    assert own is not None
    factors = np.repeat(builder.source.vector(at + own.rate, shape.kv_heads), dim)
    eps = _LEAST * _LEAST / dim
    return Attention(
        config.cache_layer(layer), shape, _inputs(builder, layer, at),
        builder.linear(at + names.output, config.width, shape.heads * dim, config.output_bias),
        "local" if config.has_local_rope(layer) else "main",
        Norm(np.ones(dim, np.float32), eps, heads=shape.heads),
        Norm(factors, eps, heads=shape.kv_heads),
    )  # fmt: skip


def _inputs(builder: Builder, layer: int, at: str) -> ConvolvedQkv:
    config, names, source, kind = builder.config, builder.names, builder.source, builder.config.recurrent
    own, width, bias, part = (
        names.recurrent,
        config.width,
        config.attention_bias,
        config.first_state_part(layer),
    )
    assert isinstance(kind, ConvolvedHeads)
    assert own is not None
    half, dim, (first, second) = kind.groups * kind.dim // 2, kind.dim, kind.taps
    delayed = builder.linear(at + own.value, half, width, bias)
    plain = RecurrentSource(source, at, own).convolution(part, kind.channels, first)
    channels = []
    for tap, shape in enumerate(kind.parts[:second]):  # earlier rows: the taps, and then this many zeros
        taps = np.zeros((shape.taps, kind.channels), np.float32)
        end = shape.taps - (second - 1 - tap)
        taps[end - first : end] = plain.weight
        channels.append(Convolution(part + tap, taps, plain.bias))
    views = [
        View(order=np.arange(head * dim, (head + 1) * dim), stored_rows=kind.channels, taps=second)
        for head in range(kind.channels // dim)
    ]
    return ConvolvedQkv(
        builder.linear(at + names.query, kind.queries, width, bias),
        builder.linear(at + names.key, kind.groups * dim, width, bias),
        builder.linear(at + names.value, half, width, bias), replace(delayed, bias=None), tuple(channels),
        tuple(source.matrix(at + own.mixed + ".weight", dim, dim * second, view) for view in views),
        source.vector(at + own.mixed + ".bias", kind.channels),
        Convolution(part + second, np.array([[1], [0]], np.float32).repeat(half, 1), delayed.bias), kind,
    )  # fmt: skip


def _scaled_sum(builder: Builder, at: str) -> ScaledSum:
    def vector(name: str) -> Floats:
        return builder.source.vector(at + name, builder.config.width)

    kept, added = vector(".residual_scale"), vector(".hidden_states_scale")
    shift = kept * vector(".residual_bias") + added * vector(".hidden_states_bias")
    return ScaledSum(product(kept), product(added), shift)


def _network(builder: Builder, layer: int, at: str) -> RouterNetwork:
    config, own, source = builder.config, builder.names.router_network, builder.source
    assert config.experts is not None
    assert own is not None
    size = config.experts.router_width
    first, second = (linear(source, at + name, size, size, True) for name in (own.first, own.second))
    return RouterNetwork(
        linear(source, at + own.down, size, config.width, True),
        product(source.vector(at + own.carried, size)) if layer else None,
        builder.norm(at + own.norm, size), (first, second),
    )  # fmt: skip
