"""Convolutions over time and linear attention: their nodes, and how they are recorded."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Recording, Value
from engine.backends.states import ConvolutionShape, DeltaWeights, LinearAttentionShape, MeanShape, PoolShape
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Convolution(Value):
    """y = the causal convolution of x by `weight` (K, C), over part number `part` of the states."""

    x: Buffer
    part: int
    weight: Floats
    bias: Floats | None

    @property
    def shape(self) -> ConvolutionShape:
        """The shape of its state."""
        return ConvolutionShape(self.weight.shape[1], self.weight.shape[0])


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearAttention(Value):
    """y = linear attention of q, k and v, over part number `part` of the states."""

    INPUTS = ("q", "k", "v", "decay", "beta")
    q: Buffer
    k: Buffer
    v: Buffer
    decay: Buffer
    beta: Buffer | None
    part: int
    rate: Floats
    shift: Floats
    shape: LinearAttentionShape
    skip: Floats | None


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneralisedDelta(Value):
    """y = what `DeltaWeights` says of these rows, over part number `part` of the states."""

    INPUTS = ("r", "k", "v", "decay", "rate")
    r: Buffer
    k: Buffer
    v: Buffer
    decay: Buffer
    rate: Buffer
    part: int
    weights: DeltaWeights


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool(Value):
    """y = the keys of blocks of `Ops.pool`, over part number `part` of the states."""

    INPUTS = ()
    values: tuple[Buffer, ...]
    gates: tuple[Buffer, ...]
    bias: Floats
    part: int
    shape: PoolShape

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (*self.values, *self.gates)


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedMean(Value):
    """y = the weighted mean of v by k, over part number `part` of the states."""

    INPUTS = ("k", "v")
    k: Buffer
    v: Buffer
    part: int
    decay: Floats
    first: Floats

    @property
    def shape(self) -> MeanShape:
        """The shape of its state."""
        return MeanShape(self.decay.size)


class RecurrentOps(Recording):
    """The operations of `Ops` that have a state."""

    def convolve(self, part: int, x: Buffer, weight: Floats, bias: Floats | None = None) -> Buffer:
        assert weight.ndim == 2
        assert weight.shape[1] == x.width
        assert bias is None or bias.size == x.width
        assert not x.on_logit_rows
        x = self._at(x, self._device_of_part(part))
        return self._add(Convolution(x=x, part=part, weight=weight, bias=bias, y=x.like()))

    def linear_attention(
        self,
        part: int,
        inputs: tuple[Buffer, Buffer, Buffer],
        decay: Buffer,
        beta: Buffer | None,
        rate: Floats,
        shift: Floats,
        shape: LinearAttentionShape,
        skip: Floats | None = None,
    ) -> Buffer:
        q, k, v = inputs
        heads = shape.value_heads
        assert q.width == k.width == shape.key_heads * shape.key_dim
        assert v.width == heads * shape.value_dim
        assert decay.width == shift.size == shape.steps
        assert rate.shape == shape.rates
        assert beta is None or beta.width == heads
        assert heads % shape.key_heads == 0
        assert skip is None or (skip.size == shape.skips and not shape.unit)
        device = self._device_of_part(part)
        q, k, v, decay = (self._at(each, device) for each in (q, k, v, decay))
        return self._add(
            LinearAttention(
                q=q, k=k, v=v, decay=decay, beta=None if beta is None else self._at(beta, device),
                part=part, rate=rate, shift=shift, shape=shape, skip=skip, y=v.like(),
            )
        )  # fmt: skip

    def generalised_delta(
        self, part: int, inputs: tuple[Buffer, Buffer, Buffer], decay: Buffer, rate: Buffer,
        weights: DeltaWeights,
    ) -> Buffer:  # fmt: skip
        shape, device = weights.shape, self._device_of_part(part)
        heads, dim = shape.value_heads, shape.key_dim
        assert all(x.width == heads * dim for x in (inputs[0], decay, rate))
        assert inputs[1].width == shape.key_heads * dim
        assert inputs[2].width == shape.key_heads * shape.value_dim
        stored = weights.removal, weights.mixing, weights.bonus
        assert all(x is None or x.shape == (heads, dim) for x in stored)
        assert (weights.removal is None) == (weights.mixing is None)
        assert heads % shape.key_heads == 0
        r, k, v, decay, rate = (self._at(x, device) for x in (*inputs, decay, rate))
        y = v.like(2 * heads * shape.value_dim)
        return self._add(
            GeneralisedDelta(r=r, k=k, v=v, decay=decay, rate=rate, part=part, weights=weights, y=y)
        )

    def pool(
        self, part: int, values: Sequence[Buffer], gates: Sequence[Buffer], bias: Floats, shape: PoolShape
    ) -> Buffer:
        assert len(values) == len(gates) == shape.series
        assert all(x.width == shape.dim and not x.on_logit_rows for x in (*values, *gates))
        assert bias.shape == (shape.series, shape.block, shape.dim)
        device = self._device_of_part(part)
        given, weighed = (tuple(self._at(x, device) for x in each) for each in (values, gates))
        y = given[0].like()
        return self._add(Pool(values=given, gates=weighed, bias=bias, part=part, shape=shape, y=y))

    def weighted_mean(self, part: int, k: Buffer, v: Buffer, decay: Floats, first: Floats) -> Buffer:
        assert k.width == v.width == decay.size == first.size
        k, v = (self._at(x, self._device_of_part(part)) for x in (k, v))
        return self._add(WeightedMean(k=k, v=v, part=part, decay=decay, first=first, y=v.like()))

    def _device_of_part(self, part: int) -> int:
        return self._part_devices[part] if self._part_devices else 0
