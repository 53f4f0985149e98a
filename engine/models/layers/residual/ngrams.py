"""Embeddings of n-grams: those that layers add to several streams of rows (Qwen 4), and those that are added
to the embeddings of tokens (LongCat).

Shape letters as in `engine.models.layers.parts`; N streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.backends.ngrams import NGrams
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreams
from engine.models.layers.parts import Linear, Norm, scaled
from engine.models.layers.recurrent.parts import Convolution
from engine.models.layers.residual.residual_gates import product
from engine.models.names import TensorNames
from engine.tensors import Floats

_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class NGramValues:
    """A value (T, E) is made of the embedding of a row's n-grams, and a key for each stream. With z the
    product of key and stream, both normed, over sqrt(E), a stream gets sigmoid(sign(z) sqrt(max(|z|, 1e-6)))
    times the value, and silu of the convolution over time of this, normed. Source: transformers' Qwen 4.
    """

    part: int
    table: Weight
    ngrams: NGrams
    key: Linear
    value: Linear
    key_norm: Norm
    query_norm: Norm
    result_norm: Norm
    convolution: Convolution

    def added(self, ops: Ops, streams: Sequence[Array]) -> list[Array]:
        """The streams with what each of them gets."""
        [rows], count = ops.embed_ngrams(self.part, (self.table,), self.ngrams), len(streams)
        key, value = self.key_norm(ops, self.key(ops, rows)), self.value(ops, rows)
        query = self.query_norm(ops, _joined(ops, streams))
        width = self.key_norm.weight.size // count
        z = scaled(ops, _sums(ops, ops.gated(key, query, "identity"), count, width), width**-0.5)
        gates = ops.activate_with(ops.activate_with(z, "root", (_LEAST,)), "sigmoid", (1.0, 0.0))
        given = [ops.mix([value], gates, i) for i in range(count)]
        more = self.convolution(ops, self.result_norm(ops, _joined(ops, given)))
        more = ops.activate(more, "silu")
        return [
            ops.add(ops.add(stream, own), ops.columns(more, width * i, width))
            for i, (stream, own) in enumerate(zip(streams, given, strict=True))
        ]


def _joined(ops: Ops, rows: Sequence[Array]) -> Array:
    return reduce(lambda x, y: ops.join(x, y, 1), rows)


def _sums(ops: Ops, x: Array, parts: int, width: int) -> Array:
    """The sums (T, parts) of the equal parts of rows: what a zero beside each part is less its mean."""
    zeros = product(np.zeros(parts, np.float32))(ops, ops.columns(x, 0, parts))
    centred = ops.layer_norm(
        ops.join(x, zeros, parts), np.full(width + 1, 2.0**50, np.float32), None, 2.0**100, parts
    )
    return scaled(ops, ops.columns(centred, width, 1, parts), -(width + 1.0))


@dataclass(frozen=True, slots=True)
class NGramMean:
    """The mean of a token's embedding (T, E) and of what the `projections` make of the rows of its n-grams,
    each of a table of its own (arXiv 2601.21204).
    """

    part: int
    tables: tuple[Weight, ...]
    ngrams: NGrams
    projections: tuple[Linear, ...]

    def __call__(self, ops: Ops, x: Array) -> Array:
        rows = ops.embed_ngrams(self.part, self.tables, self.ngrams)
        for own, projection in zip(rows, self.projections, strict=True):
            x = projection(ops, own, x)
        return scaled(ops, x, 1 / (1 + len(rows)))


# -- building


def ngram_mean(source: WeightSource, config: ModelConfig, names: TensorNames) -> NGramMean | None:
    """What becomes of the embeddings of tokens before the first layer; None: nothing."""
    kind = config.ngrams
    if kind is None:
        return None
    tables, projections = list[Weight](), list[Linear]()
    for number, rows in enumerate(kind.hashes.counts):
        tables.append(source.matrix(names.ngram_table.format(number) + ".weight", rows, kind.dim))
        name = names.ngram_projection.format(number)
        projections.append(linear(source, name, config.width, kind.dim, False))
    return NGramMean(config.further_part(0), tuple(tables), kind.hashes, tuple(projections))


def ngram_values(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: GatedStreams, layer: int, at: str
) -> NGramValues | None:
    """What a layer adds whose tensors' names begin with `at`; None: nothing."""
    own = kind.ngrams
    if own is None or layer not in own.hashes:
        return None
    ngrams, wide, first = own.hashes[layer], kind.streams * config.width, config.further_part(layer)
    named, table = names.gated_streams, names.per_layer_table or at + names.gated_streams.table
    rows = -(-sum(ngrams.counts) // own.multiple) * own.multiple

    def norm(name: str) -> Norm:
        weight = source.vector(f"{at}{name}.weight", wide) + np.float32(config.norm_offset)
        return Norm(weight, config.norm_eps, heads=kind.streams)

    shape = (wide, own.taps) if named.tap_dims == 2 else (wide, 1, own.taps)
    taps = source.vector(f"{at}{named.taps}.weight", *shape).reshape(wide, own.taps)
    return NGramValues(
        first, source.matrix(table + ".weight", rows, own.width // ngrams.heads), ngrams,
        linear(source, at + named.key, wide, own.width, False),
        linear(source, at + named.value, config.width, own.width, False),
        norm(named.key_norm), norm(named.query_norm), norm(named.result_norm),
        Convolution(first + 1, _spread(taps, ngrams.size), None),
    )  # fmt: skip


def _spread(stored: Floats, step: int) -> Floats:
    """The taps (C, K) as (K', C), with zeros in between, so that each is `step` rows before the next."""
    taps = np.zeros(((stored.shape[1] - 1) * step + 1, len(stored)), np.float32)
    taps[::step] = stored.T
    return taps
