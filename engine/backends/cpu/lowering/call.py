"""The calls of a pass, as lowering writes them down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.backends.cpu.kernels.linear import linear
from engine.backends.cpu.lowering.constants import Constants
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import CacheAddresses
from engine.backends.graph.nodes import Routes


@dataclass(frozen=True)
class Slice:
    """The rows of a buffer from a column on, as an argument."""

    buffer: Buffer
    first: int


Argument = int | float | Buffer | Slice


@dataclass
class Operation:
    """One kernel call of a pass; float arguments are passed by their bits.

    `tiles` are (tiles, rows of a tile) of small batches, then of larger ones; with 0 tiles the kernel is left
    out. What it reads beside activations, for the profile: `bytes` of weights of the `shape` (M, K), at most
    `row_bytes` for each row unless that is 0, and `position_bytes` for each position up to `window` back.
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


class Calls:
    """The calls of a pass so far, and the memory they need: `scratch` bytes for each thread, and `constants`.

    `prompt_bits` are those of activations in large batches.
    """

    def __init__(self, cache: CacheAddresses, prompt_bits: int, constants: Constants) -> None:
        self.cache, self.prompt_bits, self.constants = cache, prompt_bits, constants
        self.operations: list[Operation] = []
        self.scratch = linear.scratch_bytes(0)
        self.inputs = 0
        """Inputs of products so far; each has a number, as the key of its packed form in scratch memory."""
        self.expert_tags = 0
        """Experts of all products so far."""
        self._partial = 0, 0
        self.sorted_routes: dict[Routes, tuple[Buffer, int]] = {}
        """Where the rows of routes went: their places, and the address of the table of experts."""

    def add(
        self, kernel: str, arguments: list[Argument], reads: list[object], writes: list[object], **more: Any
    ) -> None:
        self.operations.append(Operation(kernel, arguments, reads, writes, **more))

    def partial_results(self, size: int) -> int:
        """Address of `size` bytes for the partial results of attention, which layers share."""
        if self._partial[1] < size:
            self._partial = self.constants.room(size), size
        return self._partial[0]

    def each_row(
        self, kernel: str, arguments: list[Argument], reads: list[object], y: Buffer, chunks: int = 1
    ) -> None:
        """A kernel with `chunks` tiles for each row of y."""
        tiles = (chunks * y.copies, 1, chunks * y.copies, 1)
        self.add(kernel, arguments, reads, [y], tiles=tiles, on_logit_rows=y.on_logit_rows)
