"""Recording a model's forward pass as a tape, and replaying it.

The recorder runs the model's forward function once with symbolic buffers. When it is done it gives every buffer a place in
one arena (places are used again after a buffer's last use), fills in the argument blocks, and cuts the list of operations
into phases: an operation starts a new phase when it touches what an operation of the running phase writes, or writes what
one of them reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.backends.base import AttentionShape, Floats, Forward, RotaryTable, Step, Weight
from engine.backends.cache_types import key_bytes, value_bytes
from engine.backends.cpu import attention, linear, rows
from engine.backends.cpu.kernels import KERNELS
from engine.backends.cpu.memory import aligned
from engine.backends.cpu.step import LOGIT_ROWS, PAGES, POSITIONS, ROWS, SERIAL, SMALL_ROWS, TOKENS, WORDS
from engine.backends.cpu.store import CpuCache
from engine.backends.cpu.team import OPERATION, Team, Words, ticket_words
from engine.backends.cpu.weight import CpuWeight
from engine.core import PAGE_TOKENS

_TILE_TARGET = 24 << 10
"""Weight bytes of one ticket: about 2 microseconds of reading, so that taking tickets costs little."""


@dataclass(eq=False)
class Buffer:
    """A symbolic activation (rows, width) float32; `stride` is bytes of one row, whole vectors, the rest kept zero."""

    width: int
    on_logit_rows: bool = False
    place: int = -1

    @property
    def stride(self) -> int:
        """Bytes from row to row."""
        return (self.width + 15) // 16 * 64


@dataclass
class Operation:
    """One recorded kernel call. `arguments` holds ints and buffers; floats are stored by their bits."""

    kernel: str
    arguments: list[int | float | Buffer]
    reads: list[object]
    writes: list[object]
    tiles: tuple[int, int, int, int]
    on_logit_rows: bool = False


@dataclass
class Recorder:
    """`Ops` for the CPU: writes down operations instead of running them."""

    cache: CpuCache
    operations: list[Operation] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    scratch: int = linear.scratch_bytes(0)
    partial: np.ndarray[Any, Any] | None = None

    def _keep(self, values: Floats) -> int:
        """Address of a float32 vector padded with zeros to whole vectors; it lives as long as the tape."""
        copy = aligned((values.size + 15) // 16 * 64).view(np.float32)
        copy[: values.size] = values.reshape(-1)
        self.constants.append(copy)
        return int(copy.ctypes.data)

    def _add(self, kernel: str, arguments: list[int | float | Buffer], reads: list[object], writes: list[object], **more: Any) -> None:
        more.setdefault("tiles", (1, 1, 1, 1))
        self.operations.append(Operation(kernel, arguments, reads, writes, **more))

    def embed(self, table: Weight, scale: float = 1.0) -> Buffer:
        """See `Ops.embed`."""
        assert isinstance(table, CpuWeight)
        self.constants.append(table)
        y = Buffer(table.shape[1])
        arguments: list[int | float | Buffer] = [table.address, table.tile_bytes, table.blocks, table.shape[1], y, y.stride, float(scale)]
        self._add(f"embed_{table.family.name}", arguments, [], [y])
        return y

    def rms_norm(self, x: Buffer, weight: Floats, eps: float) -> Buffer:
        """See `Ops.rms_norm`."""
        y = Buffer(x.width, x.on_logit_rows)
        arguments: list[int | float | Buffer] = [x, x.stride, y, y.stride, self._keep(weight), x.width, float(eps)]
        self._add("rms_norm", arguments, [x], [y], on_logit_rows=x.on_logit_rows)
        return y

    def linear(self, x: Buffer, weight: Weight, bias: Floats | None = None, residual: Buffer | None = None) -> Buffer:
        """See `Ops.linear`."""
        assert isinstance(weight, CpuWeight)
        self.constants.append(weight)
        y = Buffer(weight.shape[0], x.on_logit_rows)
        group = max(2, _TILE_TARGET // weight.tile_bytes // 2 * 2)
        self.scratch = max(self.scratch, linear.scratch_bytes(weight.blocks * weight.family.unit))
        arguments: list[int | float | Buffer] = [
            weight.address, weight.tile_bytes, weight.tiles, weight.blocks, x, x.stride, y, y.stride,
            0 if bias is None else self._keep(bias), 0 if residual is None else residual, group, int(x.on_logit_rows), weight.shape[1],
        ]  # fmt: skip
        tickets = -(-weight.tiles // group)
        reads: list[object] = [x] if residual is None else [x, residual]
        tiles = (tickets, SMALL_ROWS, tickets, 1 << 40)
        self._add(f"linear_{weight.family.name}", arguments, reads, [y], tiles=tiles, on_logit_rows=x.on_logit_rows)
        return y

    def rope(self, x: Buffer, table: RotaryTable, heads: int) -> Buffer:
        """See `Ops.rope`."""
        half = table.cos.shape[1]
        cos, sin = self._keep_table(table)
        arguments: list[int | float | Buffer] = [x, x.stride, cos, sin, half, heads, x.width // heads, int(table.interleaved)]
        self._add("rope", arguments, [x], [x])
        return x

    def _keep_table(self, table: RotaryTable) -> tuple[int, int]:
        cos, sin = np.ascontiguousarray(table.cos, np.float32), np.ascontiguousarray(table.sin, np.float32)
        self.constants += [cos, sin]
        return int(cos.ctypes.data), int(sin.ctypes.data)

    def attention(self, layer: int, q: Buffer, k: Buffer, v: Buffer, shape: AttentionShape) -> Buffer:
        """See `Ops.attention`."""
        keys, values = self.cache.addresses(layer)
        kind, heads, groups, dim = self.cache.kind, shape.heads, shape.kv_heads, shape.head_dim
        key_page, value_page = PAGE_TOKENS * key_bytes(kind.keys, dim), PAGE_TOKENS * value_bytes(kind.values, dim)
        self.scratch = max(self.scratch, attention.scratch_bytes(heads, groups, dim))
        size = attention.partial_bytes(heads, groups, dim)
        if self.partial is None or self.partial.size < size:
            self.partial = aligned(size)
            self.constants.append(self.partial)
        partial = int(self.partial.ctypes.data)
        if kind.keys == "q4":
            arguments: list[int | float | Buffer] = [k, k.stride, keys, groups, dim, key_page, q, q.stride, heads]
            self._add("store_keys_q4", arguments, [k, q], [("keys", layer)], tiles=(groups, SMALL_ROWS, groups, 1 << 40))
        else:
            self._add(f"store_keys_{kind.keys}", [k, k.stride, keys, groups, dim, key_page], [k], [("keys", layer)])
        self._add(f"store_values_{kind.values}", [v, v.stride, values, groups, dim, value_page], [v], [("values", layer)])
        y = Buffer(heads * dim)
        arguments = [
            q, q.stride, keys, values, y, y.stride, heads, groups, dim, float(shape.scale), partial,
            key_page, value_page, *attention.widths(kind, dim),
        ]  # fmt: skip
        reads: list[object] = [q, ("keys", layer), ("values", layer)]
        tiles = (groups * attention.SPLITS, SMALL_ROWS, groups, SMALL_ROWS)
        self._add(f"attention_{kind.keys}_{kind.values}", arguments, reads, [y, "partial"], tiles=tiles)
        self._add("combine", [partial, y, y.stride, heads, groups, dim], ["partial"], [y], tiles=(heads, SMALL_ROWS, 0, SMALL_ROWS))
        return y

    def gated(self, gate: Buffer, up: Buffer, activation: str) -> Buffer:
        """See `Ops.gated`."""
        y = Buffer(gate.width, gate.on_logit_rows)
        chunks = -(-(y.stride // 64) // rows.SILU_VECTORS)
        self._add("silu_mul", [gate, up, y, y.stride, chunks], [gate, up], [y], tiles=(chunks, 1, chunks, 1))
        return y

    def last_rows(self, x: Buffer) -> Buffer:
        """See `Ops.last_rows`."""
        y = Buffer(x.width, on_logit_rows=True)
        self._add("last_rows", [x, y, x.stride], [x], [y], on_logit_rows=True)
        return y


class Tape:
    """A recorded program. See `engine.backends.base.Program`."""

    def __init__(self, forward: Forward, cache: CpuCache, max_rows: int, threads: int) -> None:
        recorder = Recorder(cache)
        self._logits: Buffer = forward(recorder)
        self.max_rows = max_rows
        self._cache = cache
        self._operations = recorder.operations
        places = _places(self._operations, self._logits)
        self._arena = [aligned(max_rows * stride) for stride in places]
        self._constants = recorder.constants
        phases = _phases(self._operations)
        self._phases: Words = np.array(phases, np.int64)
        self._tape = self._assemble()
        self._tickets: Words = ticket_words(len(phases))
        self._step: Words = aligned(8 * WORDS).view(np.int64)
        self._team = Team(KERNELS.team, threads, recorder.scratch)

    def _value(self, argument: int | float | Buffer) -> int:
        if isinstance(argument, Buffer):
            return int(self._arena[argument.place].ctypes.data)
        return int(np.float64(argument).view(np.int64)) if isinstance(argument, float) else argument

    def _assemble(self) -> Words:
        tape = aligned(8 * OPERATION * len(self._operations)).view(np.int64).reshape(-1, OPERATION)
        blocks = aligned(8 * 16 * len(self._operations)).view(np.int64).reshape(-1, 16)
        self._constants.append(blocks)
        for i, operation in enumerate(self._operations):
            blocks[i, : len(operation.arguments)] = [self._value(a) for a in operation.arguments]
            tape[i, :7] = [KERNELS.address(operation.kernel), blocks[i].ctypes.data, *operation.tiles, int(operation.on_logit_rows)]
        return tape.reshape(-1)

    @property
    def phase_count(self) -> int:
        """Phases of one replay: how often all threads wait for each other."""
        return len(self._phases) - 1

    def run(self, step: Step) -> Floats:
        """See `Program.run`."""
        count = len(step.token_ids)
        assert 0 < count <= self.max_rows
        assert step.logit_rows <= count
        tokens, positions, pages = (np.ascontiguousarray(a, np.int32) for a in (step.token_ids, step.positions, step.pages))
        words = self._step
        words[ROWS], words[LOGIT_ROWS], words[SERIAL] = count, step.logit_rows, words[SERIAL] + 1
        words[TOKENS], words[POSITIONS], words[PAGES] = tokens.ctypes.data, positions.ctypes.data, pages.ctypes.data
        self._team.replay(self._tape, self._phases, words, self._tickets)
        values = self._arena[self._logits.place].view(np.float32).reshape(self.max_rows, -1)
        return values[: step.logit_rows, : self._logits.width]

    def close(self) -> None:
        """See `Program.close`."""
        self._team.close()


def _places(operations: list[Operation], result: Buffer) -> list[int]:
    """Give every buffer a place; returns the row bytes of each place. A place is free after its buffer's last use."""
    last: dict[Buffer, int] = {}
    for i, operation in enumerate(operations):
        for thing in [*operation.reads, *operation.writes]:
            if isinstance(thing, Buffer):
                last[thing] = i
    last[result] = len(operations)
    strides: list[int] = []
    free: list[int] = []
    for i, operation in enumerate(operations):
        for thing in operation.writes:
            if isinstance(thing, Buffer) and thing.place < 0:
                fitting = [p for p in free if strides[p] == thing.stride]
                thing.place = fitting[0] if fitting else len(strides)
                if fitting:
                    free.remove(thing.place)
                else:
                    strides.append(thing.stride)
        free += {t.place for t in [*operation.reads, *operation.writes] if isinstance(t, Buffer) and last[t] == i}
    return strides


def _phases(operations: list[Operation]) -> list[int]:
    """Index of the first operation of each phase, and the number of operations at the end."""

    def names(things: list[object]) -> set[object]:
        return {("place", t.place) if isinstance(t, Buffer) else t for t in things}

    starts: list[int] = [0]
    read: set[object] = set()
    written: set[object] = set()
    for i, operation in enumerate(operations):
        reads, writes = names(operation.reads), names(operation.writes)
        if (reads | writes) & written or writes & read:
            starts.append(i)
            read, written = set(), set()
        read |= reads
        written |= writes
    return [*starts, len(operations)]
