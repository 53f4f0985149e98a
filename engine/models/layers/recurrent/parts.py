"""What recurrent parts are made of, and how it is built from a file's tensors.

Shape letters as in `engine.models.layers.parts`; C channels of a convolution, K taps.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from engine.backends.base import Array, Ops
from engine.backends.states import LinearAttentionShape
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WHOLE, View, WeightSource, linear, linear_parts
from engine.models.layers.parts import Linear, Norm, Order
from engine.models.names import RecurrentNames
from engine.tensors import Floats

L2_EPS = 1e-6
"""Added to the sum of squares of a query or key before it is normalised (fla's l2norm)."""


def unit_norms(heads: int, dim: int, key_factor: float = 1.0) -> tuple[Norm, Norm]:
    """What makes each head's query and key as long as 1; queries are then scaled by 1 / sqrt(dim), and keys
    by `key_factor`.
    """
    # x / sqrt(sum + eps) is the RMS norm with eps / Dk, times 1 / sqrt(Dk); queries are scaled by that again.
    share = np.float32(dim**-0.5)
    factors = share * share, share * np.float32(key_factor)
    query, key = (Norm(np.full(dim, factor, np.float32), L2_EPS / dim, heads=heads) for factor in factors)
    return query, key


@dataclass(frozen=True, slots=True)
class Convolution:
    """Part number `part` of the states, `weight` (K, C) and `bias` (C,)."""

    part: int
    weight: Floats
    bias: Floats | None

    def __call__(self, ops: Ops, x: Array) -> Array:
        return ops.convolve(self.part, x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """`Ops.linear_attention` with its weights: part number `part` of the states."""

    part: int
    shape: LinearAttentionShape
    rate: Floats
    shift: Floats
    skip: Floats | None = None

    def __call__(
        self, ops: Ops, inputs: tuple[Array, Array, Array], decay: Array, beta: Array | None
    ) -> Array:
        return ops.linear_attention(
            self.part, inputs, decay, beta, self.rate, self.shift, self.shape, self.skip
        )


def split(ops: Ops, x: Array, widths: Sequence[int]) -> list[Array]:
    starts = np.cumsum([0, *widths[:-1]]).tolist()
    return [ops.columns(x, start, width) for start, width in zip(starts, widths, strict=True)]


@dataclass(frozen=True, slots=True)
class RecurrentSource:
    """The tensors of one layer, whose names begin with `at`."""

    source: WeightSource
    at: str
    names: RecurrentNames

    def linear(
        self, name: str, rows: int, columns: int, bias: bool | None = None, order: Order | None = None
    ) -> Linear:
        """A matrix, and its bias if the file has one; in the file its rows may have another order."""
        view = WHOLE if order is None else View(order=order, stored_rows=rows)
        return linear(self.source, self.at + name, rows, columns, bias, view)

    def parts(
        self, name: str, orders: tuple[Order, Order], columns: int, bias: bool | None = False
    ) -> tuple[Linear, Linear]:
        """Two linears, each with these rows of one matrix; `bias` as in `ModelConfig`."""
        first, second = linear_parts(self.source, self.at + name, orders, columns, bias)
        return first, second

    def slices(self, fused: str, names: Sequence[str], rows: Sequence[int], columns: int) -> list[Linear]:
        """A linear for each of `names`, with this many rows of the matrix `fused` in turn."""
        order, made = np.arange(sum(rows)), list[Linear]()
        for name, part in zip(names, np.split(order, np.cumsum(rows)[:-1]), strict=True):
            view = View(order=part, stored_rows=len(order))
            made.append(linear(self.source, self.at + fused, len(part), columns, False, view))
            self.source.linears[self.at + name] = self.source.linears.pop(self.at + fused)
        return made

    def convolution(self, part: int, channels: int, taps: int, name: str = "") -> Convolution:
        """The taps (K, C), and the bias if the file has one."""
        name = self.at + (name or self.names.convolution)
        dims = self.names.tap_dims or (2 if self.names.gguf else 3)
        shape = {2: (channels, taps), 3: (channels, 1, taps), 4: (1, channels, 1, taps)}[dims]
        stored = self.source.vector(name + ".weight", *shape).reshape(channels, taps)
        bias = self.source.vector(name + ".bias", channels) if self.source.has(name + ".bias") else None
        return Convolution(part, np.ascontiguousarray(stored.T), bias)

    def convolutions(self, part: int, widths: Sequence[int], taps: int) -> list[Convolution]:
        """Those of the states from number `part` on, of this many channels each."""
        names, size = self.names.convolutions, sum(widths)
        stored = list(widths)
        if self.names.convolutions_even or len(names) < len(widths):
            step = -(-size // len(names))
            stored = [max(0, min(step, size - i * step)) for i in range(len(names))]
        made = [self.convolution(0, rows, taps, name) for rows, name in zip(stored, names, strict=True)]
        weight, bias = np.concatenate([each.weight for each in made], axis=1), None
        if any(each.bias is not None for each in made):
            absent = (np.zeros(rows, np.float32) for rows in stored)
            pairs = zip((each.bias for each in made), absent, strict=True)
            bias = np.concatenate([none if held is None else held for held, none in pairs])
        ends = itertools.pairwise(np.cumsum([0, *widths]).tolist())
        own = [slice(start, end) for start, end in ends]
        return [
            Convolution(part + i, np.ascontiguousarray(weight[:, of]), None if bias is None else bias[of])
            for i, of in enumerate(own)
        ]

    def recurrence(self, part: int, shape: LinearAttentionShape, stored: tuple[int, ...]) -> Recurrence:
        """The weights of `Ops.linear_attention`; rates and skips have the `stored` shape in the file,
        but those of `SelectiveScan` (C, N) and (C,).
        """
        names, by_value = self.names, shape.decays == "value"
        rate = self.source.vector(self.at + names.rate, *stored)
        rate = np.ascontiguousarray(rate.T) if by_value else rate.reshape(shape.rates)
        skip = stored[:1] if by_value else stored
        return Recurrence(
            part,
            shape,
            (-rate if names.rates_positive else rate) if names.gguf else -np.exp(rate),
            self.source.vector(self.at + names.shift, shape.steps),
            self.source.vector(self.at + names.skip, *skip).reshape(shape.skips) if names.skip else None,
        )

    def norm(self, parts: int, eps: float, *stored: int) -> Norm:
        """An RMS norm of `parts` parts of a row, whose weight has the `stored` shape in the file."""
        weight = self.source.vector(self.at + self.names.norm + ".weight", *stored)
        return Norm(weight.reshape(-1), eps, heads=parts)
