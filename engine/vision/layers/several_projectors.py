"""Several projectors over a crop's patches: each reads the states after another layer of the tower, which are
side by side, and what they make is side by side, too (DeepStack, arXiv 2406.04334).
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from engine.backends.base import Backend
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource
from engine.tensors import Floats
from engine.vision.layers.projector import Projector, ProjectorNames, ProjectorPass, ProjectorShape
from engine.vision.passes import OfPasses


@dataclass(frozen=True, slots=True)
class SeveralProjectors:
    """A `TokensShape`: patches (T, n * E) -> (T / factor^2, n * `outputs`), of `shapes` and their `names` in
    the order of the states. All make rows of the same width, and merge squares of the same size.
    """

    shapes: tuple[ProjectorShape, ...]
    names: tuple[ProjectorNames, ...]

    @property
    def outputs(self) -> int:
        """The width of the rows of one of them."""
        return self.shapes[0].outputs

    def build(self, source: WeightSource, names: ProjectorNames) -> tuple[Projector, ...]:
        """As `TokensShape.build`; the names are its own."""
        pairs = zip(self.shapes, self.names, strict=True)
        return tuple(shape.build(source, own) for shape, own in pairs)

    def tokens(self, backend: Backend, parts: tuple[Projector, ...], most: int) -> SeveralPasses:
        return SeveralPasses(
            tuple(shape.tokens(backend, own, most) for shape, own in zip(self.shapes, parts, strict=True))
        )


class SeveralPasses(OfPasses):
    """`Tokens` of several projectors."""

    def __init__(self, passes: tuple[ProjectorPass, ...]) -> None:
        self._each = passes
        super().__init__(*passes)

    def rows(self, states: Floats, rows: int, columns: int) -> Generator[Waiting, None, Floats]:
        found = list[Floats]()
        for part, each in zip(np.split(states, len(self._each), axis=1), self._each, strict=True):
            found.append((yield from each.rows(part, rows, columns)))
        return np.concatenate(found, axis=1)
