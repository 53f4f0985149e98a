"""Learned rows that attend to the patches of a crop and to each other, in several layers (Perceiver, arXiv
2103.03206; Idefics2, arXiv 2405.02246, section 3): a crop has as many tokens as there are such rows.

Of each layer, softmax(Q [K, K']^T / sqrt(D)) [V, V'] with Q, K' and V' of the normed rows, and K and V of the
normed patches, which are the same in all layers; a gated feed-forward part follows.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.layers.parts import GatedMlp, Linear, Norm
from engine.tensors import Floats
from engine.vision.layers.host_attention import attend
from engine.vision.layers.projector import ProjectorNames
from engine.vision.passes import OfPasses, Pieces


@dataclass(frozen=True, slots=True)
class PerceiverShape:
    """A `TokensShape`: patches (T, `inputs`) -> (`count`, `outputs`). A gated part of `hidden` numbers makes
    patches as wide as tokens; `mlp_width` is that of the layers' own. Heads have `head_dim` numbers, and
    there are `kv_heads` of keys and values. All names begin with one of the `prefixes`: of the gated part,
    and of the layers.
    """

    inputs: int
    outputs: int
    count: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    mlp_width: int
    eps: float
    activations: tuple[str, str]
    prefixes: tuple[str, str]

    def build(self, source: WeightSource, names: ProjectorNames) -> Perceiver:
        """As `TokensShape.build`; the names are its own."""
        first, own = self.prefixes
        width = self.outputs
        return Perceiver(
            _gated(source, first, self.inputs, self.hidden, width, self.activations[0]),
            source.vector(own + "latents", self.count, width),
            tuple(self._layer(source, f"{own}layers.{number}.") for number in range(self.layers)),
            self._norm(source, own + "norm"),
        )

    def tokens(self, backend: Backend, parts: Perceiver, most: int) -> PerceiverPass:
        return PerceiverPass(backend, self, parts, most)

    def _layer(self, source: WeightSource, at: str) -> _Layer:
        width, inner, others = self.outputs, self.heads * self.head_dim, self.kv_heads * self.head_dim
        query, key, value = (
            linear(source, f"{at}self_attn.{name}_proj", rows, width, False)
            for name, rows in (("q", inner), ("k", others), ("v", others))
        )
        before, context, after = (
            self._norm(source, at + name)
            for name in ("input_latents_norm", "input_context_norm", "post_attention_layernorm")
        )
        mlp = _gated(source, at + "mlp.", width, self.mlp_width, width, self.activations[1])
        output = linear(source, at + "self_attn.o_proj", width, inner, False)
        return _Layer(before, context, query, key, value, output, after, mlp)

    def _norm(self, source: WeightSource, name: str) -> Norm:
        return norm(source, name, self.outputs, self.eps, layer_norm=False, bias=False)


def _gated(
    source: WeightSource, at: str, inputs: int, inner: int, outputs: int, activation: str
) -> GatedMlp:  # fmt: skip
    gate, up = (linear(source, f"{at}{name}_proj", inner, inputs, False) for name in ("gate", "up"))
    return GatedMlp(gate, up, linear(source, at + "down_proj", outputs, inner, False), inner, activation)


@dataclass(frozen=True, slots=True)
class _Layer:
    before: Norm
    context: Norm
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    before_mlp: Norm
    mlp: GatedMlp

    def of_patches(self, ops: Ops, x: Array) -> Array:
        """Keys and values (T, 2 G D) of patches (T, N)."""
        x = self.context(ops, x)
        return ops.join(self.key(ops, x), self.value(ops, x), 1)

    def of_rows(self, ops: Ops, x: Array) -> Array:
        """Keys, values and queries (Q, 2 G D + H D) of the rows (Q, N)."""
        x = self.before(ops, x)
        return ops.join(ops.join(self.key(ops, x), self.value(ops, x), 1), self.query(ops, x), 1)

    def rest(self, ops: Ops, x: Array, attended: Array) -> Array:
        """The rows after the layer, of those before it and what attention gave."""
        x = self.output(ops, attended, x)
        return self.mlp(ops, self.before_mlp(ops, x), x)


@dataclass(frozen=True, slots=True, eq=False)
class Perceiver:
    """Its weights: `rows` are (Q, N) float32."""

    first: GatedMlp
    rows: Floats
    layers: tuple[_Layer, ...]
    after: Norm


class PerceiverPass(OfPasses):
    """`Tokens` of a perceiver. Attention itself is done on the host, since its queries are few."""

    def __init__(self, backend: Backend, shape: PerceiverShape, parts: Perceiver, most: int) -> None:
        self._shape, self._rows = shape, parts.rows
        width, inner = shape.outputs, shape.heads * shape.head_dim
        self._first = Pieces(backend, parts.first, (shape.inputs,), most)
        self._layers = [
            (
                Pieces(backend, layer.of_patches, (width,), most),
                Pieces(backend, layer.of_rows, (width,), shape.count),
                Pieces(backend, layer.rest, (width, inner), shape.count),
            )
            for layer in parts.layers
        ]
        self._after = Pieces(backend, parts.after, (width,), shape.count)
        super().__init__(self._first, *chain.from_iterable(self._layers), self._after)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        patches = yield from self._first.rows(states)
        x, split = self._rows, 2 * self._shape.kv_heads * self._shape.head_dim
        for of_patches, of_rows, rest in self._layers:
            there = yield from of_patches.rows(patches)
            own = yield from of_rows.rows(x)
            attended = self._attended(own[:, split:], np.concatenate([there, own[:, :split]]))
            yield Waiting()
            x = yield from rest.rows(x, attended)
        return (yield from self._after.rows(x))

    def _attended(self, queries: Floats, keys_and_values: Floats) -> Floats:
        """What attention gives (Q, H D) of queries (Q, H D), keys and values (T, 2 G D)."""
        shape, count = self._shape, len(queries)
        both = keys_and_values.reshape(-1, 2, shape.kv_heads, shape.head_dim)
        heads = queries.reshape(count, shape.kv_heads, -1, shape.head_dim)
        found = np.empty_like(heads)
        for group in range(shape.kv_heads):
            keys, values = both[:, 0, group], both[:, 1, group]
            own = heads[:, group].reshape(-1, shape.head_dim)
            mean = attend(own, keys, values, shape.head_dim**-0.5)
            found[:, group] = mean.reshape(count, -1, shape.head_dim)
        return found.reshape(count, -1)
