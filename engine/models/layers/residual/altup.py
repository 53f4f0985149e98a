"""Layers that read and write several versions of a row: AltUp (arXiv 2301.13310), with a low-rank path beside
attention (LAuReL, arXiv 2411.07501) and sparse feed-forward parts, as Gemma 3n has them.

Shape letters as in `engine.models.layers.parts`; N versions of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.config.gemma import AltUp
from engine.models.layers.parts import Block, FeedForward, GatedMlp, Linear, Norm, RopeTables
from engine.models.layers.residual.per_layer import (
    PerLayerEmbedding,
    PerLayerGate,
    per_layer_embedding,
    per_layer_gate,
)
from engine.models.names import TensorNames
from engine.tensors import Floats

TINY = 1e-30
"""The epsilon of a norm that is to leave no trace of one."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseMlp:
    """down(activation(relu(g - c)) * up), where g = gate(x), and c is as many standard deviations above the
    mean of each of its rows as `shift` is below 0.
    """

    plain: GatedMlp
    ones: Floats
    shift: Floats

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        assert self.plain.gate is not None
        gate = self.plain.gate(ops, x)
        above = ops.activate(ops.layer_norm(gate, self.ones, self.shift, TINY), "relu")
        gate = ops.mix([above], ops.magnitude(gate, centred=True), 0)
        return self.plain.down(ops, ops.gated(gate, self.plain.up(ops, x), self.plain.activation), residual)


@dataclass(frozen=True, slots=True)
class Laurel:
    """x plus the normed product with two thin matrices."""

    left: Linear
    right: Linear
    norm: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return ops.add(x, self.norm(ops, self.right(ops, self.left(ops, x))))


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """tanh(router(norm(x)) / E), (T, N), times `predict` (N^2, N) or `correct` (N, N)."""

    norm: Norm
    router: Linear
    width: int
    predict: Linear
    correct: Linear

    def __call__(self, ops: Ops, x: Array, then: Linear) -> Array:
        return then(ops, ops.soft_cap(self.router(ops, self.norm(ops, x)), 1 / self.width, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class AltUpBlock:
    """One layer over N versions: predicts all of them, runs the `block` on the `active` one, corrects all by
    what it made, and adds the second embedding to all but the first. The weight of the norm `scale`
    multiplies the row that the second embedding's gate reads.
    """

    active: int
    router: Router
    block: Block
    laurel: Laurel
    scale: Norm | None
    second: PerLayerGate

    def __call__(self, ops: Ops, versions: Sequence[Array], tables: RopeTables, second: Array) -> list[Array]:
        count = len(versions)
        weights = self.router(ops, versions[self.active], self.router.predict)
        predicted = [ops.mix(versions, weights, count * i, version) for i, version in enumerate(versions)]
        made = self._run(ops, predicted[self.active], tables)
        weights = self.router(ops, made, self.router.correct)
        new = ops.add(made, predicted[self.active], -1.0)
        corrected = [ops.mix([new], weights, i, version) for i, version in enumerate(predicted)]
        first = corrected[self.active]
        if self.scale is not None:
            first = ops.mix([self.scale(ops, first)], ops.magnitude(first), 0)
        more = self.second(ops, first, second)
        return [corrected[0], *(ops.add(version, more) for version in corrected[1:])]

    def _run(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        block = self.block
        assert block.attention is not None
        assert block.attention_norm is not None
        assert block.attention_post is not None
        assert block.mlp is not None
        assert block.mlp_norm is not None
        assert block.mlp_post is not None
        h = block.attention_norm(ops, x)
        y = ops.add(x, block.attention_post(ops, block.attention(ops, h, tables)))
        y = ops.soft_cap(ops.add(y, self.laurel(ops, h)), 0.5**0.5, 0.0)
        return ops.add(y, block.mlp_post(ops, block.mlp(ops, block.mlp_norm(ops, y))))


@dataclass(frozen=True, slots=True, eq=False)
class AltUpBlocks:
    """The layers of Gemma 3n; see `engine.models.layers.parts.Stack`. `unit` is a norm of weight 1."""

    second: PerLayerEmbedding
    blocks: tuple[AltUpBlock, ...]
    spread: tuple[Linear, ...]
    gather: tuple[Linear, ...]
    unit: Norm

    @property
    def lookups(self) -> Sequence[Weight]:
        return (self.second.table,)

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        second, size = self.second(ops, x), ops.magnitude(x)
        versions = [x, *(self._as_large(ops, made(ops, x), size) for made in self.spread)]
        for block in self.blocks:
            versions = block(ops, versions, tables, second)
        total, size = versions[0], ops.magnitude(versions[0])
        for made, version in zip(self.gather, versions[1:], strict=True):
            total = ops.add(total, self._as_large(ops, made(ops, version), size))
        return ops.soft_cap(total, 1 / len(versions), 0.0)

    def _as_large(self, ops: Ops, x: Array, size: Array) -> Array:
        """x, each row scaled to a root mean square of `size` (T, 1)."""
        return ops.mix([self.unit(ops, x)], size, 0)


# -- building


def altup_blocks(
    source: WeightSource, config: ModelConfig, names: TensorNames, altup: AltUp, blocks: Sequence[Block]
) -> AltUpBlocks:
    """The blocks, and the matrices between the embedding and the versions of a row."""
    assert names.altup is not None
    assert config.per_layer is not None
    made = tuple(_block(source, config, names, altup, layer, block) for layer, block in enumerate(blocks))
    spread, gather = (
        tuple(_between(source, name, i, altup.inputs - 1, config.width) for i in range(altup.inputs - 1))
        for name in (names.altup_spread, names.altup_gather)
    )
    second = per_layer_embedding(source, config, names, config.per_layer)
    return AltUpBlocks(second, made, spread, gather, Norm(np.ones(config.width, np.float32), TINY))


def _between(source: WeightSource, name: str, number: int, count: int, width: int) -> Linear:
    """One of `count` matrices (E, E), which are stacked in GGUF files."""
    if "{}" in name:
        return linear(source, name.format(number), width, width, False)
    return Linear(source.matrix(name + ".weight", width, width, View(number, count)))


def _block(
    source: WeightSource, config: ModelConfig, names: TensorNames, altup: AltUp, layer: int, block: Block
) -> AltUpBlock:
    at, own, width, count = names.layer.format(layer), names.altup, config.width, altup.inputs
    assert own is not None

    def normed(name: str) -> Norm:
        return norm(source, at + name, width, config.norm_eps, layer_norm=False, bias=False)

    predict = linear(source, at + own.predict, count * count, count, False)
    correct = linear(source, at + own.correct, count, count, False)
    router = Router(
        normed(own.router_norm),
        linear(source, at + own.router, count, width, False),
        width,
        predict,
        Linear(correct.weight, np.ones(count, np.float32), correct.adapters),
    )
    scale = Norm(source.vector(at + own.scale, width), TINY) if altup.scaled else None
    laurel = Laurel(
        linear(source, at + own.left, altup.rank, width, False),
        linear(source, at + own.right, width, altup.rank, False),
        normed(own.laurel_norm),
    )
    assert block.mlp is not None
    block = replace(block, mlp=_mlp(block.mlp, altup.deviations[layer]))
    second = per_layer_gate(source, config, names, layer)
    return AltUpBlock(altup.active, router, block, laurel, scale, second)


def _mlp(plain: FeedForward, deviations: float | None) -> FeedForward:
    if deviations is None:
        return plain
    assert isinstance(plain, GatedMlp)
    inner = plain.width
    return SparseMlp(plain, np.ones(inner, np.float32), np.full(inner, -deviations, np.float32))
