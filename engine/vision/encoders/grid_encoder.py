"""Encoders that leave pictures their shape: a grid of patches with rotary positions by row and column.

The patches of one token of the language model follow one another, so that merging them moves nothing. With
windows (Swin, arXiv 2103.14030; Qwen2.5-VL, arXiv 2502.13923, section 2.1.1), those of one window do, too;
most layers then run window by window, and those over the whole picture in passes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import groupby

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource
from engine.models.layers.parts import Block, Linear, Norm
from engine.tensors import Bytes, Floats
from engine.vision.base import PictureRows, Piece, Span, VisionSpec
from engine.vision.layers.grid import Axial, GridOrder, block_order, windows
from engine.vision.layers.grid_convolution import ConvolutionBlock, ConvolutionStage
from engine.vision.layers.grid_passes import After, Head, Stage, first_rows, head_rows
from engine.vision.layers.tower import TowerShape
from engine.vision.passes import OfPasses, Pass, Pieces
from engine.vision.pictures.images import Normalisation, patches, read_picture, resized

Size = Callable[[int, int], tuple[int, int]]
"""A picture's width and height in pixels -> those of what is cut into patches."""
Layout = Callable[[int, int], tuple[Piece, ...]]
"""Rows and columns of tokens -> what they become in a prompt."""
Place = Callable[[int, int], Floats]
"""Rows and columns of patches -> what is added to them, (rows * columns, E), from left to right and from top
to bottom.
"""


Fit = Callable[[Bytes], Bytes]
"""A picture (H, W, 3) -> that of `Size` that is cut into patches."""


def one_span(rows: int, columns: int) -> tuple[Piece, ...]:
    """A `Layout` of the tokens alone."""
    return (Span(rows, columns),)


@dataclass(frozen=True, slots=True)
class Lines:
    """What follows the head: to each line of rows (n, K) comes the row `end` (K,), `last` makes rows (n, N)
    of all, and those `around` (N,) stand before and after them.
    """

    end: Floats
    last: Callable[[Ops, Array], Array]
    around: tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class GridParts:
    """What `GridDesign.make` makes. The sum of what the linears of `first` make of the patches is normed by
    `before`, and the places are added; some `blocks` may be convolutions over the grid; `after` norms what
    the layers make. There is a head in `deep` for each layer of `GridDesign.deep`. With `lines`, the head
    makes rows of another width than `GridDesign.outputs`.
    """

    first: tuple[Linear, ...]
    blocks: tuple[Block | ConvolutionBlock, ...]
    head: Head
    deep: tuple[Head, ...] = ()
    place: Place | None = None
    before: Norm | None = None
    after: After | None = None
    lines: Lines | None = None


@dataclass(frozen=True, slots=True)
class GridDesign:
    """A `Design`. `patch` is the side of a patch in pixels; each value is given `frames` times, as if the
    picture were shown as long as a video. `factor` is the side of what becomes a token, in patches; `outputs`
    is the width of rows. `make` builds the parts, and yields the number of finished layers after each.

    `window` is the side of a window in tokens, or 0; layers with these indices in `whole` have none. `deep`
    are the indices of layers whose states are made into further rows. Without `fit`, the picture is made to
    fit by the `filter`. `of_tokens` makes the same design for pictures of at most this many tokens, where the
    files leave that limit open.
    """

    spec: VisionSpec
    tower: TowerShape
    patch: int
    factor: int
    outputs: int
    pixels: Normalisation
    size: Size
    filter: int
    most_patches: int
    rope: Axial
    make: Callable[[WeightSource], Generator[int, None, GridParts]]
    pieces: Layout = one_span
    frames: int = 1
    colours_last: bool = False
    window: int = 0
    whole: frozenset[int] = frozenset()
    deep: tuple[int, ...] = ()
    fit: Fit | None = None
    of_tokens: Callable[[int], GridDesign] | None = None

    @property
    def width(self) -> int:
        return self.outputs

    @property
    def layers(self) -> int:
        return self.tower.layers

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        wide, high = self.size(width, height)
        side = self.patch * self.factor
        return self.pieces(high // side, wide // side)

    def limited(self, tokens: int) -> GridDesign:
        """The same for pictures of at most this many tokens, but not of more than the files allow."""
        return self if self.of_tokens is None else self.of_tokens(tokens)

    def build(self, source: WeightSource) -> Generator[int, None, GridParts]:
        return self.make(source)

    def encoder(self, spec: VisionSpec, parts: GridParts, backend: Backend) -> GridEncoder:
        return GridEncoder(self, spec, parts, backend)


class GridEncoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights."""

    def __init__(self, design: GridDesign, spec: VisionSpec, parts: GridParts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._place = design, parts.place
        columns = 3 * design.frames * design.patch**2
        placed = parts.place is not None
        self._first = first_rows(backend, parts.first, columns, design.tower.width, placed, parts.before)
        self._stages = tuple(_stages(design, parts, backend))
        self._cell = design.factor**2
        most = design.most_patches // self._cell
        heads = (parts.head, *parts.deep)
        self._heads = tuple((head.merge, head_rows(backend, head, most)) for head in heads)
        stages = (run for stage in self._stages for run in stage.runs)
        after = (head.run for _, head in self._heads)
        self._lines, self._last = parts.lines, None
        if parts.lines is not None:
            self._last = Pieces(backend, parts.lines.last, (len(parts.lines.end),), 2 * most)
        last = () if self._last is None else (self._last.run,)
        self._all: tuple[Pass, ...] = (self._first.run, *stages, *after, *last)
        super().__init__(*self._all)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        design = self._design
        picture = read_picture(data)
        height, width = picture.shape[:2]
        if design.fit is not None:
            picture = design.fit(picture)
        else:
            picture = resized(picture, *design.size(width, height), design.filter)
        rows, columns = picture.shape[0] // design.patch, picture.shape[1] // design.patch
        order = _order(design, rows, columns)
        values = patches(picture, design.patch, design.pixels, colours_last=design.colours_last)
        if design.frames > 1:
            values = np.repeat(values.reshape(len(values), 3, 1, -1), design.frames, axis=2)
            values = values.reshape(rows * columns, -1)
        placed = [] if self._place is None else [self._place(rows, columns)[order.patches]]
        states = yield from self._first.rows(values[order.patches], *placed)
        angles, kept = design.rope.angles(order.patches, columns), list[Floats]()
        for stage in self._stages:
            states, deep = yield from stage.states(states, angles, order)
            kept += deep
        found, back = list[Floats](), np.argsort(order.tokens)
        for (merge, head), each in zip(self._heads, (states, *kept), strict=True):
            made = yield from head.rows(merge(each.reshape(len(back), self._cell, -1)))
            found.append(made[back])
        if self._last is not None:
            found[0] = yield from self._lined(found[0], columns // design.factor)
        return _by_spans(self.layout(width, height), found[0], found[1:])

    def _lined(self, rows: Floats, columns: int) -> Generator[Waiting, None, Floats]:
        """As `Lines` says."""
        lines, last = self._lines, self._last
        assert lines is not None
        assert last is not None
        grid = rows.reshape(-1, columns, rows.shape[-1])
        ends = np.broadcast_to(lines.end, (len(grid), 1, len(lines.end)))
        made = yield from last.rows(np.concatenate([grid, ends], axis=1).reshape(-1, len(lines.end)))
        return np.concatenate([lines.around[0][None], made, lines.around[1][None]])

    def work_bytes(self) -> int:
        """The memory that reading the largest picture takes besides the weights, which may be specs: that of
        the passes, and of what goes from one to the next.
        """
        design, rows = self._design, 1 + len(self._design.deep)
        rows += 2 if any(isinstance(each, ConvolutionStage) for each in self._stages) else 0
        columns = 2 * 3 * design.frames * design.patch**2 + 3 * rows * design.tower.width
        return sum(each.work_bytes() for each in self._all) + 4 * design.most_patches * columns


def _order(design: GridDesign, rows: int, columns: int) -> GridOrder:
    factor, cell = design.factor, design.factor**2
    blocks = block_order(rows, columns, factor).reshape(-1, cell)
    if not design.window:
        return GridOrder(blocks.reshape(-1), np.arange(len(blocks)), (), columns)
    found = windows(rows // factor, columns // factor, design.window)
    lengths = tuple(cell * each for each in found.lengths)
    return GridOrder(blocks[found.order].reshape(-1), found.order, lengths, columns)


def _stages(
    design: GridDesign, parts: GridParts, backend: Backend
) -> Generator[Stage | ConvolutionStage, None, None]:
    """Consecutive layers with windows, and without, and each that is a convolution."""
    window = (design.window * design.factor) ** 2

    def kind(numbered: tuple[int, Block | ConvolutionBlock]) -> tuple[bool, int]:
        number, block = numbered
        return number in design.whole, number if isinstance(block, ConvolutionBlock) else -1

    groups = [dict(group) for _, group in groupby(enumerate(parts.blocks), kind)]
    for group in groups:
        after = parts.after if group is groups[-1] else None
        first, blocks = min(group), tuple(group.values())
        if isinstance(blocks[0], ConvolutionBlock):
            yield ConvolutionStage(backend, blocks[0], after)
            continue
        yield Stage(
            backend,
            tuple(block for block in blocks if isinstance(block, Block)),
            design.tower.width,
            window if first not in design.whole else 0,
            design.most_patches,
            design.rope,
            tuple(layer - first for layer in design.deep if layer in group),
            after,
        )


def _by_spans(layout: tuple[Piece, ...], states: Floats, deep: list[Floats]) -> tuple[PictureRows, ...]:
    """The rows of each span of a layout, one after the other."""
    found, at = list[PictureRows](), 0
    for piece in layout:
        if isinstance(piece, Span):
            part = slice(at, at + piece.tokens)
            found.append(PictureRows(states[part], tuple(each[part] for each in deep)))
            at += piece.tokens
    return tuple(found)
