"""Pairs of layers with experts that have a way of their own past the second one (LongCat-Flash, arXiv
2509.01322), and experts of which some give back their input.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import Builder
from engine.models.layers.mixture import Mixture, idle_scales, mixture
from engine.models.layers.parts import Block, RopeTables
from engine.models.layers.residual.ngrams import NGramMean, ngram_mean
from engine.tensors import Floats


@dataclass(frozen=True, slots=True, eq=False)
class WithIdentities:
    """The `mixture`, whose idle experts make nothing, plus its input times their weights: those of all
    experts times the `scales` (X,).
    """

    mixture: Mixture
    scales: Floats

    def __call__(self, ops: Ops, x: Array) -> Array:
        made = self.mixture
        logits = made.router(ops, x)
        routes = ops.route(logits, made.routing, made.correction, self.scales)
        return made.finish(ops, x, logits, ops.gather(ops.spread(x, routes), routes))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two layers; what the `experts` make of the input of the first one's feed-forward part is added to the
    result of the second.
    """

    first: Block
    second: Block
    experts: Mixture | WithIdentities

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        first = self.first
        assert first.attention is not None
        assert first.attention_norm is not None
        assert first.mlp is not None
        assert first.mlp_norm is not None
        x = first.attention(ops, first.attention_norm(ops, x), tables, residual=x)
        h = first.mlp_norm(ops, x)
        made = self.experts(ops, h)
        return ops.add(self.second(ops, first.mlp(ops, h, residual=x), tables), made)


@dataclass(frozen=True, slots=True)
class Pairs:
    """All layers, and `ngrams` before the first; see `engine.models.layers.whole.Stack`."""

    pairs: tuple[Pair, ...]
    ngrams: NGramMean | None = None

    @property
    def lookups(self) -> Sequence[Weight]:
        """The tables of n-grams."""
        return self.ngrams.tables if self.ngrams else ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        x = self.ngrams(ops, x) if self.ngrams else x
        for pair in self.pairs:
            x = pair(ops, x, tables)
        return x


def pairs(builder: Builder) -> Generator[int, None, Pairs]:
    """The layers of a model whose even ones have experts; yields the number of finished layers."""
    source, config, made = builder.source, builder.config, list[Pair]()
    experts = config.experts
    assert experts is not None
    ngrams = ngram_mean(source, config, builder.names)
    for layer in range(0, config.layers, 2):
        names = [builder.names.of(layer), builder.names.of(layer + 1)]
        first, second = (Builder(source, config, own).block(layer + i) for i, own in enumerate(names))
        routed = mixture(source, config, names[0], experts, names[0].layer)
        whole = WithIdentities(routed, idle_scales(experts, 0.0, 1.0)) if experts.idle else routed
        made.append(Pair(first, second, whole))
        yield layer + 2
    return Pairs(tuple(made), ngrams)
