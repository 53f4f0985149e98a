"""A whole decoder, and the layers between its embedding and its last norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol, runtime_checkable

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.layers.features import Features
from engine.models.layers.parts import Block, Changes, Linear, Norm, RopeTables
from engine.tensors import Floats


class Stack(Protocol):
    """All layers, between the embedding and the last norm: x (T, E) -> (T, E)."""

    @property
    def lookups(self) -> Sequence[Weight]:
        """Further tables of which a pass reads the rows of its tokens alone."""
        ...

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array: ...


Observe = Callable[[int, Array], Array]
"""Hears of a hidden state (T, E), with the number of layers before it, and gives what takes its place."""


@runtime_checkable
class Layered(Stack, Protocol):
    """A stack in which each layer hands one hidden state of each token on to the next."""

    def observed(self, ops: Ops, x: Array, tables: RopeTables, observe: Observe) -> Array:
        """The same as a call; `observe` hears of x, and of what each layer makes, and may change it."""
        ...


def unobserved(layers: int, x: Array) -> Array:
    """An `Observe` that does nothing."""
    return x


@dataclass(frozen=True, slots=True)
class Blocks:
    """Layers one after the other."""

    blocks: tuple[Block, ...]
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        return self.observed(ops, x, tables, unobserved)

    def observed(self, ops: Ops, x: Array, tables: RopeTables, observe: Observe) -> Array:
        """As `Layered.observed`."""
        x = observe(0, x)
        for layers, block in enumerate(self.blocks, 1):
            x = observe(layers, block(ops, x, tables))
        return x


@dataclass(frozen=True, slots=True)
class Parts:
    """A whole decoder.

    With tied embeddings `head.weight` is `embed` itself. `positions` is a learned table (P, E). `project_in`
    and `project_out` stand between the embedding and the layers, and between these and the head. A `headless`
    model ends with its hidden states. With `narrow_positions` the table and `embed_norm` stand before
    `project_in`. `changes` are those of `embed`. `head_factors` multiply the logits, each token's by its own.
    `looking` are the layers for texts with pictures, where some look at these and `stack` is without them.
    """

    embed: Weight
    stack: Stack
    norm: Norm | None
    head: Linear
    positions: Floats | None = None
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float = 0.0
    embed_norm: Norm | None = None
    project_in: Linear | None = None
    project_out: Callable[[Ops, Array], Array] | None = None
    headless: bool = False
    narrow_positions: bool = False
    changes: Changes = field(default_factory=Changes)
    head_factors: Norm | None = None
    looking: Stack | None = None

    def __call__(
        self, ops: Ops, tables: RopeTables, kept: Floats | None = None, features: Features | None = None
    ) -> Array:
        """The logits (logit_rows, V) of the step's last rows; the rest is as in `hidden`."""
        x = self.hidden(ops, tables, kept, features)
        return x if self.headless else self.logits(ops, x)

    def logits(self, ops: Ops, x: Array) -> Array:
        """The logits of the last hidden states."""
        logits = self.head(ops, self.project_out(ops, x) if self.project_out else x)
        logits = self.head_factors(ops, logits) if self.head_factors else logits
        if self.logit_scale != 1.0 or self.logit_cap:
            logits = ops.soft_cap(logits, self.logit_scale, self.logit_cap)
        return logits

    def hidden(
        self, ops: Ops, tables: RopeTables, kept: Floats | None = None, features: Features | None = None
    ) -> Array:
        """The last hidden states (logit_rows, E) of the step's last rows, after the final norm. `kept` is as
        in `last`; with `features`, for which the stack must be `Layered`, it gets these of all rows.
        """
        return self.hidden_of(ops, self.embedded(ops), tables, kept, features)

    def embedded(self, ops: Ops) -> Array:
        """The scaled embeddings (T, E) of the step's tokens."""
        table = self.embed if self.changes.weight is None else self.changes.weight
        return ops.embed(table, self.embed_scale)

    def hidden_of(
        self, ops: Ops, x: Array, tables: RopeTables, kept: Floats | None = None,
        features: Features | None = None, deep: Sequence[Floats] = (),
    ) -> Array:  # fmt: skip
        """As `hidden`, of rows x in place of scaled embeddings. The given rows `deep`, each (at least
        `max_rows`, E), are added to the hidden states after the first layer, the second and so on, for which
        the stack must be `Layered`, too.
        """
        if self.project_in is not None and not self.narrow_positions:
            x = self.project_in(ops, x)
        if self.positions is not None:
            x = ops.add_positions(x, self.positions)
        x = self.embed_norm(ops, x) if self.embed_norm else x
        if self.project_in is not None and self.narrow_positions:
            x = self.project_in(ops, x)
        if features is None and not deep:
            return self.last(ops, self.stack(ops, x, tables), kept)
        assert isinstance(self.stack, Layered)
        states: dict[int, Array] = {}

        def observe(layers: int, x: Array) -> Array:
            if 0 < layers <= len(deep):
                x = ops.add(ops.given(deep[layers - 1]), x)  # in this order the sum is where the layer is
            states[layers] = x
            return x

        x = self.stack.observed(ops, x, tables, observe)
        if features is None:
            return self.last(ops, x, kept)
        assert kept is not None
        ops.keep(features(ops, states), kept)
        return self.last(ops, x)

    def last(self, ops: Ops, x: Array, kept: Floats | None = None) -> Array:
        """The normed last rows of what the layers made; the normed rows of all go to `kept` (rows, E)."""
        if kept is not None:
            return ops.last_rows(ops.keep(self.norm(ops, x) if self.norm else x, kept))
        x = ops.last_rows(x)
        return self.norm(ops, x) if self.norm else x
