"""Learned queries that attend to the patches of a crop (MiniCPM-V, arXiv 2408.01800, section 3.1; BLIP-2's
resampler, arXiv 2301.12597): a crop has as many tokens as there are queries, whatever its size.

K = key(x + place), V = value(x), with x = norm(key_value(patch)) and the sines and cosines of a patch's
column and row as its place; softmax(Q K^T / sqrt(D)) V of each head is projected, normed and projected again.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WHOLE, View, WeightSource, linear, norm
from engine.models.layers.parts import Linear, Norm
from engine.tensors import Floats
from engine.vision.layers.grid import frequencies
from engine.vision.layers.host_attention import attend
from engine.vision.layers.projector import ProjectorNames
from engine.vision.passes import OfPasses, Pass

HEAD_DIM = 128
_EPS = 1e-6
_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class ResamplerNames:
    """The names of its tensors, without ".weight" and ".bias"; `queries` is a whole name. If `fused` is not
    empty, it begins the names of one matrix for queries, keys and values, and of its bias. `last` is a whole
    name, of a matrix that is `transposed` or not.
    """

    queries: str
    key_value: str
    norms: tuple[str, str, str]
    output: str
    last: str
    transposed: bool = False
    separate: tuple[str, str, str] = ("", "", "")
    fused: str = ""


@dataclass(frozen=True, slots=True)
class Resampler:
    """Its weights: `queries` are (Q, N) float32."""

    queries: Floats
    key_value: Linear
    norms: tuple[Norm, Norm, Norm]
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    last: Linear


@dataclass(frozen=True, slots=True)
class ResamplerShape:
    """A `TokensShape`: patches (T, `inputs`) -> (`queries`, `outputs`)."""

    inputs: int
    outputs: int
    queries: int
    names: ResamplerNames

    def build(self, source: WeightSource, names: ProjectorNames) -> Resampler:
        """As `TokensShape.build`; the names are its own."""
        own, width = self.names, self.outputs
        query, key, value = _inputs(source, own, width)
        before, after, last = (
            norm(source, name, width, _EPS, layer_norm=True, bias=True) for name in own.norms
        )
        view = View(transposed=True) if own.transposed else WHOLE
        return Resampler(
            source.vector(own.queries, self.queries, width),
            linear(source, own.key_value, width, self.inputs, False), (before, after, last),
            query, key, value, linear(source, own.output, width, width, True),
            Linear(source.matrix(own.last, width, width, view)),
        )  # fmt: skip

    def tokens(self, backend: Backend, parts: Resampler, most: int) -> ResamplerPass:
        return ResamplerPass(backend, self, parts, most)


def _inputs(source: WeightSource, names: ResamplerNames, width: int) -> tuple[Linear, ...]:
    """What makes queries, keys and values."""
    if not names.fused:
        return tuple(linear(source, name, width, width, True) for name in names.separate)
    found, bias = list[Linear](), source.vector(names.fused + "bias", 3 * width)
    for number in range(3):
        rows = np.arange(number * width, (number + 1) * width)
        view = View(order=rows, stored_rows=3 * width)
        own = np.ascontiguousarray(bias[rows])
        found.append(Linear(source.matrix(names.fused + "weight", width, width, view), own))
    return tuple(found)


class ResamplerPass(OfPasses):
    """`Tokens` of a resampler. Attention itself is done on the host, since its queries are few and always the
    same.
    """

    def __init__(self, backend: Backend, shape: ResamplerShape, parts: Resampler, most: int) -> None:
        self._heads, self._width = shape.outputs // HEAD_DIM, shape.outputs
        self._patches = np.zeros((most, shape.inputs), np.float32)
        self._places = np.zeros((most, shape.outputs), np.float32)
        self._attended = np.zeros((shape.queries, shape.outputs), np.float32)
        self._queries: Floats | None = None
        before, of_queries, after = parts.norms

        def queries(ops: Ops) -> Array:
            return ops.last_rows(parts.query(ops, of_queries(ops, ops.given(parts.queries))))

        def keys_and_values(ops: Ops) -> Array:
            x = before(ops, parts.key_value(ops, ops.given(self._patches)))
            keys = parts.key(ops, ops.add(x, ops.given(self._places)))
            return ops.last_rows(ops.join(keys, parts.value(ops, x), 1))

        def last(ops: Ops) -> Array:
            x = after(ops, parts.output(ops, ops.given(self._attended)))
            return ops.last_rows(parts.last(ops, x))

        self._first = Pass(backend, queries, shape.queries)
        self._second = Pass(backend, keys_and_values, most)
        self._third = Pass(backend, last, shape.queries)
        super().__init__(self._first, self._second, self._third)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        if self._queries is None:
            self._queries = self._split(self._first.run(len(self._attended)))
        count = rows * columns
        self._patches[:count] = states
        self._places[:count] = places(rows, columns, self._width)
        made = yield from self._second.steps(count)
        keys, values = (self._split(part) for part in np.split(made, 2, axis=1))
        for head, (q, k, v) in enumerate(zip(self._queries, keys, values, strict=True)):
            mean = attend(q, k, v, HEAD_DIM**-0.5)
            self._attended[:, head * HEAD_DIM : (head + 1) * HEAD_DIM] = mean
            yield Waiting()
        return self._third.run(len(self._attended)).copy()

    def _split(self, states: Floats) -> Floats:
        """(T, N) -> (heads, T, D)."""
        heads = states.reshape(len(states), self._heads, HEAD_DIM)
        return np.ascontiguousarray(heads.transpose(1, 0, 2))


def places(rows: int, columns: int, width: int) -> Floats:
    """Of each patch sines and cosines of its column, then those of its row (arXiv 1706.03762, section 3.5):
    (rows * columns, `width`) float32.
    """
    pairs = frequencies(width // 4, width // 2, _BASE)
    down, across = (
        np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        for angles in (np.arange(count, dtype=np.float32)[:, None] * pairs for count in (rows, columns))
    )
    found = np.empty((rows, columns, width), np.float32)
    found[:, :, : width // 2], found[:, :, width // 2 :] = across[None], down[:, None]
    return found.reshape(rows * columns, width)
