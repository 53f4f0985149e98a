"""The calls of a lowered pass: which kernel, over how many blocks, with what arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.runtime.device import Device
from engine.backends.graph.buffers import Buffer
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import torch

SMALL_BATCH = 8
"""Steps of up to this many rows use kernels only, in one graph; longer ones use torch's products, too."""


class Runtime(Enum):
    """Runtime arguments of a call: known only when a step runs."""

    ROWS = auto()
    """int32: the rows of the call (the step's rows or its logit rows, times `copies`)."""
    FIRST_ROW = auto()
    """int32: the step's first row that needs logits."""
    POSITIONS = auto()
    """Address of int32 positions, one a row."""
    ROPE_POSITIONS = auto()
    """Address of int32 rows of rotary tables, one a row (`Step.rope_positions`)."""
    TOKENS = auto()
    """Address of int32 token ids, one a row."""
    PAGES = auto()
    """Address of the int32 block tables, one after the other: page j of a sequence holds its positions
    256 j .. 256 j + 255.
    """
    RUNS = auto()
    """0 in a step over one sequence; over several, the address of four int32 for each row: the first row of
    its run (the rows of its sequence), the row after the last, where the run's block table begins in `PAGES`,
    and 0."""
    STATES = auto()
    """Address of eight int32 for each row, of which a run's first row has its own: the state before position
    p is number p % 4, the one after the tokens up to p is number 4 + p % 4; -1 before the first is none.
    """
    CROSS_POSITIONS = auto()
    """As the next two, of what rows attend to in cross-attention (`Step.cross`): the address of the last
    position that a row sees.
    """
    CROSS_PAGES = auto()
    """As `PAGES`."""
    CROSS_RUNS = auto()
    """As `RUNS`, where each row of a small batch is a run of its own."""


Argument = int | float | Buffer | Runtime
Blocks = Callable[[int], tuple[int, int, int]]
"""The grid for a number of rows."""


@dataclass(frozen=True)
class Call:
    """One kernel launch; a `Buffer` among the arguments becomes its address, and floats are float32.

    `reads` and `writes` name what it touches: buffers, and whatever else
    orders calls, such as a layer's keys. `several` is the call in steps over several sequences, if
    that is another one.
    """

    kernel: Kernel
    blocks: Blocks
    arguments: tuple[Argument, ...]
    reads: tuple[object, ...]
    writes: tuple[object, ...]
    on_logit_rows: bool = False
    copies: int = 1
    several: Call | None = None


class Bound(Protocol):
    """A step of a large batch while it runs, as a `TorchCall` sees it."""

    @property
    def device(self) -> Device:
        """The device that runs the call."""
        ...

    @property
    def rows(self) -> int:
        """Rows of the call: the step's rows or its logit rows, times `copies`."""
        ...

    @property
    def position(self) -> int:
        """The position of the step's first row."""
        ...

    @property
    def cross_length(self) -> int:
        """How many positions a row sees in cross-attention."""
        ...

    @property
    def pages(self) -> npt.NDArray[np.int32]:
        """The block table, on the host."""
        ...

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """float32 (rows * copies, width) on the device, a view."""
        ...

    def address(self, argument: Argument) -> int | float:
        """The value of an argument: a buffer's address, or what is known when the step runs."""
        ...

    def launch(self, call: Call) -> None:
        """Launch a kernel, in order with torch's work."""
        ...

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        """uint8 (size,) on the device, until another call asks for the same `place`.

        The size is at most what the call's `scratch_sizes` say of the place.
        """
        ...


@dataclass(frozen=True)
class ScratchSize:
    """Bytes of scratch memory that a call needs: `fixed` ones, and more for each row and each position."""

    fixed: int = 0
    row: int = 0
    position: int = 0

    def bytes(self, rows: int, positions: int) -> int:
        """For steps of up to `rows` rows that see up to `positions` positions."""
        return self.fixed + self.row * rows + self.position * positions


@dataclass(frozen=True)
class TorchCall:
    """Work that torch does in large batches, where the small-batch kernels are slow; it may launch `kernels`.

    `scratch_sizes` is the scratch memory that it asks for, by place; a program
    allocates it before the first step.
    """

    run: Callable[[Bound], None]
    reads: tuple[object, ...]
    writes: tuple[object, ...]
    kernels: tuple[Kernel, ...] = ()
    on_logit_rows: bool = False
    copies: int = 1
    scratch_sizes: Mapping[int, ScratchSize] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """The calls of one operation in small batches, and in large ones if they differ."""

    small: tuple[Call, ...]
    large: tuple[Call | TorchCall, ...] | None = None
