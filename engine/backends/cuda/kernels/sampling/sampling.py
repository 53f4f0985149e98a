"""Samples a token on the device: three kernels, or four, after the pass that computes the logits.

`scan` reads the whole vocabulary, `sort` finds the most likely tokens, `draw` applies the
sampling steps, draws a token and prepares the next step. They decide like
`engine.sampling`; where they cannot, they set a flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.sampling.draw import draw_kernel
from engine.backends.cuda.kernels.sampling.layout import (
    LIST_WORDS,
    MOST,
    MOST_REQUESTED,
    PART,
    PARTIAL_WORDS,
    RAW_WANT,
    WANT,
)
from engine.backends.cuda.kernels.sampling.scan import scan_kernel
from engine.backends.cuda.kernels.sampling.sort import sort_kernel
from engine.backends.cuda.runtime.device import Device
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import torch

Launch = tuple[Kernel, tuple[int, int, int], tuple[int | float, ...]]
GROUPS = ((1 << 17, 64), (1 << 14, 16), (0, 4))
"""(Smallest vocabulary, adjacent tokens per group): there must be more groups than requested tokens."""


@dataclass(frozen=True)
class Shape:
    """The sizes for a vocabulary of `size` tokens: `parts` blocks scan it, in groups of `group` tokens."""

    size: int
    parts: int
    group: int

    @classmethod
    def of(cls, size: int) -> Shape:
        """The sizes for a vocabulary of `size` tokens."""
        return cls(size, -(-size // PART), next(group for least, group in GROUPS if size >= least))

    @property
    def stride(self) -> int:
        """Bytes of a row of the vocabulary, padded to whole blocks."""
        return 4 * PART * self.parts

    @property
    def groups(self) -> int:
        """The number of group maxima."""
        return self.parts * PART // self.group

    @property
    def requested(self) -> int:
        """How many of the most likely tokens to request if no step limits them, with room for a few more."""
        return MOST_REQUESTED if self.size <= MOST else min(MOST_REQUESTED, self.groups // 3)


@dataclass(frozen=True)
class Work:
    """Device memory between the kernels.

    `addresses` are those of group maxima, raw group maxima, partials, sorted list and raw sorted list.
    """

    memory: torch.Tensor
    addresses: tuple[int, int, int, int, int]

    @staticmethod
    def starts(shape: Shape) -> list[int]:
        """Byte offsets of the parts, and the end of the last one."""
        sizes = [shape.groups, shape.groups, PARTIAL_WORDS * shape.parts, LIST_WORDS, LIST_WORDS]
        return [0, *accumulate(-(-4 * size // 256) * 256 for size in sizes)]

    @classmethod
    def on(cls, device: Device, shape: Shape) -> Work:
        """Allocate zeroed memory on a device. Raises `NotEnoughMemory`."""
        starts = cls.starts(shape)
        memory = device.zeros(starts[-1])
        first, *others = (memory.data_ptr() + start for start in starts[:-1])
        return cls(memory, (first, others[0], others[1], others[2], others[3]))


@dataclass(frozen=True)
class Addresses:
    """The addresses of inputs and outputs; the last five are used only with a bias or penalties (`edits`)."""

    logits: int
    kept: int
    plan: int
    state: int
    tokens: int
    position: int
    rope_position: int
    uniforms: int
    results: int
    work: tuple[int, int, int, int, int]
    edits: bool = False
    scores: int = 0
    bias: int = 0
    amounts: int = 0
    latest: int = 0
    history: int = 0

    def with_edits(self, scores: int, bias: int, amounts: int, latest: int, history: int) -> Addresses:
        """These addresses with those of bias and penalties."""
        return replace(
            self, edits=True, scores=scores, bias=bias, amounts=amounts, latest=latest, history=history
        )


def launches(shape: Shape, at: Addresses, *, separate: bool) -> list[Launch]:
    """The kernels of one draw, in order.

    `separate`: the most likely tokens of the raw logits are needed, and they need their own list.
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
        at.uniforms, at.results, at.tokens, at.position, at.rope_position, at.amounts, at.latest, at.history,
    )  # fmt: skip
    return [*out, (draw_kernel(), one, last)]


def all_variants(shape: Shape) -> list[Kernel]:
    """All kernels that may sample over this vocabulary."""
    return [scan_kernel(shape.group, False), scan_kernel(shape.group, True), sort_kernel(), draw_kernel()]


def occurrences(text: Any, size: int, reach: int, fade: int) -> tuple[Any, Any]:
    """Occurrences of `size` ids in text (n,), in units of 1 / (fade + 1), and last places: (size,) int32.

    As in `engine.sampling.history`: an occurrence within the last `reach` places (-1: all)
    counts fully; further back it fades.
    """
    fade = fade if reach > 0 else 0
    places = np.arange(len(text))
    start = 0 if reach < 0 else len(text) - reach
    parts = np.clip(fade + 1 - np.maximum(start - places, 0), 0, fade + 1)
    amounts = np.bincount(text, parts, minlength=size).astype(np.int32)
    latest = np.zeros(size, np.int32)
    latest[text] = places  # with equal ids the last place remains
    return amounts, latest


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists, for vocabularies of real models."""
    for group in (16, 64):
        yield scan_kernel(group, False)
    yield scan_kernel(64, True)
    yield sort_kernel()
    yield draw_kernel()
