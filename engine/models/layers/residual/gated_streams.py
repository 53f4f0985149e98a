"""What joins the halves of a layer to several streams of rows in Qwen 4.

Shape letters as in `engine.models.layers.parts`; N streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreamNames, GatedStreams
from engine.models.layers.parts import Linear, Norm, scaled


@dataclass(frozen=True, slots=True)
class GatedMean:
    """The mean of the N normed streams, each number times a gate between 0 and 1, which two matrices make of
    all of them.

    `inject` makes a factor between -1 and 1 for each stream: what is made of the mean is added to the stream
    times that and 1.
    """

    kind: GatedStreams
    norms: tuple[Norm, ...]
    down: Linear
    up: Linear
    inject: Linear | None

    def __call__(self, ops: Ops, streams: Sequence[Array]) -> tuple[Array, Array]:
        """The mean (T, E), and the normed streams (T, N E)."""
        count = len(streams)
        parts = [norm(ops, stream) for norm, stream in zip(self.norms, streams, strict=True)]
        normed = reduce(lambda x, y: ops.join(x, y, 1), parts)
        inner = ops.activate(scaled(ops, self.down(ops, normed), 1 / count), "silu")
        gated, width = ops.gated(self.up(ops, inner), normed, "sigmoid"), self.norms[0].weight.size
        mean = reduce(ops.add, (ops.columns(gated, width * i, width) for i in range(count)))
        return scaled(ops, mean, 1 / count), normed

    def written(self, ops: Ops, streams: Sequence[Array], part: Callable[[Array], Array]) -> list[Array]:
        """The streams, to each of which the result of `part` of their mean is added, times its factor."""
        assert self.inject is not None
        read, normed = self(ops, streams)
        # Twice the sigmoid of z is 1 + tanh(z / 2).
        factors = ops.soft_cap(self.inject(ops, normed), 0.5 / len(streams), 1.0)
        made = part(read)
        return [ops.mix([made], factors, i, ops.add(stream, made)) for i, stream in enumerate(streams)]


def gated_mean(
    source: WeightSource, config: ModelConfig, kind: GatedStreams, at: str, named: GatedStreamNames, *,
    injects: bool,
) -> GatedMean:  # fmt: skip
    """The mean whose tensors' names begin with `at`."""
    width, count = config.width, kind.streams
    weight = source.vector(f"{at}{named.norm}.weight", count * width) + config.norm_offset
    return GatedMean(
        kind, tuple(Norm(each, config.norm_eps) for each in weight.reshape(count, width)),
        linear(source, at + named.down, kind.rank, count * width, False),
        linear(source, at + named.up, count * width, kind.rank, False),
        linear(source, at + named.inject, count, count * width, False) if injects else None,
    )  # fmt: skip
