"""The draw of a token on the device: three kernels, or four, behind the pass that gives the logits.

`scan` looks at the whole vocabulary, `sort` finds the likeliest tokens, `draw` applies the steps, draws and
gets everything ready for the next step. They decide as `engine.sampling` does; where they cannot, they say
so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.sampling.draw import draw_kernel
from engine.backends.cuda.kernels.sampling.layout import (
    LIST_WORDS,
    MOST,
    MOST_WANTED,
    PART,
    PARTIAL_WORDS,
    RAW_WANT,
    WANT,
)
from engine.backends.cuda.kernels.sampling.scan import scan_kernel
from engine.backends.cuda.kernels.sampling.sort import sort_kernel
from engine.backends.cuda.runtime.device import Device

if TYPE_CHECKING:
    import torch

Launch = tuple[Kernel, tuple[int, int, int], tuple[int | float, ...]]
GROUPS = ((1 << 17, 64), (1 << 14, 16), (0, 4))
"""From so many tokens on, how many neighbours make a group: there must be more groups than tokens that are
wanted, but not too many.
"""


@dataclass(frozen=True)
class Shape:
    """Of a vocabulary of V tokens: `parts` blocks look at it, `stride` are the bytes of a row of it,
    padded.
    """

    size: int
    parts: int
    group: int

    @classmethod
    def of(cls, size: int) -> Shape:
        """For V tokens."""
        return cls(size, -(-size // PART), next(group for least, group in GROUPS if size >= least))

    @property
    def stride(self) -> int:
        """Bytes."""
        return 4 * PART * self.parts

    @property
    def groups(self) -> int:
        """All maxima of groups."""
        return self.parts * PART // self.group

    @property
    def wanted(self) -> int:
        """How many of the likeliest to ask for where nothing says how many are needed, so that what is
        found has room.
        """
        return MOST_WANTED if self.size <= MOST else min(MOST_WANTED, self.groups // 3)


@dataclass(frozen=True)
class Work:
    """Device memory between the kernels; `addresses` are those of groups, raw groups, partials, the list
    and the raw list.
    """

    memory: torch.Tensor
    addresses: tuple[int, int, int, int, int]

    @staticmethod
    def starts(shape: Shape) -> list[int]:
        """Where its parts begin, and where the last one ends."""
        sizes = [shape.groups, shape.groups, PARTIAL_WORDS * shape.parts, LIST_WORDS, LIST_WORDS]
        return [0, *accumulate(-(-4 * size // 256) * 256 for size in sizes)]

    @classmethod
    def on(cls, device: Device, shape: Shape) -> Work:
        """Zeroed."""
        starts = cls.starts(shape)
        memory = device.zeros(starts[-1])
        first, *others = (memory.data_ptr() + start for start in starts[:-1])
        return cls(memory, (first, others[0], others[1], others[2], others[3]))


@dataclass(frozen=True)
class Addresses:
    """Where everything lies; the last five are used with bias or penalties only."""

    logits: int
    kept: int
    plan: int
    state: int
    tokens: int
    position: int
    uniforms: int
    records: int
    work: tuple[int, int, int, int, int]
    edits: bool = False
    scores: int = 0
    bias: int = 0
    amounts: int = 0
    latest: int = 0
    history: int = 0

    def with_edits(self, scores: int, bias: int, amounts: int, latest: int, history: int) -> Addresses:
        """With bias and penalties."""
        return replace(
            self, edits=True, scores=scores, bias=bias, amounts=amounts, latest=latest, history=history
        )


def launches(shape: Shape, at: Addresses, *, separate: bool) -> list[Launch]:
    """The kernels of one draw in their order; `separate`: the model's own likeliest are asked for, and are
    not those of the scores.
    """
    groups, raw_groups, partials, ordered, raw_ordered = at.work
    values = at.scores if at.edits else at.logits
    scan_arguments = (
        at.logits, at.kept, shape.stride, at.state, at.plan, at.position, at.bias, at.amounts, at.latest,
        at.scores, groups, raw_groups, partials, shape.size,
    )  # fmt: skip
    one = (1, 1, 1)
    out: list[Launch] = [
        (scan_kernel(shape.group, at.edits), (shape.parts, 1, 1), scan_arguments),
        (sort_kernel(), one, (values, groups, at.plan, WANT, ordered, shape.groups, shape.group)),
    ]
    if separate:
        out.append(
            (
                sort_kernel(),
                one,
                (at.logits, raw_groups, at.plan, RAW_WANT, raw_ordered, shape.groups, shape.group),
            )
        )
    last = (
        ordered, raw_ordered if separate else ordered, at.logits, at.plan, at.state, partials, shape.parts,
        at.uniforms, at.records, at.tokens, at.position, at.amounts, at.latest, at.history,
    )  # fmt: skip
    return [*out, (draw_kernel(), one, last)]


def all_variants(shape: Shape) -> list[Kernel]:
    """Every kernel that draws over such a vocabulary."""
    return [scan_kernel(shape.group, False), scan_kernel(shape.group, True), sort_kernel(), draw_kernel()]


def occurrences(text: Any, size: int, reach: int, fade: int) -> tuple[Any, Any]:
    """How often each of `size` ids occurs in text (n,), and where last: (size,) int32, the former in parts of
    `fade` + 1.

    As `engine.sampling.history`: within the last `reach` places (-1: all) an occurrence is whole, before them
    it fades.
    """
    fade = fade if reach > 0 else 0
    places = np.arange(len(text))
    start = 0 if reach < 0 else len(text) - reach
    parts = np.clip(fade + 1 - np.maximum(start - places, 0), 0, fade + 1)
    amounts = np.bincount(text, parts, minlength=size).astype(np.int32)
    latest = np.zeros(size, np.int32)
    latest[text] = places  # of equal ids the last place stays
    return amounts, latest


def variants() -> Iterator[Kernel]:
    """All kernels of drawing, for vocabularies of real models."""
    for group in (16, 64):
        yield scan_kernel(group, False)
    yield scan_kernel(64, True)
    yield sort_kernel()
    yield draw_kernel()
