"""A model's forward pass as a program: its kernel calls in one array, which a pool of threads replays.

Each buffer of the lowered pass gets a place in an arena (places are reused after a buffer's last use), the
argument blocks are filled in, and the operations are divided into stages (see `lowering.stages`).
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from engine.backends.base import Forward, Step
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.decode_loop import decode_loop_of
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.cpu.lowering.call import Argument, Operation, Slice
from engine.backends.cpu.lowering.lower import LoweredPass
from engine.backends.cpu.lowering.stages import stages_of
from engine.backends.cpu.runtime.cross_block import CrossBlock
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.read_ahead import choose_read_ahead
from engine.backends.cpu.runtime.step_block import (
    CROSS,
    KEPT,
    LOGIT_ROWS,
    POSITIONS,
    ROPE_POSITIONS,
    ROWS,
    RUN_FIRST,
    RUN_FROM,
    RUN_PAGES,
    RUN_ROWS,
    RUN_TABLE,
    RUN_TO,
    RUN_WORDS,
    RUNS,
    SAMPLED,
    SERIAL,
    SMALL_BATCH,
    TOKENS,
)
from engine.backends.cpu.runtime.thread_pool import CapturedProgram, ThreadPool
from engine.backends.cpu.runtime.work_stealing import OPERATION, Words
from engine.backends.decode_loop import DecodeLoop, SamplingPlan
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.memory_plan import assign_places
from engine.backends.runs import run_singly
from engine.tensors import Floats, Ints

_PAST_THE_END = "a position past the end of a table"
ARGUMENTS = 40
"""int64 words of an argument block: five cache lines."""


class CpuProgram:
    """A `Program` that replays its calls on a pool of threads."""

    def __init__(
        self, forward: Forward, cache: CpuCache, max_rows: int, threads: int, prompt_bits: int = 16,
        beside: CpuProgram | None = None,
    ) -> None:  # fmt: skip
        """With a program `beside` it, both use the same threads: they are replayed in turns, and closed
        together.
        """
        lowered = LoweredPass(forward, cache, prompt_bits, threads=threads)
        # the rest of a step would read the given rows of its beginning
        self._first_rows_apart = prompt_bits == 8 and not lowered.takes_rows
        self.max_rows, self.batch_rows = max_rows, SMALL_BATCH
        self._logits, self._operations = lowered.logits, lowered.operations
        self._positions, self._rope_positions = lowered.positions, lowered.rope_positions
        for _ in KERNELS.compile(lowered.kernels):
            pass
        places = assign_places(self._operations, self._logits)
        rows = -(-max_rows // LANES) * LANES  # some kernels take 16 rows at once
        self._arena = [aligned(rows * row_bytes) for row_bytes in places]
        self._constants = [*lowered.constants.kept, lowered.constants, cache]  # calls hold addresses in them
        self._stages: Words = np.array(stages_of(self._operations), np.int64)
        self._step: Words = aligned(2 * CROSS).view(np.int64)
        self._calls, self._threads = self._assemble(), threads
        self._captured = CapturedProgram(self._calls, self._stages, self._step, threads)
        self._parts: dict[tuple[int, int], CapturedProgram] = {}  # of some stages, for `run_in_parts`
        # A step's arrays are copied, because getting an array's address takes longer.
        self._tokens, self._places, self._ropes = (aligned(4 * max_rows).view(np.int32) for _ in range(3))
        self._step[[TOKENS, POSITIONS]] = self._tokens.ctypes.data, self._places.ctypes.data
        self._cross = CrossBlock(self._step[CROSS // 8 :], max_rows) if lowered.crosses else None
        self._rope_addresses = int(self._places.ctypes.data), int(self._ropes.ctypes.data)
        self._pages = self._room_for_pages(16)
        self._values: Floats = (
            self._arena[self._logits.place]
            .view(np.float32)
            .reshape(rows, -1)[:max_rows, : self._logits.width]
        )
        self._first: Floats = self._values[:1]
        self._row: Floats = self._values[0]
        self._words = self._step.data
        # a recurrent model's surplus steps would do harm; what rows attend to beside their text is the host's
        self._sampling = None if cache.states.shapes or lowered.crosses else lowered.sampling
        self._pool = self._threads_of(beside, threads, lowered.scratch)
        choose_read_ahead(self._operations, self._calls.reshape(-1, OPERATION), self._blocks, self._time)
        self.stamps: Words | None = None
        """For a profile: `run` writes the times of the stages here; see `ThreadPool.replay`."""

    def _threads_of(self, beside: CpuProgram | None, threads: int, scratch: int) -> ThreadPool:
        """Those of a program `beside` this one, if they have so much scratch memory; else new ones."""
        if beside is not None and beside._pool.users and beside._pool.scratch_bytes >= scratch:
            beside._pool.users += 1
            return beside._pool
        return ThreadPool(KERNELS.pool, threads, scratch)

    def _time(self, operations: Words, stages: Words, stamps: Words) -> None:
        """Replay these operations in a step of one row, and write the stages' times."""
        self._set_rows(1, 1, 0)
        program = CapturedProgram(operations, stages, self._step, self._threads)
        self._constants.append(program)  # see `ThreadPool.replay`
        self._pool.replay(program, stamps)

    def _value(self, argument: Argument) -> int:
        if isinstance(argument, Slice):
            return self._value(argument.buffer) + 4 * argument.first
        if isinstance(argument, Buffer):
            return int(self._arena[argument.place].ctypes.data)
        return int(np.float64(argument).view(np.int64)) if isinstance(argument, float) else argument

    def _assemble(self) -> Words:
        words = aligned(8 * OPERATION * len(self._operations)).view(np.int64).reshape(-1, OPERATION)
        blocks = aligned(8 * ARGUMENTS * len(self._operations)).view(np.int64).reshape(-1, ARGUMENTS)
        self._blocks: Words = blocks
        self._constants.append(blocks)
        for i, operation in enumerate(self._operations):
            blocks[i, : len(operation.arguments)] = [self._value(a) for a in operation.arguments]
            words[i, :7] = [
                KERNELS.address(operation.kernel),
                blocks[i].ctypes.data,
                *operation.tiles,
                int(operation.on_logit_rows),
            ]
        return words.reshape(-1)

    @property
    def stage_count(self) -> int:
        """Number of stages: how often a replay makes all threads wait for each other."""
        return len(self._stages) - 1

    @property
    def stages(self) -> list[list[Operation]]:
        """The operations of each stage."""
        return [self._operations[first:last] for first, last in pairwise(self._stages)]

    def run(self, step: Step) -> Floats:
        if self._first_rows_apart and step.positions[0] == 0 and len(step.token_ids) > SMALL_BATCH:
            return self._begin(step)
        if step.runs and len(step.token_ids) > self.batch_rows:
            return run_singly(self.run, step)
        self._set(step)
        self._pool.replay(self._captured, self.stamps)
        if step.logit_rows == 1:
            return self._first
        values: Floats = self._values[: step.logit_rows]
        return values

    def run_in_parts(self, step: Step, stages: int) -> Generator[None, None, Floats]:
        """`run` of a step of one sequence, which yields after every `stages` stages: then other programs
        may run, or the step may be given up.
        """
        assert not step.runs
        assert not self._first_rows_apart
        self._set(step)
        for start in range(0, self.stage_count, stages):
            if start:
                yield
            if (start, stages) not in self._parts:
                ends: Words = np.array(self._stages[start : start + stages + 1])
                self._parts[start, stages] = CapturedProgram(self._calls, ends, self._step, self._threads)
            self._pool.replay(self._parts[start, stages])
        values: Floats = self._values[: step.logit_rows]
        return values

    def _set(self, step: Step) -> None:
        """Write a step to the step block."""
        tokens, places, pages, rows = step.token_ids, step.positions, step.pages, step.logit_rows
        count = len(tokens)
        assert 0 < count <= self.max_rows
        assert rows <= count
        self.set_pages(pages)
        self._tokens[:count], self._places[:count] = tokens, places
        self._set_ropes(step.rope_positions)
        if self._cross is not None:
            self._cross.set(step)
        if step.runs:
            self._divide(step)
        else:
            self._check(places[-1], step.rope_positions)
            self._words[RUNS], self._words[RUN_TABLE + RUN_ROWS] = 1, count
        for i, (before, after) in enumerate(step.states):
            word = RUN_TABLE + RUN_WORDS * i
            self._words[word + RUN_FROM], self._words[word + RUN_TO] = before, after
        self._set_rows(count, rows, step.kept)

    # -- decoding ahead (`engine.backends.cpu.decode_loop`)

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """As `HasDecodeLoop.decode_loop`; None for a recurrent model or a small vocabulary."""
        return decode_loop_of(self, self._sampling, plan, self._logits.width) if self._sampling else None

    def set_pages(self, pages: Ints) -> None:
        """As in `RowRunner`."""
        if len(pages) > self._page_room:
            self._pages = self._room_for_pages(2 * len(pages))
        self._pages[: len(pages)] = pages

    def run_row(self, token: int, place: int, shift: int = 0) -> Floats:
        """As in `RowRunner`."""
        self._set_row(token, place, 1, shift)
        self._pool.replay(self._captured, self.stamps)
        return self._row

    def decode(self, token: int, place: int, steps: int, vocabulary: int, shift: int = 0) -> None:
        """As in `RowRunner`."""
        assert self._sampling is not None
        self._set_row(token, place, steps, shift)
        self._words[SAMPLED] = vocabulary
        try:
            self._pool.replay(self._captured, self.stamps, self._sampling.address)
        finally:
            self._words[SAMPLED], self._pool.serial = 0, self._words[SERIAL]

    def _set_row(self, token: int, place: int, steps: int, shift: int) -> None:
        """Write a step of one row to the step block, which this many steps in a row begin with."""
        last = place + steps - 1
        assert last < self._positions, _PAST_THE_END
        assert 0 <= place - shift <= last - shift < self._rope_positions, _PAST_THE_END
        self._tokens[0], self._places[0] = token, place
        words = self._words
        words[ROPE_POSITIONS] = self._rope_addresses[shift != 0]
        if shift:
            self._ropes[0] = place - shift
        self._pool.serial += 1
        words[ROWS] = words[LOGIT_ROWS] = words[RUNS] = words[RUN_TABLE + RUN_ROWS] = 1
        words[SERIAL], words[KEPT] = self._pool.serial, 0

    def _set_rows(self, rows: int, logit_rows: int, kept: int) -> None:
        """Write a step's numbers of rows, and where they are kept, to the step block."""
        words = self._words
        self._pool.serial += 1
        words[ROWS], words[LOGIT_ROWS], words[SERIAL], words[KEPT] = rows, logit_rows, self._pool.serial, kept

    def _set_ropes(self, ropes: Ints | None) -> None:
        """Write a step's rope positions to the step block."""
        if ropes is not None:
            self._ropes[: len(ropes)] = ropes
        self._words[ROPE_POSITIONS] = self._rope_addresses[ropes is not None]

    def _check(self, last: int, ropes: Ints | None) -> None:
        """Assert that the tables of positions have those of a step."""
        most = last if ropes is None else ropes.max()
        assert last < self._positions, _PAST_THE_END
        assert most < self._rope_positions, _PAST_THE_END

    def _divide(self, step: Step) -> None:
        """Write the runs of a step over several sequences to the step block."""
        assert len(step.token_ids) <= self.batch_rows
        first, address = 0, self._words[RUN_TABLE + RUN_PAGES]
        for i, (rows, pages) in enumerate(step.runs):
            word = RUN_TABLE + RUN_WORDS * i
            self._words[word + RUN_FIRST], self._words[word + RUN_ROWS] = first, rows
            self._words[word + RUN_PAGES] = address
            first, address = first + rows, address + 4 * pages
            self._check(step.positions[first - 1], step.rope_positions)
        assert first == len(step.token_ids)
        self._words[RUNS] = len(step.runs)

    def _begin(self, step: Step) -> Floats:
        """Run the first rows of a prompt as a step of their own with 16-bit activations, the rest with 8.

        Nearly all later tokens attend to a sequence's first tokens (arXiv 2309.17453), whose activations
        differ most in magnitude (arXiv 2402.17762): they caused over half of the error of 8 bits.
        """
        tokens, places, logits, rest = (
            step.token_ids,
            step.positions,
            step.logit_rows,
            len(step.token_ids) - SMALL_BATCH,
        )
        head, tail = (slice(SMALL_BATCH), slice(SMALL_BATCH, None))
        between = [(after, after) for _, after in step.states]
        ropes = step.rope_positions
        first = self.run(
            Step(
                tokens[head], places[head], step.pages, max(1, logits - rest), states=step.states,
                kept=step.kept, rope_positions=None if ropes is None else ropes[head], cross=step.cross,
            )
        ).copy()  # fmt: skip
        last = self.run(
            Step(
                tokens[tail], places[tail], step.pages, min(logits, rest), states=between,
                kept=step.kept + SMALL_BATCH, rope_positions=None if ropes is None else ropes[tail],
                cross=step.cross,
            )
        )  # fmt: skip
        return np.concatenate([first, last]) if logits > rest else last

    def _room_for_pages(self, count: int) -> npt.NDArray[np.int32]:
        pages: npt.NDArray[np.int32] = aligned(4 * count).view(np.int32)
        self._step[RUN_TABLE + RUN_PAGES] = pages.ctypes.data
        self._page_room = count
        return pages

    def close(self) -> None:
        self._pool.close()
        self._operations, self._arena, self._constants = [], [], []
