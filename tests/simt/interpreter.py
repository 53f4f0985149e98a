"""Runs a kernel thread by thread: one greenlet a thread, switched only where threads meet. Slow, and strict.

It refuses what a GPU would let pass or turn into rubbish: reads and writes outside of the memory that a test gave, misaligned ones,
warps whose lanes do not come to an exchange together, blocks of which some threads miss a barrier, shared memory that is read before
it was written, and two warps of a block touching the same shared word with no barrier between (one of them writing).
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from engine.backends.cuda.kernel import Kernel, specialised
from engine.backends.cuda.ptx import Op, SharedMemory
from engine.backends.cuda.words import int32

WARP = 32


class KernelFault(AssertionError):
    """A kernel did what it may not."""


class Memory:
    """The global memory that kernels may touch: arrays, at their own addresses."""

    def __init__(self, *arrays: Any) -> None:
        self._starts: list[int] = []
        self._arrays: list[Any] = []
        self.kept: dict[tuple[int, ...], Any] | None = None
        """Unpacked weights by address and shape, where a test wants models to keep them."""
        for array in arrays:
            self.add(array)

    def add(self, array: Any) -> int:
        """The address of a contiguous NumPy array (or of a torch tensor's memory), which may be touched from now on."""
        flat = array if isinstance(array, np.ndarray) else array.detach().view(-1).view(_torch().uint8).numpy()
        assert flat.flags.c_contiguous
        flat = flat.reshape(-1).view(np.uint8)
        address = int(flat.ctypes.data)
        at = bisect_right(self._starts, address)
        if at and self._starts[at - 1] == address and len(self._arrays[at - 1]) >= len(flat):
            return address
        self._starts.insert(at, address)
        self._arrays.insert(at, flat)
        return address

    def add_room(self, array: Any) -> int:
        """The address of a NumPy array that may be touched until `remove`; it is not kept alive."""
        address, size = int(array.ctypes.data), int(array.nbytes)
        room = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8) if size else np.zeros(0, np.uint8)
        at = bisect_right(self._starts, address)
        self._starts.insert(at, address)
        self._arrays.insert(at, room)
        return address

    def remove(self, address: int) -> None:
        """What `add_room` gave this address is gone."""
        at = bisect_right(self._starts, address) - 1
        assert self._starts[at] == address
        end = address + len(self._arrays[at])
        del self._starts[at], self._arrays[at]
        for key in [key for key in self.kept or () if address <= key[0] < end]:
            assert self.kept is not None
            del self.kept[key]

    def find(self, address: int, size: int) -> tuple[Any, int]:
        """The bytes that hold `size` of them from an address, and where in them. Raises `KernelFault`."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address + size > self._starts[at] + len(self._arrays[at]):
            near = f": {address - self._starts[at]} bytes into one of {len(self._arrays[at])}" if at >= 0 else ""
            raise KernelFault(f"{size} bytes at {address:#x} are in no array{near}")
        return self._arrays[at], address - self._starts[at]

    def view(self, address: int, kind: Any, count: int) -> Any:
        """`count` numbers of a NumPy type, not copied."""
        array, at = self.find(int(address), int(count) * np.dtype(kind).itemsize)
        return array[at : at + int(count) * np.dtype(kind).itemsize].view(kind)


def _torch() -> Any:
    import torch

    return torch


class _Block:
    """One block while it runs, and what its threads ask of it (`engine.backends.cuda.ptx.Machine`)."""

    def __init__(self, memory: Memory, block: tuple[int, int, int], blocks: tuple[int, int, int], threads: int) -> None:
        self.memory, self.block, self.blocks, self.threads = memory, block, blocks, threads
        self._hub = getcurrent()
        self._shared: dict[Any, int] = {}
        self._bytes = np.zeros(0, np.uint8)
        self._written = np.zeros(0, bool)
        self._touched: dict[int, tuple[int, bool]] = {}  # shared word: the warp that touched it since the barrier (-1: several), written?
        self._values: list[Any] = [None] * threads

    @property
    def thread(self) -> int:
        return int(getcurrent().number)

    def shared(self, size: int) -> int:
        frame = sys._getframe(2)
        key = (frame.f_code, frame.f_lasti)
        if key not in self._shared:
            self._shared[key] = len(self._bytes)
            room = (size + 15) // 16 * 16
            self._bytes = np.concatenate([self._bytes, np.full(room, 0xA5, np.uint8)])
            self._written = np.concatenate([self._written, np.zeros(room, bool)])
        return self._shared[key]

    def load(self, address: int, size: int, shared: bool) -> bytes:
        if address % size:
            raise KernelFault(f"{size} bytes are read at {address:#x}, which is not a multiple of {size}")
        if not shared:
            array, at = self.memory.find(address, size)
            return bytes(array[at : at + size])
        if not 0 <= address <= len(self._bytes) - size or not self._written[address : address + size].all():
            raise KernelFault(f"{size} bytes of shared memory at {address} are read, but were not written")
        self._touch(address, size, False)
        return bytes(self._bytes[address : address + size])

    def store(self, address: int, data: bytes, shared: bool) -> None:
        size = len(data)
        if address % size:
            raise KernelFault(f"{size} bytes are written at {address:#x}, which is not a multiple of {size}")
        if not shared:
            array, at = self.memory.find(address, size)
            array[at : at + size] = np.frombuffer(data, np.uint8)
            return
        if not 0 <= address <= len(self._bytes) - size:
            raise KernelFault(f"{size} bytes of shared memory at {address} are written, beyond its {len(self._bytes)}")
        self._touch(address, size, True)
        self._bytes[address : address + size] = np.frombuffer(data, np.uint8)
        self._written[address : address + size] = True

    def _touch(self, address: int, size: int, writes: bool) -> None:
        warp = self.thread // WARP
        for word in range(address // 4, (address + size + 3) // 4):
            before, written = self._touched.get(word, (warp, False))
            if before != warp and (writes or written):
                raise KernelFault(f"warps {before} and {warp} touch shared memory at {4 * word} with no barrier between")
            self._touched[word] = (warp, written or writes)

    def add(self, address: int, value: int, shared: bool) -> int:
        if address % 4:
            raise KernelFault(f"an int32 is added to at {address:#x}")
        if shared:
            if not 0 <= address <= len(self._bytes) - 4 or not self._written[address : address + 4].all():
                raise KernelFault(f"shared memory at {address} is added to, but was not written")
            array, at = self._bytes, address  # atomic: it races with nothing of its kind
        else:
            array, at = self.memory.find(address, 4)
        word = array[at : at + 4].view(np.int32)
        before = int(word[0])
        word[0] = int32(before + value)
        return before

    def exchange(self, value: Any) -> tuple[list[Any], int]:
        me = self.thread
        self._values[me] = value
        self._hub.switch("warp")
        first = me // WARP * WARP
        lanes = self._values[first : first + WARP]
        self._hub.switch("warp")
        return lanes, me - first

    def barrier(self) -> None:
        self._hub.switch("block")

    def run(self, body: Callable[[], None], order: Sequence[int]) -> None:
        """All threads to their end; `order` is that of the warps between two meetings."""
        threads = []
        for i in range(self.threads):
            thread = greenlet(body)
            thread.number = i
            threads.append(thread)
        state: list[Any] = ["ready"] * self.threads
        while True:
            for warp in order:
                lanes = range(warp * WARP, min(self.threads, (warp + 1) * WARP))
                while any(state[i] == "ready" for i in lanes):
                    for i in lanes:
                        if state[i] == "ready":
                            state[i] = threads[i].switch()
                            if threads[i].dead:
                                state[i] = "done"
                    if all(state[i] == "warp" for i in lanes):
                        for i in lanes:
                            state[i] = "ready"
                    elif any(state[i] == "warp" for i in lanes):
                        where = {s: sum(state[i] == s for i in lanes) for s in ("warp", "block", "done")}
                        raise KernelFault(f"the lanes of warp {warp} diverged at an exchange: {where}")
            if all(s == "done" for s in state):
                return
            if not all(s == "block" for s in state):
                where = {s: state.count(s) for s in ("block", "done")}
                raise KernelFault(f"threads of a block diverged at a barrier: {where}")
            state = ["ready"] * self.threads
            self._touched.clear()


def run(kernel: Kernel, blocks: tuple[int, int, int] | int, arguments: Sequence[Any], memory: Memory, *, reverse: bool = False) -> None:
    """Run a kernel over a grid of blocks; `reverse` lets warps and blocks run in the opposite order. Raises `KernelFault`."""
    grid = (blocks, 1, 1) if isinstance(blocks, int) else blocks
    assert len(arguments) == len(kernel.parameters), f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(arguments)}"
    values = [np.float32(v) if letter == "f" else int(v) for v, letter in zip(arguments, kernel.parameters, strict=True)]
    present: list[_Block] = []
    function = specialised(kernel.body, kernel.constants, lambda name, value: _leaf(value, present), write_out=False)
    order = list(range(-(-kernel.threads // WARP)))
    places = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    for place in reversed(places) if reverse else places:
        block = _Block(memory, place, grid, kernel.threads)
        present[:] = [block]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            block.run(lambda: function(*values), order[::-1] if reverse else order)


def _leaf(value: Any, present: list[_Block]) -> Any:
    if isinstance(value, Op):
        emulate, name = value.emulate, value.name

        def call(*arguments: Any) -> Any:
            if len(arguments) != len(value.ins):
                raise KernelFault(f"{name} takes {len(value.ins)} arguments, not {len(arguments)}")
            return emulate(present[0], *arguments)

        return call
    if isinstance(value, SharedMemory):
        return lambda size: present[0].shared(size)
    if isinstance(value, FunctionType):
        return value
    return value
