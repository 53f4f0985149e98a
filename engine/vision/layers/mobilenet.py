"""The blocks of MobileNetV5 (Gemma 3n's model card), which are those of MobileNetV4 (arXiv 2404.10518,
section 4) with RMS norms over channels: convolutions over all channels, inverted residuals and multi-query
attention.

A grid is (H, W, C). The first block of a stage halves it, with zeros beyond the edges, more of them at the
right and at the bottom. Convolutions of each channel alone are done on the host: they are few operations.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Protocol

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.layers.parts import Linear, Norm
from engine.tensors import Floats
from engine.vision.layers.convolution import around, beyond, convolution, of_each_channel
from engine.vision.layers.host_attention import attend
from engine.vision.passes import OfPasses, Pieces, Prepared

EPS = 1e-6
_GELU = "gelu_tanh"
_ROWS, _BAND = 256, 4096
"""Rows of a pass, of which there are many, and places whose squares are gathered at once."""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Of a block whose tensors begin with `at`: channels before, inside and after it; `start` and `middle`
    are the sides of the convolutions of each channel, or 0. `step` is 2 if it halves the grid. Of attention,
    `dim` is that of a head, and `middle` the side of what halves keys and values.
    """

    at: str
    inputs: int
    hidden: int
    outputs: int
    start: int = 0
    middle: int = 0
    step: int = 1
    dim: int = 0
    scaled: bool = False

    @property
    def skips(self) -> bool:
        """Whether what it makes is added to what it is given."""
        return self.step == 1 and self.inputs == self.outputs


class Block(Prepared, Protocol):
    """A block with its weights, as it runs. Used by one thread."""

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """What it makes of a grid; yields between short steps."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ChannelParts:
    """A convolution of each channel: `kernels` (size, size, C), and the norm after it."""

    kernels: Floats
    after: Norm


@dataclass(frozen=True, slots=True, eq=False)
class ResidualParts:
    """Of an edge residual block or an inverted residual one."""

    shape: BlockShape
    expand: Linear
    expanded: Norm
    project: Linear
    projected: Norm
    start: ChannelParts | None = None
    middle: ChannelParts | None = None

    def run(self, backend: Backend) -> Block:
        """What runs it."""
        return _Edge(self, backend) if self.shape.at.endswith(EDGE) else _Inverted(self, backend)


@dataclass(frozen=True, slots=True, eq=False)
class AttentionParts:
    """Of attention whose heads share keys and values; without `halves`, these are as many as queries."""

    shape: BlockShape
    before: Norm
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    halves: tuple[ChannelParts, ChannelParts] | None = None

    def run(self, backend: Backend) -> Block:
        """What runs it."""
        return _Attention(self, backend)


EDGE = "*"
"""Ends `BlockShape.at` of edge residual blocks, and is no part of names."""
BlockParts = ResidualParts | AttentionParts


def build_block(source: WeightSource, shape: BlockShape) -> BlockParts:
    """The parts of a block. Raises `BadCheckpoint`."""
    at, inner, outputs = shape.at, shape.hidden, shape.outputs
    scale = source.vector(at + "layer_scale.gamma", outputs) if shape.scaled else None
    if shape.dim:
        return _attention(source, shape, scale)
    if at.endswith(EDGE):
        at = at.removesuffix(EDGE)
        return ResidualParts(
            shape, convolution(source, at + "conv_exp", inner, shape.inputs, 3),
            _norm(source, at + "bn1", inner), convolution(source, at + "conv_pwl", outputs, inner, 1),
            _norm(source, at + "bn2", outputs),
        )  # fmt: skip
    after = _norm(source, at + "pw_proj.bn", outputs)
    if scale is not None:
        after = replace(after, weight=after.weight * scale)
    start, middle = (
        _channels(source, f"{at}{name}.conv", f"{at}{name}.bn", channels, size) if size else None
        for name, channels, size in (
            ("dw_start", shape.inputs, shape.start), ("dw_mid", inner, shape.middle),
        )
    )  # fmt: skip
    return ResidualParts(
        shape, convolution(source, at + "pw_exp.conv", inner, shape.inputs, 1),
        _norm(source, at + "pw_exp.bn", inner),
        convolution(source, at + "pw_proj.conv", outputs, inner, 1), after, start, middle,
    )  # fmt: skip


def _attention(source: WeightSource, shape: BlockShape, scale: Floats | None) -> AttentionParts:
    at, width, inner = shape.at, shape.inputs, shape.hidden
    halves = None
    if shape.middle:
        key, value = (
            _channels(source, f"{at}attn.{name}.down_conv", f"{at}attn.{name}.norm", width, shape.middle)
            for name in ("key", "value")
        )
        halves = key, value
    kernel = View(kernel=(inner, 1, 1), factors=scale)
    return AttentionParts(
        shape, _norm(source, at + "norm", width),
        convolution(source, at + "attn.query.proj", inner, width, 1),
        convolution(source, at + "attn.key.proj", shape.dim, width, 1),
        convolution(source, at + "attn.value.proj", shape.dim, width, 1),
        linear(source, at + "attn.output.proj", shape.outputs, inner, False, kernel), halves,
    )  # fmt: skip


def _norm(source: WeightSource, name: str, size: int) -> Norm:
    return norm(source, name, size, EPS, layer_norm=False, bias=False)


def _channels(source: WeightSource, name: str, after: str, channels: int, size: int) -> ChannelParts:
    kernels = source.vector(name + ".weight", channels, 1, size, size)
    return ChannelParts(
        np.ascontiguousarray(kernels.reshape(channels, size, size).transpose(1, 2, 0)),
        _norm(source, after, channels),
    )


def rows(run: Pieces, *grids: Floats) -> Generator[Waiting, None, Floats]:
    """What a pass over places makes of grids of the same shape."""
    found = yield from run.rows(*(grid.reshape(-1, grid.shape[2]) for grid in grids))
    return found.reshape(*grids[0].shape[:2], -1)


def convolved(
    run: Pieces, grid: Floats, size: int, step: int, skip: bool, *, centred: bool = False
) -> Generator[Waiting, None, Floats]:
    """What a pass over squares of places makes of a square grid, band by band; with `skip` it is given the
    grid, too. Beyond the edges are zeros, as `beyond` has them.
    """
    before, after = beyond(len(grid), size, step, centred=centred)
    padded = np.pad(grid, ((before, after), (before, after), (0, 0)))
    high, wide = (-(-side // step) for side in grid.shape[:2])
    band, found = max(1, _BAND // wide), list[Floats]()
    for top in range(0, high, band):
        count = min(band, high - top)
        squares = around(padded[top * step : (top + count - 1) * step + size], size, step)
        given = [squares, grid[top : top + count]] if skip else [squares]
        found.append((yield from rows(run, *given)))
    return np.concatenate(found)


class _Edge(OfPasses):
    """An edge residual block: a convolution of 3 * 3 places, then one of a place."""

    def __init__(self, parts: ResidualParts, backend: Backend) -> None:
        shape = self._shape = parts.shape
        widths = (9 * shape.inputs, shape.inputs) if shape.skips else (9 * shape.inputs,)

        def forward(ops: Ops, x: Array, residual: Array | None = None) -> Array:
            return _projected(ops, parts, _expanded(ops, parts, x), residual)

        self._run = Pieces(backend, forward, widths, _ROWS)
        super().__init__(self._run)

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """As `Block.grid`."""
        return (yield from convolved(self._run, grid, 3, self._shape.step, self._shape.skips))


def _expanded(ops: Ops, parts: ResidualParts, x: Array) -> Array:
    if parts.start is not None:
        x = parts.start.after(ops, x)
    return ops.activate(parts.expanded(ops, parts.expand(ops, x)), _GELU)


def _projected(ops: Ops, parts: ResidualParts, x: Array, residual: Array | None) -> Array:
    x = parts.projected(ops, parts.project(ops, x))
    return x if residual is None else ops.add(residual, x)


class _Inverted(OfPasses):
    """An inverted residual block: more channels, a convolution of each of them, then fewer channels."""

    def __init__(self, parts: ResidualParts, backend: Backend) -> None:
        self._parts = parts
        shape, middle = parts.shape, parts.middle
        residual = (shape.inputs,) if shape.skips else ()
        self._runs: tuple[Pieces, ...]
        if middle is None:

            def whole(ops: Ops, x: Array, residual: Array | None = None) -> Array:
                return _projected(ops, parts, _expanded(ops, parts, x), residual)

            self._runs = (Pieces(backend, whole, (shape.inputs, *residual), _ROWS),)
        else:
            after = middle.after

            def first(ops: Ops, x: Array) -> Array:
                return _expanded(ops, parts, x)

            def second(ops: Ops, x: Array, residual: Array | None = None) -> Array:
                return _projected(ops, parts, ops.activate(after(ops, x), _GELU), residual)

            self._runs = (
                Pieces(backend, first, (shape.inputs,), _ROWS),
                Pieces(backend, second, (shape.hidden, *residual), _ROWS),
            )
        super().__init__(*self._runs)

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """As `Block.grid`."""
        parts, step = self._parts, self._parts.shape.step
        x, residual = grid, [grid] if parts.shape.skips else []
        if parts.start is not None:
            x = of_each_channel(x, parts.start.kernels, step if parts.middle is None else 1)
            yield Waiting()
        if parts.middle is None:
            return (yield from rows(self._runs[0], x, *residual))
        x = yield from rows(self._runs[0], x)
        x = of_each_channel(x, parts.middle.kernels, step)
        yield Waiting()
        return (yield from rows(self._runs[1], x, *residual))


class _Attention(OfPasses):
    """Multi-query attention (arXiv 1911.02150) of all places, to keys and values of a halved grid."""

    def __init__(self, parts: AttentionParts, backend: Backend) -> None:
        self._parts = parts
        width, inner, halves = parts.shape.inputs, parts.shape.hidden, parts.halves

        def first(ops: Ops, x: Array) -> Array:
            x = parts.before(ops, x)
            return ops.join(x, parts.query(ops, x), 1)

        def last(ops: Ops, x: Array, residual: Array) -> Array:
            return parts.output(ops, x, residual)

        def key_or_value(layer: Linear, after: Norm | None, ops: Ops, x: Array) -> Array:
            return layer(ops, after(ops, x) if after else x)

        norms = (None, None) if halves is None else (halves[0].after, halves[1].after)
        self._first = Pieces(backend, first, (width,), _ROWS)
        self._keys, self._values = (
            Pieces(backend, lambda ops, x, layer=layer, after=after: key_or_value(layer, after, ops, x),
                   (width,), _ROWS)
            for layer, after in zip((parts.key, parts.value), norms, strict=True)
        )  # fmt: skip
        self._last = Pieces(backend, last, (inner, width), _ROWS)
        super().__init__(self._first, self._keys, self._values, self._last)

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """As `Block.grid`."""
        shape, halves = self._parts.shape, self._parts.halves
        made = yield from rows(self._first, grid)
        x, queries = made[..., : shape.inputs], made[..., shape.inputs :]
        found = list[Floats]()
        for number, run in enumerate((self._keys, self._values)):
            own = np.ascontiguousarray(x) if halves is None else of_each_channel(x, halves[number].kernels, 2)
            found.append((yield from rows(run, own)).reshape(-1, shape.dim))
            yield Waiting()
        keys, values = found
        heads = queries.reshape(-1, shape.hidden // shape.dim, shape.dim)
        attended = np.empty_like(heads)
        for head in range(heads.shape[1]):
            attended[:, head] = attend(heads[:, head], keys, values, shape.dim**-0.5)
            yield Waiting()
        return (yield from rows(self._last, attended.reshape(*grid.shape[:2], -1), grid))
