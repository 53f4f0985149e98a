"""Recorded calls of kernels: which one, over how many blocks, with what arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.runtime.device import Device
from engine.backends.graph.buffers import Buffer

if TYPE_CHECKING:
    import torch

SMALL_BATCH = 8
"""Steps of up to this many rows are kernels alone, in one graph; longer ones are kernels and torch's
matrix products.
"""


class Runtime(Enum):
    """Runtime arguments of a call: known only when a step runs."""

    ROWS = auto()
    """int32: the rows of the operation (of its copies: rows times `copies`; of logit rows: those)."""
    FIRST_ROW = auto()
    """int32: the step's first row that wants logits."""
    POSITION = auto()
    """Address of an int32: the position of the step's first row."""
    TOKENS = auto()
    """Address of int32 token ids, one a row."""
    PAGES = auto()
    """Address of the int32 block table: page j holds positions 256 j .. 256 j + 255."""


Argument = int | float | Buffer | Runtime
Blocks = Callable[[int], tuple[int, int, int]]
"""The grid for so many rows."""


@dataclass(frozen=True)
class Call:
    """One kernel in a recorded pass; a `Buffer` among the arguments becomes its address.

    `reads` and `writes` name what it touches: buffers, and whatever else orders calls, such as a layer's
    keys. Floats are float32.
    """

    kernel: Kernel
    blocks: Blocks
    arguments: tuple[Argument, ...]
    reads: tuple[object, ...]
    writes: tuple[object, ...]
    on_logit_rows: bool = False
    copies: int = 1


def each_row(chunks: int = 1) -> Blocks:
    """`chunks` blocks for each row: block (chunk, row)."""
    return lambda rows: (chunks, rows, 1)


class Bound(Protocol):
    """A recorded step of more than `SMALL_BATCH` rows while it runs, as torch's part of it sees it."""

    @property
    def device(self) -> Device:
        """Where it runs."""
        ...

    @property
    def rows(self) -> int:
        """Of the operation: the step's rows, or its logit rows; times `copies`."""
        ...

    @property
    def position(self) -> int:
        """Of the step's first row."""
        ...

    @property
    def pages(self) -> npt.NDArray[np.int32]:
        """The block table, on the host."""
        ...

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """float32 (rows * copies, width) on the device, a view."""
        ...

    def address(self, argument: Argument) -> int | float:
        """The value of an argument."""
        ...

    def launch(self, call: Call) -> None:
        """A kernel, in order with torch's work."""
        ...

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        """uint8 (size,) on the device, until another operation asks for that `place`; it is not kept for this
        one alone.

        The size is at most what the call's `rooms` say of the place.
        """
        ...


@dataclass(frozen=True)
class Room:
    """Bytes of scratch memory that a call needs: `fixed` whatever the step, more for each of its rows and
    each position it sees."""

    fixed: int = 0
    row: int = 0
    position: int = 0

    def bytes(self, rows: int, positions: int) -> int:
        """For steps of up to so many rows that see up to so many positions."""
        return self.fixed + self.row * rows + self.position * positions


@dataclass(frozen=True)
class TorchCall:
    """What torch does in steps of more than `SMALL_BATCH` rows, in place of kernels that are made for few. It
    may launch `kernels`.

    `rooms` is the scratch memory that it asks for, by place; a program takes it before the first step.
    """

    run: Callable[[Bound], None]
    reads: tuple[object, ...]
    writes: tuple[object, ...]
    kernels: tuple[Kernel, ...] = ()
    on_logit_rows: bool = False
    copies: int = 1
    rooms: Mapping[int, Room] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """One operation of a pass: what runs for few rows, and, where that is something else, for many."""

    few: tuple[Call, ...]
    many: tuple[Call | TorchCall, ...] | None = None
