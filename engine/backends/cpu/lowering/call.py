"""The kernel calls of a pass, as lowering collects them.

The lowering of a kernel is in the kernel's file, which ends with its rows of the table (`LOWER`); that of
products and attention, which have several kernels, is in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.backends.cpu.kernels.linear import linear
from engine.backends.cpu.lowering.constants import Constants
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import StateAddresses
from engine.backends.graph.moe import Routes
from engine.backends.graph.nodes import Node
from engine.lazy_dataclass import dataclass

TAG_BITS = 24
"""Bits of a tag. All products of experts and of heads share a program's tags, one for each expert or head."""


@dataclass(frozen=True)
class Slice:
    """A buffer's rows from column `first` on, as an argument."""

    buffer: Buffer
    first: int


Argument = int | float | Buffer | Slice


@dataclass
class Operation:
    """One kernel call of a pass; floats are passed as the bits of a float64.

    `tiles` is (tiles, rows of a tile) for small batches, then for large ones; 0 tiles leave the kernel out.
    For the profile it says what is read besides activations: `bytes` of weights of the `shape` (M, K), at
    most `row_bytes` for each row unless that is 0, and `position_bytes` for each position in `window`.
    """

    kernel: str
    arguments: list[Argument]
    reads: list[object]
    writes: list[object]
    tiles: tuple[int, int, int, int] = (1, 1, 1, 1)
    on_logit_rows: bool = False
    bytes: int = 0
    row_bytes: int = 0
    position_bytes: int = 0
    window: int = 0
    shape: tuple[int, ...] = ()
    prefetches: bool = False
    """Whether its word `linear.A_AHEAD` says how far ahead weights are prefetched."""


class Calls:
    """The calls of a pass so far, and their memory: `scratch` bytes for each thread, and `constants`.

    Large batches take activations of `prompt_bits` bits in products with integer codes. Products are divided
    for as many `threads`.
    """

    def __init__(self, cache: StateAddresses, prompt_bits: int, constants: Constants, threads: int) -> None:
        self.cache, self.prompt_bits, self.constants = cache, prompt_bits, constants
        self.threads = threads
        self.operations: list[Operation] = []
        self.scratch = linear.scratch_bytes(0)
        self.inputs = 0
        """Inputs of products so far; an input's number identifies its packed form in scratch memory."""
        self.expert_tags = 0
        """Experts and heads of all products so far."""
        self._partial = 0, 0
        self.sorted_routes: dict[Routes, tuple[Buffer, int]] = {}
        """For each routes: the buffer of the rows' places, and the address of the table of routes."""

    def add(
        self, kernel: str, arguments: list[Argument], reads: list[object], writes: list[object], **more: Any
    ) -> None:
        self.operations.append(Operation(kernel, arguments, reads, writes, **more))

    def partial_results(self, size: int) -> int:
        """Address of at least `size` bytes for the partial results of attention, which layers share."""
        if self._partial[1] < size:
            self._partial = self.constants.room(size), size
        return self._partial[0]

    def each_row(
        self, kernel: str, arguments: list[Argument], reads: list[object], y: Buffer, chunks: int = 1
    ) -> None:
        """Add a call with `chunks` tiles for each row of y."""
        tiles = (chunks * y.copies, 1, chunks * y.copies, 1)
        self.add(kernel, arguments, reads, [y], tiles=tiles, on_logit_rows=y.on_logit_rows)


Table = Mapping[type[Node], Callable[[Calls, Any], None]]
"""The functions that add the calls of types of node."""
