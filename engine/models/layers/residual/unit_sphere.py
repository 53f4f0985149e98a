"""Layers whose hidden states have length 1 (nGPT, arXiv 2410.01131), of which a stretch runs several times
(Dory): a half of a layer moves its input h by h + r (u - h) towards its normed result u, at a learned rate r
for each number.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.hyper import Loops, Sphere
from engine.models.layers.cycles import as_they_run
from engine.models.layers.parts import Block, GatedMlp, Norm, Normed, RopeTables, unit_norm
from engine.models.layers.residual.residual_gates import product
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class Factored:
    """What `inner` makes of x (T, E), times `factors`."""

    inner: Normed
    factors: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.factors(ops, self.inner(ops, x))


@dataclass(frozen=True, slots=True)
class SphereBlocks:
    """`before`, `runs` of the same layers, and `after`; each run begins with the sum of the normed state and
    the normed result of `before`. See `engine.models.layers.whole.Stack`.
    """

    before: tuple[Block, ...]
    runs: tuple[tuple[Block, ...], ...]
    after: tuple[Block, ...]
    norm: Norm
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        first = state = self.norm(ops, _run(ops, x, tables, self.before))
        for number, blocks in enumerate(self.runs):
            state = self.norm(ops, state) if number else first
            state = _run(ops, ops.add(state, first), tables, blocks)
        return _run(ops, state, tables, self.after)


def _run(ops: Ops, x: Array, tables: RopeTables, blocks: tuple[Block, ...]) -> Array:
    for block in blocks:
        x = block(ops, x, tables)
    return x


# -- building


def sphere_blocks(builder: Builder) -> Generator[int, None, SphereBlocks]:
    """The layers of one part each of a model with a `Sphere` and `Loops`; yields the number of finished
    layers.
    """
    config, loops, blocks = builder.config, builder.config.cycles, list[Block]()
    assert isinstance(loops, Loops)
    for layer in range(config.layers):
        own = Builder(builder.source, config, builder.names.of(layer))
        block = own.block(layer)
        blocks.append(_feed_forward(own, layer, block) if block.mlp else _attention(own, layer, block))
        yield layer + 1
    made, size = as_they_run(loops, blocks), len(blocks) - loops.before - loops.after
    end = len(made) - loops.after
    runs = tuple(made[at : at + size] for at in range(loops.before, end, size)) if size else ()
    return SphereBlocks(made[: loops.before], runs, made[end:], unit_norm(config.width, config.norm_eps))


def _attention(builder: Builder, layer: int, block: Block) -> Block:
    source, config, names, attention = builder.source, builder.config, builder.names.sphere, block.attention
    assert isinstance(attention, Attention)
    assert attention.gate is not None
    at, sphere = builder.names.at(layer), _sphere(config)
    queries = config.heads * config.head_dim
    query, gate = (
        product(np.square(source.vector(at + name, queries) * np.float32(scale / sphere.unit)))
        for name, scale in ((names.query, config.head_dim**0.5), (names.gate, config.width**0.25))
    )
    attention = replace(
        attention, query_factors=query, gate=Factored(attention.gate, gate),
        query_norm=unit_norm(config.head_dim, config.norm_eps, config.heads),
        key_norm=unit_norm(config.head_dim, config.norm_eps, config.kv_heads),
        gated_norm=unit_norm(queries, config.norm_eps),
    )  # fmt: skip
    keep, post = _rate(config, source.vector(at + names.attention_rate, config.width))
    return replace(block, attention=attention, attention_post=post, keeps=(keep, None), norms_both=True)


def _feed_forward(builder: Builder, layer: int, block: Block) -> Block:
    source, config, names, mlp = builder.source, builder.config, builder.names.sphere, block.mlp
    assert isinstance(mlp, GatedMlp)
    assert mlp.gate is not None
    at, inner, scale = builder.names.at(layer), config.ffn_width, np.float32(config.width**0.5)
    gate, up = (product(source.vector(at + name, inner) * scale) for name in (names.mlp_gate, names.mlp_up))
    mlp = replace(
        mlp, gate=Factored(mlp.gate, gate), up=Factored(mlp.up, up), norm=unit_norm(inner, config.norm_eps)
    )
    keep, post = _rate(config, source.vector(at + names.mlp_rate, config.width))
    return replace(block, mlp=mlp, mlp_post=post, keeps=(None, keep), norms_both=True)


def _rate(config: ModelConfig, stored: Floats) -> tuple[Norm, Norm]:
    """What multiplies a half's normed input, and the norm of its result with the rate in its weight."""
    sphere = _sphere(config)
    rate = np.abs(stored * np.float32(sphere.rate / sphere.unit))
    unit = unit_norm(config.width, config.norm_eps)
    return product(1 - rate), replace(unit, weight=unit.weight * rate)


def _sphere(config: ModelConfig) -> Sphere:
    assert config.sphere is not None
    return config.sphere
