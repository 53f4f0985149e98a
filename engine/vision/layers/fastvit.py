"""The blocks of FastViT (arXiv 2303.14189) as MobileCLIP 2 and FastVLM have them (arXiv 2412.13303), their
branches joined to one convolution, as they are for inference.

A grid is (H, W, C). With "own" for convolutions of each channel, which are done on the host: blocks that
halve it are gelu(project(gelu(own(x)))); a mixer is y = own(x), then y + mlp(y); attention has heads of 32
numbers, y = x + attention(norm(x)), then y + mlp(y). mlp(y) is down(gelu(up(own(y)))), times a factor for
each channel.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, AttentionShape, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention, FusedQkv
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.layers.parts import Linear, Norm
from engine.tensors import Floats
from engine.vision.layers.convolution import convolution, of_each_channel
from engine.vision.layers.mobilenet import Block, rows
from engine.vision.layers.tower import NO_ROPE
from engine.vision.passes import OfPasses, Pass, Pieces

HEAD_DIM = 32
_EPS = 1e-5
_ROWS = 256
"""Rows of a pass, of which there are many."""
_MIXER, _LARGE = 3, 7
"""Sides of the convolutions of each channel."""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Of a block whose tensors begin with `at`: its channels, and those inside its second half."""

    at: str
    width: int
    hidden: int
    attends: bool = False


@dataclass(frozen=True, slots=True)
class StageShape:
    """Blocks after a half step from `inputs` channels, which the first stage lacks. If `placed`, positions
    are added before them, by a convolution of each channel.
    """

    at: str
    inputs: int
    blocks: tuple[BlockShape, ...]
    placed: bool

    @property
    def width(self) -> int:
        return self.blocks[0].width


@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """A convolution of each channel: `kernels` (size, size, C) and `bias` (C,). Of fewer channels before it,
    each becomes as many.
    """

    kernels: Floats
    bias: Floats
    step: int = 1

    def of(self, grid: Floats) -> Floats:
        """(H, W, C') -> (H / step, W / step, C)."""
        times = self.kernels.shape[2] // grid.shape[2]
        grid = grid if times == 1 else grid.repeat(times, axis=2)
        found = of_each_channel(grid, self.kernels, self.step, centred=True)
        found += self.bias
        return found


def own_convolution(source: WeightSource, name: str, channels: int, size: int, step: int = 1) -> Own:
    """`name`.weight (C, 1, size, size) and `name`.bias (C,). Raises `BadCheckpoint`."""
    return Own(
        _own_kernels(source, name + ".weight", channels, size), source.vector(name + ".bias", channels), step
    )


def _own_kernels(source: WeightSource, name: str, channels: int, size: int) -> Floats:
    kernels = source.vector(name, channels, 1, size, size).reshape(channels, size, size)
    return np.ascontiguousarray(kernels.transpose(1, 2, 0))


@dataclass(frozen=True, slots=True, eq=False)
class HalfParts:
    """What halves a grid."""

    own: Own
    project: Linear

    def run(self, backend: Backend, most: int) -> Block:
        """What runs it; `most` places are in the grid that it makes."""
        return _Half(self, backend)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceParts:
    """What adds positions."""

    own: Own

    def run(self, backend: Backend, most: int) -> Block:
        """As `HalfParts.run`."""
        return _Place(self)


@dataclass(frozen=True, slots=True, eq=False)
class BlockParts:
    """A mixer, or attention after a norm; the other one is None."""

    mixer: Own | None
    before: Norm | None
    attention: Attention | None
    own: Own
    up: Linear
    down: Linear

    def run(self, backend: Backend, most: int) -> Block:
        """As `HalfParts.run`."""
        return _Block(self, backend, most)


Parts = HalfParts | PlaceParts | BlockParts


def half(source: WeightSource, first: str, second: str, outputs: int, size: int) -> HalfParts:
    """What halves a grid, with tensors of these names. Raises `BadCheckpoint`."""
    own = own_convolution(source, first + ".reparam_conv", outputs, size, 2)
    return HalfParts(own, convolution(source, second + ".reparam_conv", outputs, outputs, 1, True))


def stage_parts(source: WeightSource, shape: StageShape) -> Generator[Parts, None, None]:
    """The parts of a stage, one after the other. Raises `BadCheckpoint`."""
    at = shape.at
    if shape.inputs:
        yield half(source, at + "downsample.proj.0", at + "downsample.proj.1", shape.width, _LARGE)
    if shape.placed:
        yield PlaceParts(own_convolution(source, at + "pos_emb.reparam_conv", shape.width, _LARGE))
    for block in shape.blocks:
        yield _block(source, block)


def _block(source: WeightSource, shape: BlockShape) -> BlockParts:
    at, width, hidden = shape.at, shape.width, shape.hidden
    factors = source.vector(f"{at}layer_scale{'_2' if shape.attends else ''}.gamma", width, 1, 1)
    up = convolution(source, at + "mlp.fc1", hidden, width, 1, True)
    down = _scaled(source, at + "mlp.fc2", width, factors, View(kernel=(hidden, 1, 1)), hidden)
    own = _normed(source, at + "mlp.conv", width)
    if not shape.attends:
        mixer = own_convolution(source, at + "token_mixer.reparam_conv", width, _MIXER)
        return BlockParts(mixer, None, None, own, up, down)
    heads = width // HEAD_DIM
    factors = source.vector(at + "layer_scale_1.gamma", width, 1, 1)
    attention = Attention(
        0, AttentionShape(heads, heads, HEAD_DIM, HEAD_DIM**-0.5, bidirectional=True),
        FusedQkv(linear(source, at + "token_mixer.qkv", 3 * width, width, False), (width,) * 3),
        _scaled(source, at + "token_mixer.proj", width, factors, View(), width), "none",
    )  # fmt: skip
    before = norm(source, at + "norm", width, _EPS, layer_norm=True, bias=True)
    return BlockParts(None, before, attention, own, up, down)


def _scaled(source: WeightSource, name: str, rows: int, factors: Floats, view: View, columns: int) -> Linear:
    """A matrix whose rows, and numbers of its bias, are multiplied by `factors` (rows, 1, 1)."""
    factors = factors.reshape(rows)
    made = linear(source, name, rows, columns, True, replace(view, factors=factors))
    assert made.bias is not None
    return replace(made, bias=made.bias * factors)


def _normed(source: WeightSource, name: str, channels: int) -> Own:
    """A convolution of each channel with the batch norm after it (arXiv 1502.03167), as one."""
    kernels = _own_kernels(source, name + ".conv.weight", channels, _LARGE)
    weight, bias, mean, variance = (
        source.vector(f"{name}.bn.{part}", channels)
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    factors = weight / np.sqrt(variance + np.float32(_EPS))
    return Own(kernels * factors, bias - mean * factors)


class _Half(OfPasses):
    def __init__(self, parts: HalfParts, backend: Backend) -> None:
        self._own = parts.own

        def forward(ops: Ops, x: Array) -> Array:
            return ops.activate(parts.project(ops, ops.activate(x, "gelu")), "gelu")

        self._run = Pieces(backend, forward, (parts.own.kernels.shape[2],), _ROWS)
        super().__init__(self._run)

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """As `Block.grid`."""
        x = self._own.of(grid)
        yield Waiting()
        return (yield from rows(self._run, x))


class _Place(OfPasses):
    def __init__(self, parts: PlaceParts) -> None:
        self._own = parts.own
        super().__init__()

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """As `Block.grid`: the centre of each kernel counts the place itself."""
        x = self._own.of(grid)
        yield Waiting()
        return x


class _Block(OfPasses):
    def __init__(self, parts: BlockParts, backend: Backend, most: int) -> None:
        self._parts, width = parts, parts.own.kernels.shape[2]
        self._attention = None
        attention, before = parts.attention, parts.before
        if attention is not None and before is not None:
            self._states = np.zeros((most, width), np.float32)

            def attended(ops: Ops) -> Array:
                x = ops.given(self._states)
                return ops.last_rows(attention(ops, before(ops, x), NO_ROPE, x))

            self._attention = Pass(backend, attended, most, attention.shape)

        def mlp(ops: Ops, x: Array, residual: Array) -> Array:
            return parts.down(ops, ops.activate(parts.up(ops, x), "gelu"), residual)

        self._mlp = Pieces(backend, mlp, (width, width), _ROWS)
        super().__init__(*(() if self._attention is None else (self._attention,)), self._mlp)

    def grid(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """As `Block.grid`."""
        if self._parts.mixer is not None:
            x = self._parts.mixer.of(grid)
            yield Waiting()
        else:
            assert self._attention is not None
            self._states[:] = grid.reshape(self._states.shape)
            found = yield from self._attention.steps(len(self._states))
            x = found.copy().reshape(grid.shape)
        inner = self._parts.own.of(x)
        yield Waiting()
        return (yield from rows(self._mlp, inner, x))
