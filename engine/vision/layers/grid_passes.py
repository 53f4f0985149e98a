"""The passes of `grid_encoder` and `sam`: patches to rows, layers with and without windows, and heads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np

from engine.backends.base import Array, Backend, Ops, RotaryTable
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.layers.parts import Block, Linear, Norm, RopeTables
from engine.models.layers.whole import Blocks
from engine.tensors import Floats
from engine.vision.layers.grid import Axial, GridOrder
from engine.vision.passes import PIECE, Pass, Pieces

After = Callable[[Ops, Array], Array]
"""What norms the states after the last layer."""


def first_rows(
    backend: Backend, first: Sequence[Linear], columns: int, width: int, placed: bool, before: Norm | None
) -> Pieces:
    """What the sum of `first` makes of patches (T, `columns`), normed by `before`, plus their places if they
    are `placed`: (T, `width`).
    """

    def forward(ops: Ops, patches: Array, places: Array | None = None) -> Array:
        x = None
        for linear in first:
            x = linear(ops, patches, x)
        x = before(ops, x) if before else x
        return x if places is None else ops.add(x, places)

    return Pieces(backend, forward, (columns, width) if placed else (columns,))


class Stage:
    """Some layers of a tower over up to `most` rows (T, E). With a `window`, these rows attend to each other
    alone. The states after the layers with the indices `deep` are kept; `after` norms the last ones.
    """

    def __init__(
        self, backend: Backend, blocks: tuple[Block, ...], width: int, window: int, most: int,
        rope: Axial, deep: Sequence[int], after: After | None,
    ) -> None:  # fmt: skip
        self._window = window
        rows = max(window, PIECE // window * window) if window else most
        self._given = np.zeros((rows, width), np.float32)
        self._kept = [np.zeros((rows, width), np.float32) for _ in deep]
        half = len(rope.down) + len(rope.across)
        self._table = RotaryTable(
            np.zeros((rows, half), np.float32),
            np.zeros((rows, half), np.float32),
            rope.interleaved,
            given=True,
        )
        mixer, layers = blocks[0].attention, Blocks(blocks)
        assert isinstance(mixer, Attention)

        def forward(ops: Ops) -> Array:
            def observe(number: int, x: Array) -> Array:
                return ops.keep(x, self._kept[deep.index(number - 1)]) if number - 1 in deep else x

            x = layers.observed(ops, ops.given(self._given), RopeTables(self._table), observe)
            return ops.last_rows(after(ops, x) if after else x)

        self._run = Pass(backend, forward, rows, mixer.shape)
        self.runs = (self._run,)

    def states(
        self, states: Floats, angles: Floats, order: GridOrder
    ) -> Generator[Waiting, None, tuple[Floats, list[Floats]]]:
        """The states (T, E) after the layers, and those that are kept. `angles` (T, D / 2) are those of rope.
        Yields between short steps.
        """
        cos, sin = np.cos(angles), np.sin(angles)
        found, kept = np.empty_like(states), [np.empty_like(states) for _ in self._kept]
        for part in self._parts(len(states), order.lengths):
            count = part.stop - part.start
            self._given[:count] = states[part]
            self._table.cos[:count], self._table.sin[:count] = cos[part], sin[part]
            found[part] = yield from self._run.steps(count)
            for whole, rows in zip(kept, self._kept, strict=True):
                whole[part] = rows[:count]
            yield Waiting()
        return found, kept

    def _parts(self, rows: int, lengths: Sequence[int]) -> Iterator[slice]:
        """The rows of each pass: all, or as many whole windows as it takes, or one smaller window."""
        if not self._window:
            yield slice(0, rows)
            return
        whole = self._window * sum(1 for length in lengths if length == self._window)
        for start in range(0, whole, self._run.max_rows):
            yield slice(start, min(start + self._run.max_rows, whole))
        at = whole
        for length in lengths[whole // self._window :]:
            yield slice(at, at + length)
            at += length


@dataclass(frozen=True, slots=True)
class Head:
    """From the patches of tokens to rows: `merge` makes (n, `inputs`) of (n, patches of a token, E) on the
    host, since it mostly moves numbers; `projector` does the rest.
    """

    merge: Callable[[Floats], Floats]
    inputs: int
    projector: Callable[[Ops, Array], Array]


def head_rows(backend: Backend, head: Head, most: int) -> Pieces:
    """What a head's projector makes of up to `most` merged tokens in a pass."""
    return Pieces(backend, head.projector, (head.inputs,), most)
