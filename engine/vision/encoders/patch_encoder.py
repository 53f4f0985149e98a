"""Encoders that cut a picture into crops, run a tower over the patches of each, merge and project.

That is all of a family whose pictures have learned positions; see `engine.vision.families`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from engine.backends.base import Array, Backend, Ops, RotaryTable
from engine.core import Waiting
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, norm
from engine.models.layers.parts import RopeTables
from engine.tensors import Bytes, Floats
from engine.vision.base import PictureRows, Piece, VisionSpec
from engine.vision.layers.projector import ProjectorNames, TokensShape
from engine.vision.layers.tower import NO_ROPE, Tower, TowerNames, TowerShape, patch_linear, tower_layers
from engine.vision.passes import OfPasses, Pass
from engine.vision.pictures.images import Normalisation, patches, read_picture
from engine.words import _

MOST_PATCHES = 1 << 14
"""Of a crop: four times those of Gemma 3, and as many as take seconds on a fast processor."""


class Cutter(Protocol):
    """What a picture becomes before its patches are cut. `most_patches` is of one crop at most."""

    @property
    def most_patches(self) -> int: ...

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        ...

    def crops(self, picture: Bytes) -> tuple[Bytes | Floats, ...]:
        """The crops of a picture (H, W, 3); pixels at their right and bottom edges that are less than a patch
        are not read. Values of an interpolated one may be between those of bytes.
        """
        ...


PlacePatches = Callable[[Floats, int, int], Floats]
"""A table of positions (P, E) and a grid's rows and columns -> positions (rows * columns, E)."""


def as_stored(table: Floats, rows: int, columns: int) -> Floats:
    """The table's rows as they are, for grids of one size."""
    assert len(table) == rows * columns
    return table


Assemble = Callable[[Sequence[Floats], int, int, Floats | None], Sequence[Floats]]
"""The rows (n, N) of each crop, the picture's width and height, and the row for the end of a line, or those
of marks -> the rows of each span.
"""


def as_cut(crops: Sequence[Floats], width: int, height: int, line_end: Floats | None) -> Sequence[Floats]:
    """Each crop is a span."""
    return crops


@dataclass(frozen=True, slots=True)
class PatchNames:
    """The names of an encoder's tensors, without ".weight" and ".bias": `first` is the convolution over
    patches; `positions`, `class_row` and `line_end` (empty: none) are whole names.
    """

    tower: TowerNames
    first: str
    positions: str
    projector: ProjectorNames
    after: str = ""
    before: str = ""
    class_row: str = ""
    line_end: str = ""


@dataclass(frozen=True, slots=True)
class PatchDesign:
    """A `Design`. `patch` is the side of a patch in pixels; `table` counts the positions of patches that are
    stored, and with a class row there is one more before them, or with `class_last` after them. `features`
    and `placed_last` are as in `Tower`. `assemble` makes the rows of the spans of those of the crops.

    Where the model takes further rows (`VisionSpec.deep`), the projector makes them, too: they stand before
    those of the embeddings.

    If `flat`, the patches' layer is stored as a matrix; with `colours_last`, all colours of a pixel stand
    together. `angles` are those of rope for the patches of a grid of this many rows and columns, (T, D / 2),
    of interleaved pairs. `marks` gives the rows (n, N) of tokens that stand among those of the crops.
    """

    spec: VisionSpec
    tower: TowerShape
    names: PatchNames
    patch: int
    table: int
    normalisation: Normalisation
    cutter: Cutter
    projector: TokensShape
    features: tuple[int, ...]
    place: PlacePatches = as_stored
    flat: bool = False
    colours_last: bool = False
    assemble: Assemble = as_cut
    class_last: bool = False
    angles: Callable[[int, int], Floats] | None = None
    placed_last: bool = False
    marks: Callable[[WeightSource], Floats] | None = None

    @property
    def width(self) -> int:
        return self.projector.outputs

    @property
    def layers(self) -> int:
        return max(self.features)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        return self.cutter.layout(width, height)

    def build(self, source: WeightSource) -> Generator[int, None, PatchParts]:
        check_patches(self.cutter.most_patches)
        names, shape = self.names, self.tower
        first = patch_linear(source, names.first, shape.width, self.patch, None, flat=self.flat)
        before, after = (
            norm(source, name, shape.width, shape.eps, layer_norm=shape.layer_norm, bias=None)
            if name
            else None
            for name in (names.before, names.after)
        )
        more = 1 if names.class_row else 0
        table = source.vector(names.positions, self.table + more, shape.width)
        table = np.roll(table, 1, axis=0) if self.class_last else table
        row = source.vector(names.class_row, shape.width) if more else None
        blocks = yield from tower_layers(source, shape, names.tower, self.layers)
        last = self.projector.build(source, names.projector)
        line = source.vector(names.line_end, self.width) if names.line_end else None
        line = self.marks(source) if self.marks else line
        tower = Tower(first, blocks, before, after, self.features, self.placed_last)
        return PatchParts(tower, table, row, last, line)

    def encoder(self, spec: VisionSpec, parts: PatchParts, backend: Backend) -> PatchEncoder:
        return PatchEncoder(self, spec, parts, backend)


def check_patches(patches: int) -> None:
    """Raise `BadCheckpoint` if a crop has more than `MOST_PATCHES`."""
    if patches > MOST_PATCHES:
        raise BadCheckpoint(
            _(
                "The vision encoder would read {patches} patches of a picture at once; at most {most} were "
                "expected. The file is damaged.",
                patches=patches,
                most=MOST_PATCHES,
            )
        )


@dataclass(frozen=True, slots=True)
class PatchParts:
    """What `PatchDesign.build` makes. The positions' table begins with that of the class row, if there is
    one. `line_end` is a row for the end of a line of a picture, or rows of marks.
    """

    tower: Tower
    positions: Floats
    class_row: Floats | None
    projector: Any
    line_end: Floats | None


class PatchEncoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights: the tower's pass, and what makes tokens of it."""

    def __init__(self, design: PatchDesign, spec: VisionSpec, parts: PatchParts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._parts = design, parts
        shape, more = design.tower, 0 if parts.class_row is None else 1
        most = design.cutter.most_patches
        self._patches = np.zeros((more + most, 3 * design.patch**2), np.float32)
        self._positions = np.zeros((more + most, shape.width), np.float32)
        self._first = more
        self._grid = (0, 0)
        if parts.class_row is not None:
            # Its row of patches is zeros, so the patches' layer makes its bias of it.
            bias = parts.tower.first.bias
            own = parts.class_row + parts.positions[0]
            self._positions[0] = own if bias is None else own - bias
        half = shape.attention.head_dim // 2 if design.angles else 0
        # The row of the class, and rows without rope, are not rotated.
        self._rope = RotaryTable(
            np.ones((more + most, half), np.float32), np.zeros((more + most, half), np.float32), True,
            given=True,
        )  # fmt: skip
        tables = RopeTables(self._rope) if half else NO_ROPE
        self._tower = Pass(
            backend,
            partial(_tower, parts.tower, self._patches, self._positions, tables),
            more + most,
            shape.attention,
        )
        self._tokens = design.projector.tokens(backend, parts.projector, most)
        super().__init__(self._tower, self._tokens)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        picture, found = read_picture(data), list[Floats]()
        for crop in self._design.cutter.crops(picture):
            found.append((yield from self._encode(crop)))
            yield Waiting()
        height, width = picture.shape[:2]
        rows = self._design.assemble(found, width, height, self._parts.line_end)
        parts = (np.split(each, 1 + self.spec.deep, axis=1) for each in rows)
        return tuple(PictureRows(states, tuple(deep)) for *deep, states in parts)

    def _encode(self, crop: Bytes | Floats) -> Generator[Waiting, None, Floats]:
        """The rows of one crop (h, w, 3); yields between short steps."""
        design, first = self._design, self._first
        rows, columns = crop.shape[0] // design.patch, crop.shape[1] // design.patch
        count = rows * columns
        self._patches[first : first + count] = patches(
            crop[: rows * design.patch, : columns * design.patch],
            design.patch,
            design.normalisation,
            colours_last=design.colours_last,
        )
        if self._grid != (rows, columns):
            table = self._parts.positions[first:]
            self._positions[first : first + count] = design.place(table, rows, columns)
            if design.angles is not None:
                angles = design.angles(rows, columns)
                self._rope.cos[first : first + count] = np.cos(angles)
                self._rope.sin[first : first + count] = np.sin(angles)
            self._grid = rows, columns
        states = (yield from self._tower.steps(first + count))[first:]
        return (yield from self._tokens.rows(states, rows, columns))


def _tower(tower: Tower, patches: Floats, positions: Floats, tables: RopeTables, ops: Ops) -> Array:
    return ops.last_rows(tower(ops, ops.given(patches), ops.given(positions), tables))
