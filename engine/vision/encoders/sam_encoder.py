"""Encoders over square crops whose first part is Segment Anything's: perhaps a second tower over the rows
that this makes, then a linear layer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from engine.backends.base import Backend
from engine.core import Waiting
from engine.drain import mapped
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.layers.parts import Linear
from engine.tensors import Floats
from engine.vision.base import PictureRows, Piece, VisionSpec
from engine.vision.encoders.patch_encoder import Cutter, check_patches
from engine.vision.layers.sam import SamEncoder, SamNames, SamParts, SamShape, build
from engine.vision.passes import OfPasses, Pieces, Prepared
from engine.vision.pictures.images import Normalisation, read_picture

Assemble = Callable[[Sequence[Floats], int, int, Sequence[Floats]], Sequence[Floats]]
"""The rows (n, N) of each crop, the picture's width and height, and the marks -> the rows of each span."""


class Second(Prepared, Protocol):
    """Runs a second tower, with its weights. Used by one thread."""

    def rows(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        """What it makes (n, `outputs`) of a crop's grid (R, R, C); yields between short steps."""
        ...


class SecondShape(Protocol):
    """A second tower before its weights are loaded; `outputs` is the width of its rows."""

    @property
    def layers(self) -> int: ...
    @property
    def outputs(self) -> int: ...

    def build(self, source: WeightSource) -> Generator[int, None, Any]:
        """Its parts; yields the number of finished layers. Raises `BadCheckpoint`."""
        ...

    def second(self, backend: Backend, parts: Any) -> Second:
        """What runs the parts that `build` made."""
        ...


@dataclass(frozen=True, slots=True)
class SamDesignParts:
    """What `SamDesign.build` makes."""

    sam: SamParts
    second: Any
    projector: Linear
    marks: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class SamDesign:
    """A `Design`. `projector` is the name of the linear layer, whose rows are of `outputs` numbers; `marks`
    are whole names of such rows. `assemble` makes the rows of the spans of those of the crops.
    """

    spec: VisionSpec
    sam: SamShape
    names: SamNames
    pixels: Normalisation
    cutter: Cutter
    projector: str
    outputs: int
    assemble: Assemble
    marks: tuple[str, ...] = ()
    second: SecondShape | None = None

    @property
    def width(self) -> int:
        return self.outputs

    @property
    def layers(self) -> int:
        return self.sam.layers + (self.second.layers if self.second else 0)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        return self.cutter.layout(width, height)

    def build(self, source: WeightSource) -> Generator[int, None, SamDesignParts]:
        check_patches(self.sam.cells**2)
        sam = yield from build(self.sam, self.names, source)
        inputs, second = self.sam.channels[-1], None
        if self.second is not None:
            inputs = self.second.outputs
            second = yield from mapped(self.second.build(source), lambda done: self.sam.layers + done)
        last = linear(source, self.projector, self.outputs, inputs, True)
        return SamDesignParts(
            sam, second, last, tuple(source.vector(name, self.outputs) for name in self.marks)
        )

    def encoder(self, spec: VisionSpec, parts: SamDesignParts, backend: Backend) -> SamDesignEncoder:
        return SamDesignEncoder(self, spec, parts, backend)


class SamDesignEncoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights."""

    def __init__(self, design: SamDesign, spec: VisionSpec, parts: SamDesignParts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._marks = design, parts.marks
        self._sam = SamEncoder(design.sam, parts.sam, design.pixels, backend)
        inputs, self._second = design.sam.channels[-1], None
        if design.second is not None:
            inputs, self._second = design.second.outputs, design.second.second(backend, parts.second)
        self._projector = Pieces(backend, parts.projector, (inputs,))
        second = () if self._second is None else (self._second,)
        super().__init__(self._sam, *second, self._projector)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        picture, found = read_picture(data), list[Floats]()
        for crop in self._design.cutter.crops(picture):
            grid = yield from self._sam.states(crop)
            if self._second is None:
                states = grid.reshape(-1, grid.shape[2])
            else:
                states = yield from self._second.rows(grid)
            found.append((yield from self._projector.rows(states)))
        height, width = picture.shape[:2]
        return tuple(PictureRows(each) for each in self._design.assemble(found, width, height, self._marks))
