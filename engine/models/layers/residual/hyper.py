"""Layers that read and write several streams of rows: hyper-connections (arXiv 2409.19606) whose weights come
of the streams themselves, as Hunyuan 4 has them, and DeepSeek V4, which mixes the streams, too.

Shape letters as in `engine.models.layers.parts`; N streams of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreams, HyperConnections
from engine.models.layers.parts import Block, Linear, Norm, RopeTables, scaled
from engine.models.layers.residual.gated_streams import GatedMean, gated_mean
from engine.models.layers.residual.ngrams import NGramValues, ngram_values
from engine.models.names import TensorNames


@dataclass(frozen=True, slots=True)
class StreamWeights:
    """Weights of N streams: from all streams of a row, normed as one (N E,), come the logits of sigmoids by a
    matrix (N or 2 N, N E) and a bias. The first N weigh what is read, the others what is written. If streams
    are mixed, N^2 more are those of `Ops.balance`: what weighs stream j in stream i is at i N + j,
    or at j N + i if `inputs_first`.
    """

    kind: HyperConnections
    norm: Norm
    logits: Linear

    def __call__(self, ops: Ops, streams: Sequence[Array]) -> tuple[Array, Array]:
        """The weighted sum of the streams (T, E), and the logits of all weights."""
        joined = streams[0]
        for stream in streams[1:]:
            joined = ops.join(joined, stream, 1)
        logits = self.logits(ops, self.norm(ops, joined))
        eps = self.kind.eps if self.kind.read_eps is None else self.kind.read_eps
        return ops.mix(streams, self._weights(ops, logits, 0, (1.0, eps)), 0), logits

    def written(self, ops: Ops, streams: Sequence[Array], half: Callable[[Array], Array]) -> list[Array]:
        """The streams, mixed or as they are, to each of which the weighted result of `half` of their weighted
        sum is added.
        """
        kind, (read, logits) = self.kind, self(ops, streams)
        count, rounds = kind.streams, kind.rounds
        weights = self._weights(ops, logits, count, (kind.magnitude, 0.0 if rounds else kind.eps))
        kept = streams
        if rounds:
            shares = ops.columns(logits, 2 * count, count * count)
            if kind.limit:
                shares = ops.activate_with(shares, "clamp", (kind.limit,))
            shares = ops.balance(shares, count, rounds, kind.eps, 0.0 if kind.inputs_first else None)
            if kind.inputs_first:
                kept = [ops.mix(streams, ops.columns(shares, i, 1, count), 0) for i in range(count)]
            else:
                kept = [ops.mix(streams, shares, count * i) for i in range(count)]
        made = half(read)
        return [ops.mix([made], weights, i, stream) for i, stream in enumerate(kept)]

    def _weights(self, ops: Ops, logits: Array, first: int, numbers: tuple[float, float]) -> Array:
        own = ops.columns(logits, first, self.kind.streams)
        return ops.activate_with(own, "sigmoid", numbers)


@dataclass(frozen=True, slots=True)
class StreamMean:
    """The mean of the streams."""

    kind: HyperConnections

    def __call__(self, ops: Ops, streams: Sequence[Array]) -> tuple[Array, None]:
        """The mean (T, E)."""
        return scaled(ops, reduce(ops.add, streams), 1 / len(streams)), None


@dataclass(frozen=True, slots=True)
class HyperBlock:
    """One layer over N streams."""

    attention: StreamWeights | GatedMean
    mlp: StreamWeights | GatedMean
    block: Block
    ngrams: NGramValues | None = None

    def __call__(self, ops: Ops, streams: Sequence[Array], tables: RopeTables) -> list[Array]:
        block = self.block
        attention, mlp, first, second = block.attention, block.mlp, block.attention_norm, block.mlp_norm
        assert attention is not None
        assert mlp is not None
        streams = self.ngrams.added(ops, streams) if self.ngrams else streams
        after = self.attention.written(
            ops, streams, lambda x: attention(ops, first(ops, x) if first else x, tables)
        )
        return self.mlp.written(ops, after, lambda x: mlp(ops, second(ops, x) if second else x))


@dataclass(frozen=True, slots=True)
class HyperBlocks:
    """The layers of a model with N streams, which begin as the embedding and end in a sum of theirs."""

    blocks: tuple[HyperBlock, ...]
    last: StreamWeights | GatedMean | StreamMean
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        streams = [x] * self.last.kind.streams
        for block in self.blocks:
            streams = block(ops, streams, tables)
        return self.last(ops, streams)[0]


# -- building


def hyper_blocks(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: HyperConnections | GatedStreams,
    blocks: Sequence[Block],
) -> HyperBlocks:  # fmt: skip
    """The blocks with what joins them to the streams."""
    made = []
    for layer, block in enumerate(blocks):
        at = names.layer.format(layer)
        attention, mlp = (
            _weights(source, config, names, kind, at + name, 2)
            for name in (names.hyper_attention, names.hyper_mlp)
        )
        streams = kind if isinstance(kind, GatedStreams) else None
        own = ngram_values(source, config, names, streams, layer, at) if streams else None
        made.append(HyperBlock(attention, mlp, block, own))
    if isinstance(kind, HyperConnections) and kind.mean:
        return HyperBlocks(tuple(made), StreamMean(kind))
    tables = tuple(block.ngrams.table for block in made if block.ngrams)
    return HyperBlocks(tuple(made), _weights(source, config, names, kind, names.hyper_head, 1), tables)


def _weights(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: HyperConnections | GatedStreams,
    at: str, sets: int,
) -> StreamWeights | GatedMean:  # fmt: skip
    """The matrix `at`fn, whose rows the numbers `at`scale multiply, one for each of the `sets` and one for
    those that mix streams, and the bias `at`base; where `at` holds "{}", the ends stand there.
    """
    if isinstance(kind, GatedStreams):
        return gated_mean(source, config, kind, at, names.gated_streams, injects=sets > 1)
    numbers, scales, bias = (at.format(end) if "{}" in at else at + end for end in ("fn", "scale", "base"))
    count, order = kind.streams, np.arange(sets * kind.streams)
    sizes = [count] * sets
    if kind.rounds and sets > 1:
        # In the file, what weighs stream j in stream i is at j N + i (Xing 4: at i N + j, and so it is turned
        # round for `balance`, which begins with the other index).
        more = len(order) + np.arange(count * count).reshape(count, count).T.reshape(-1)
        order, sizes = np.concatenate([order, more]), [*sizes, count * count]
    rows, columns = len(order), count * config.width
    factors = np.repeat(source.vector(scales, len(sizes)), sizes)
    view = View(factors=factors, order=order, stored_rows=rows)
    matrix = source.matrix(numbers, rows, columns, view)
    norm = Norm(np.ones(columns, np.float32), config.norm_eps)
    return StreamWeights(kind, norm, Linear(matrix, source.vector(bias, rows)[order]))
