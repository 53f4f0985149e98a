"""Passes over the tokens of pictures: rows of a vision encoder take the place of embeddings.

They go over the same cache as the passes over text, by a second program that is recorded from the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from engine.backends.base import Array, AttentionShape, Ops, Program, RotaryTable, Step
from engine.core import FIRST_PICTURE_ID
from engine.errors import UnsupportedModel
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreams
from engine.models.layers.features import Features
from engine.models.layers.parts import RopeTables
from engine.models.layers.positions.mrope import Axes, axes_of_pairs, fill_table
from engine.models.layers.whole import Layered, Parts
from engine.tensors import Floats, Ints
from engine.words import _

STAND_IN = 0
"""The token whose embeddings a picture's tokens have in further tables that layers look up: in Gemma's
families, the only ones that have such, it is the padding.
"""


LONGEST_WHOLE = 2048
"""The most tokens of a picture that attend to each other, if a pass over them is to leave hidden states."""


class Sections(Protocol):
    """Multi-section rotary positions, as in `engine.models.layers.positions.mrope.axes_of_pairs`."""

    @property
    def sections(self) -> tuple[int, ...]:
        """The pairs of time, rows and columns."""
        ...

    @property
    def interleaved(self) -> bool:
        """Whether they take turns."""
        ...

    @property
    def counted(self) -> bool:
        """Whether they are those of the place in the text, columns, rows and the number of the picture."""
        ...


class PictureSpec(Protocol):
    """What a pass over pictures' tokens depends on (`engine.vision.VisionSpec`)."""

    @property
    def bidirectional(self) -> bool:
        """Whether the tokens of a picture attend to each other in both directions."""
        ...

    @property
    def windows_alone(self) -> bool:
        """Whether they do so in layers with a window alone."""
        ...

    @property
    def positions(self) -> Sections | None:
        """The sections of rotary positions; None if they are those of texts."""
        ...

    @property
    def deep(self) -> int:
        """How many of the first layers are followed by further rows."""
        ...

    @property
    def prefix(self) -> bool:
        """Whether all tokens of a prompt with pictures attend to each other."""
        ...

    @property
    def looked_at(self) -> int | None:
        """The token that stands for a picture which layers of their own look at; None: there are none."""
        ...


class PicturePass:
    """The pass over pictures' tokens: its program, and the rows and angles that it reads. Used by one thread.

    Where tokens attend in both directions, a step has all tokens of one picture and no others.
    """

    def __init__(
        self, config: ModelConfig, parts: Parts, spec: PictureSpec, max_rows: int, ropes: RopeTables
    ) -> None:
        """`ropes` are the model's, as long as the longest text. Raises `UnsupportedModel`."""
        _refuse(config, parts, spec)
        self._spec = spec
        self.states: Floats = np.zeros((max_rows, config.width), np.float32)
        self.deep: list[Floats] = [np.zeros_like(self.states) for _unused in range(spec.deep)]
        self._filled: list[tuple[RotaryTable, RotaryTable, Axes]] = []
        self._rows: Ints | None = None
        self.tables = ropes
        if spec.positions is not None:
            self._rows = np.arange(max_rows, dtype=np.int32)
            self.tables = self._given_tables(ropes, spec.positions, max_rows)
        self._program: Program | None = None

    def _given_tables(self, ropes: RopeTables, positions: Sections, max_rows: int) -> RopeTables:
        """Tables with the angles of a step's rows, which `fill` writes."""
        axes = axes_of_pairs(positions.sections, positions.interleaved)
        apart = ropes.queries, ropes.unrotated, ropes.logs
        if ropes.main is None or ropes.pooled or ropes.back or any(each is not None for each in apart):
            raise UnsupportedModel(
                _("This model's rotary positions do not fit pictures. Choose another model.")
            )

        def given(source: RotaryTable) -> RotaryTable:
            pairs = source.cos.shape[1]
            if pairs != len(axes):
                raise UnsupportedModel(
                    _(
                        "The model has {pairs} pairs of rotary dimensions, but {found} are divided among "
                        "time, rows and columns of pictures. The file is damaged.",
                        pairs=pairs,
                        found=len(axes),
                    )
                )
            cos, sin = (np.zeros((max_rows, pairs), np.float32) for _unused in range(2))
            made = RotaryTable(cos, sin, source.interleaved, given=True)
            self._filled.append((made, source, axes))
            return made

        return RopeTables(given(ropes.main), None if ropes.local is None else given(ropes.local))

    def forward(self, ops: Ops, parts: Parts, kept: Floats | None, features: Features | None) -> Array:
        """The whole pass: logits (logit_rows, V); the rest is as in `Parts`."""
        if self._spec.bidirectional:
            ops = cast(Ops, _BothWays(ops, self._spec))
        x = parts.hidden_of(ops, ops.given(self.states), self.tables, kept, features, self.deep)
        return x if parts.headless else parts.logits(ops, x)

    @property
    def max_rows(self) -> int:
        """The most rows of a step."""
        return len(self.states)

    def attach(self, program: Program) -> None:
        """Set the recorded pass, which is closed with this."""
        self._program = program

    def fill(self, states: Floats, deep: Sequence[Floats] = (), positions: Ints | None = None) -> None:
        """Set what the next step reads: `states` (T, E) and `deep`, each (T, E) float32, and where the model
        has sections of rotary positions, those of the tokens: time, row and column (T, 3), or others, int32.
        """
        assert len(deep) == len(self.deep)
        for into, rows in zip((self.states, *self.deep), (states, *deep), strict=True):
            into[: len(rows)] = rows
        for target, source, axes in self._filled:
            assert positions is not None
            fill_table(target, source, positions, axes)

    def ready(
        self, step: Step, states: Floats, deep: Sequence[Floats] = (), positions: Ints | None = None
    ) -> tuple[Program, Step]:
        """The program, and its step over tokens of pictures, whose ids do not matter, and of text between
        them; the rest is as in `fill`, and counts until the next call.
        """
        count, ids = len(step.token_ids), step.token_ids
        assert len(states) == count
        self.fill(states, deep, positions)
        assert self._program is not None, "the pass is not recorded, or closed"
        ropes = None if self._rows is None else self._rows[:count]
        ids = np.where(ids < FIRST_PICTURE_ID, ids, np.int32(STAND_IN))
        return self._program, replace(step, token_ids=ids, rope_positions=ropes)

    def run(
        self, step: Step, states: Floats, deep: Sequence[Floats] = (), positions: Ints | None = None
    ) -> Floats:
        """Run what `ready` gives."""
        program, step = self.ready(step, states, deep, positions)
        return program.run(step)

    def close(self) -> None:
        """Close the program."""
        if self._program is not None:
            self._program.close()
        self._program = None


class _BothWays:
    """`Ops` of which a token attends to later ones of its step, too, or does so with windows alone. Those of
    a prefix see each other whatever the window.
    """

    def __init__(self, ops: Ops, spec: PictureSpec) -> None:
        self._ops, self._spec = ops, spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def attention(
        self, layer: int, q: Array, k: Array | None, v: Array | None, shape: AttentionShape, *others: Any,
        **more: Any,
    ) -> Array:  # fmt: skip
        both_ways = shape.window > 0 or not self._spec.windows_alone
        shape = replace(shape, window=0) if self._spec.prefix else shape
        shape = replace(shape, bidirectional=both_ways, backward_window=both_ways)
        return self._ops.attention(layer, q, k, v, shape, *others, **more)


def _refuse(config: ModelConfig, parts: Parts, spec: PictureSpec) -> None:
    """Raises `UnsupportedModel` for a model whose layers cannot take pictures, or not such ones."""
    tabled = config.experts is not None and config.experts.tabled
    if tabled or (isinstance(config.hyper, GatedStreams) and config.hyper.ngrams is not None):
        raise UnsupportedModel(
            _("This model looks tokens up in its layers, so it cannot read pictures. Choose another model.")
        )
    if spec.deep and not (isinstance(parts.stack, Layered) and spec.deep <= config.layers):
        raise UnsupportedModel(
            _("This model's layers cannot take the additional rows of its pictures. Choose another model.")
        )
    alone = config.indexer, config.compressed, config.latent
    if spec.bidirectional and (config.chunked or any(each is not None for each in alone)):
        raise UnsupportedModel(
            _("This model's layers cannot look at a whole picture at once. Choose another model.")
        )


def run_in_pieces(program: Program, step: Step, which: npt.NDArray[np.bool_]) -> Floats:
    """What a program gives for some of a step's tokens, each of which has nothing to do with the others."""
    ids, places, found = step.token_ids[which], step.positions[which], list[Floats]()
    for at in range(0, len(ids), program.max_rows):
        own, own_places = (each[at : at + program.max_rows] for each in (ids, places))
        piece = Step(own, own_places, step.pages, len(own), states=step.states)
        found.append(program.run(piece).copy())
    return np.concatenate(found)
