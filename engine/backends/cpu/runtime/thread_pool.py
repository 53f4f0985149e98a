"""The threads that run a captured program; `work_stealing` has the compiled functions that they run."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.runtime.clock import ticks_per_second
from engine.backends.cpu.runtime.contention import prepare
from engine.backends.cpu.runtime.cores import usable_cpus
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.work_stealing import CLOSING, CONTENTION, LINE, PARKED, Words
from engine.platform import core_yield

Bytes = npt.NDArray[np.uint8]


class CapturedProgram:
    """What a thread pool replays: the words of its operations (`work_stealing`), the first operation of each
    stage and the end, and the step block. The arrays must stay where they are.
    """

    def __init__(self, operations: Words, stages: Words, step: Words, threads: int) -> None:
        self.stage_count = len(stages) - 1
        # For each stage: a cache line for every eight queues, and one for the count of finished tiles.
        lines = (2 + (threads - 1) // LINE) * self.stage_count
        self.counters: Words = aligned(8 * LINE * lines).view(np.int64)
        self.arrays = (operations, stages, step, self.counters)
        self.addresses = (
            operations.ctypes.data,
            stages.ctypes.data,
            self.stage_count,
            step.ctypes.data,
            self.counters.ctypes.data,
        )


class ThreadPool:
    """`threads - 1` helper threads and the caller. Only one thread may replay programs.

    It may have several `users`, programs that are replayed in turns and are all kept until the last of them
    is closed.
    """

    def __init__(self, functions: dict[str, Any], threads: int, scratch_bytes: int) -> None:
        # The machine code: Numba's dispatcher would check the type of every argument at each call.
        self._replay = next(iter(functions["replay"].overloads.values())).entry_point
        self._latest: list[CapturedProgram] = []  # shared with the helpers, which outlive a forgotten pool
        self.scratch_bytes, self.users = scratch_bytes, 1
        self.serial = 0  # of the latest replay: what it left in scratch memory is of no use to another one
        self._control = aligned(8 * (PARKED + LINE * threads))
        self._words: Words = self._control.view(np.int64)
        self._address = int(self._control.ctypes.data)
        self._scratch = [aligned(scratch_bytes) for _ in range(threads)]
        self._own_scratch = int(self._scratch[0].ctypes.data)
        self._wake = [threading.Lock() for _ in range(threads - 1)]
        rate = ticks_per_second(functions["ticks"])
        yield_word = core_yield.address() if threads >= usable_cpus() else 0
        prepare(self._words[CONTENTION:PARKED], threads, rate, yield_word)
        for lock in self._wake:
            lock.acquire()
        kept = (self._control, self._scratch, self._latest)
        # They must not hold the pool: of a model that nobody closes, it is collected with its last program.
        self._threads = [
            threading.Thread(
                target=_helper,
                args=(functions["help"], h, self._wake[h], *kept),
                name=f"cpu-kernel-{h + 1}",
                daemon=True,
            )
            for h in range(threads - 1)
        ]
        self._end = weakref.finalize(self, _end, self._words, tuple(self._wake))
        self._end.atexit = False
        self._helpers = len(self._threads)
        for thread in self._threads:
            thread.start()

    def replay(self, program: CapturedProgram, stamps: Words | None = None, block: int = 0) -> None:
        """Run every operation of the program once; returns when all are done. With the address of the
        program's sampling block, do so for each step that the block asks for.

        A thread that lost its core may read the program's counters later: the pool keeps its latest program,
        earlier ones must outlive it. `stamps` (stages + 1,) is filled with the time at the start and at the
        end of each stage, in ticks of `clock`.
        """
        self._latest[:] = [program]
        note = 0 if stamps is None else stamps.ctypes.data
        call = (self._address, *program.addresses, self._helpers, note, self._own_scratch, block)
        published = 0
        while asleep := self._replay(*call, published):
            published = 1
            for helper, lock in enumerate(self._wake):
                if asleep >> helper & 1:
                    lock.release()

    def close(self) -> None:
        """End the helper threads, once every user has called it."""
        self.users -= 1
        if self.users > 0:
            return
        self._end()
        for thread in self._threads:
            thread.join()
        self._threads, self._wake = [], []


def _helper(
    help_function: Any, helper: int, wake: threading.Lock, control: Bytes, scratch: list[Bytes],
    _latest: list[CapturedProgram],
) -> None:  # fmt: skip
    """The work of one helper thread. Its arguments keep the memory that it uses."""
    seen = 0
    address, own = control.ctypes.data, scratch[helper + 1].ctypes.data
    while (seen := help_function(address, helper, seen, own)) >= 0:
        wake.acquire()


def _end(words: Words, wake: tuple[threading.Lock, ...]) -> None:
    """Let the helper threads end, without waiting for them: the garbage collector may call it on one."""
    words[CLOSING] = 1
    for lock in wake:
        if lock.locked():
            lock.release()
