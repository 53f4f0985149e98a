"""Runs a kernel thread by thread: one greenlet a thread, switched only where threads meet. Slow, and strict.

It refuses what a GPU would let pass or turn into rubbish: reads and writes outside of the memory that a test
gave, misaligned ones, warps whose lanes do not come to an exchange together, blocks of which some threads
miss a barrier, shared memory that is read before it was written, and two warps of a block touching the same
shared word with no barrier between (one of them writing).
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from engine.backends.cuda.codegen.kernel import Kernel, specialised
from engine.backends.cuda.codegen.ptx import Op, SharedMemory
from engine.backends.cuda.codegen.words import Cast, float32, int32, uint32
from tests.simt.emulation import EMULATED

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
        self._bytes: list[memoryview] = []  # the same memory, which is cut faster
        for array in arrays:
            self.add(array)

    def add(self, array: Any) -> int:
        """The address of a contiguous NumPy array (or of a torch tensor's memory), which may be touched
        from now on.
        """
        flat = (
            array if isinstance(array, np.ndarray) else array.detach().view(-1).view(_torch().uint8).numpy()
        )
        assert flat.flags.c_contiguous
        flat = flat.reshape(-1).view(np.uint8)
        address = int(flat.ctypes.data)
        at = bisect_right(self._starts, address)
        if at and self._starts[at - 1] == address and len(self._arrays[at - 1]) >= len(flat):
            return address
        self._starts.insert(at, address)
        self._arrays.insert(at, flat)
        self._bytes.insert(at, memoryview(flat))
        return address

    def add_room(self, array: Any) -> int:
        """The address of a NumPy array that may be touched until `remove`; it is not kept alive."""
        address, size = int(array.ctypes.data), int(array.nbytes)
        room = (
            np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
            if size
            else np.zeros(0, np.uint8)
        )
        at = bisect_right(self._starts, address)
        self._starts.insert(at, address)
        self._arrays.insert(at, room)
        self._bytes.insert(at, memoryview(room))
        return address

    def remove(self, address: int) -> None:
        """What `add_room` gave this address is gone."""
        at = bisect_right(self._starts, address) - 1
        assert self._starts[at] == address
        end = address + len(self._arrays[at])
        del self._starts[at], self._arrays[at], self._bytes[at]
        for key in [key for key in self.kept or () if address <= key[0] < end]:
            assert self.kept is not None
            del self.kept[key]

    def _place(self, address: int, size: int) -> tuple[int, int]:
        """Which array holds `size` bytes from an address, and where in it. Raises `KernelFault`."""
        which = bisect_right(self._starts, address) - 1
        if which < 0 or address + size > self._starts[which] + len(self._bytes[which]):
            near = (
                f": {address - self._starts[which]} bytes into one of {len(self._arrays[which])}"
                if which >= 0
                else ""
            )
            raise KernelFault(f"{size} bytes at {address:#x} are in no array{near}")
        return which, address - self._starts[which]

    def find(self, address: int, size: int) -> tuple[Any, int]:
        """The bytes that hold `size` of them from an address, and where in them. Raises `KernelFault`."""
        which, at = self._place(address, size)
        return self._arrays[which], at

    def read(self, address: int, size: int) -> bytes:
        """A copy. Raises `KernelFault`."""
        which, at = self._place(address, size)
        return bytes(self._bytes[which][at : at + size])

    def write(self, address: int, data: bytes) -> None:
        """The reverse. Raises `KernelFault`."""
        which, at = self._place(address, len(data))
        self._bytes[which][at : at + len(data)] = data

    def view(self, address: int, kind: Any, count: int) -> Any:
        """`count` numbers of a NumPy type, not copied."""
        size = int(count) * np.dtype(kind).itemsize
        array, at = self.find(int(address), size)
        return array[at : at + size].view(kind)


def _torch() -> Any:
    import torch

    return torch


class _Block:
    """One block while it runs, and what its threads ask of it (`tests.simt.emulation.Machine`)."""

    def __init__(
        self, memory: Memory, block: tuple[int, int, int], blocks: tuple[int, int, int], threads: int
    ) -> None:
        self.memory, self.block, self.blocks, self.threads = memory, block, blocks, threads
        self.thread = 0  # the one that runs now
        self._hub = getcurrent()
        self._shared: dict[Any, int] = {}
        self._bytes = bytearray()
        self._written = bytearray()  # 1 for each byte of shared memory that was
        # shared word: twice the warp that touched it since the barrier (several: -2), + 1 if written
        self._touched: dict[int, int] = {}
        self._values: list[Any] = [None] * threads
        self._lanes: list[Any] = []  # what the warp that runs now exchanged last

    def shared(self, size: int) -> int:
        frame = sys._getframe(2)
        key = (frame.f_code, frame.f_lasti)
        if key not in self._shared:
            self._shared[key] = len(self._bytes)
            room = (size + 15) // 16 * 16
            self._bytes += b"\xa5" * room
            self._written += bytes(room)
        return self._shared[key]

    def load(self, address: int, size: int, shared: bool) -> bytes:
        if address % size:
            raise KernelFault(f"{size} bytes are read at {address:#x}, which is not a multiple of {size}")
        if not shared:
            return self.memory.read(address, size)
        self._check_written(address, size, "read")
        self._touch(address, size, False)
        return bytes(self._bytes[address : address + size])

    def store(self, address: int, data: bytes, shared: bool) -> None:
        size = len(data)
        if address % size:
            raise KernelFault(f"{size} bytes are written at {address:#x}, which is not a multiple of {size}")
        if not shared:
            self.memory.write(address, data)
            return
        if not 0 <= address <= len(self._bytes) - size:
            raise KernelFault(
                f"{size} bytes of shared memory at {address} are written, beyond its {len(self._bytes)}"
            )
        self._touch(address, size, True)
        self._bytes[address : address + size] = data
        self._written[address : address + size] = b"\1" * size

    def _check_written(self, address: int, size: int, what: str) -> None:
        if not 0 <= address <= len(self._bytes) - size or self._written.find(0, address, address + size) >= 0:
            raise KernelFault(f"{size} bytes of shared memory at {address} are {what}, but were not written")

    def _touch(self, address: int, size: int, writes: bool) -> None:
        mine, touched = self.thread // WARP * 2, self._touched
        for word in range(address // 4, (address + size + 3) // 4):
            before = touched.get(word, mine)
            if before & ~1 != mine:
                if writes or before & 1:
                    warps = "several" if before < 0 else before // 2
                    raise KernelFault(
                        f"warps {warps} and {mine // 2} touch shared memory at {4 * word} with no barrier "
                        "between"
                    )
                touched[word] = -2
            else:
                touched[word] = before | writes

    def add(self, address: int, value: int, shared: bool) -> int:
        if address % 4:
            raise KernelFault(f"an int32 is added to at {address:#x}")
        if shared:
            self._check_written(address, 4, "added to")  # atomic: it races with nothing of its kind
            before = int.from_bytes(self._bytes[address : address + 4], "little", signed=True)
            self._bytes[address : address + 4] = int(int32(before + value)).to_bytes(4, "little", signed=True)
        else:
            before = int.from_bytes(self.memory.read(address, 4), "little", signed=True)
            self.memory.write(address, int(int32(before + value)).to_bytes(4, "little", signed=True))
        return before

    def exchange(self, value: Any) -> tuple[list[Any], int]:
        me = self.thread
        self._values[me] = value
        self._hub.switch("warp")
        return self._lanes, me % WARP

    def barrier(self) -> None:
        self._hub.switch("block")

    def run(self, body: Callable[[], None], order: Sequence[int]) -> None:
        """All threads to their end; `order` is that of the warps between two meetings."""
        threads = [greenlet(body) for _ in range(self.threads)]
        for thread in threads:
            thread.gr_context = copy_context()  # what NumPy shall not warn of
        state = ["ready"] * self.threads
        while True:
            for warp in order:
                self._run_warp(threads, state, warp)
            if all(s == "done" for s in state):
                return
            if not all(s == "block" for s in state):
                where = {s: state.count(s) for s in ("block", "done")}
                raise KernelFault(f"threads of a block diverged at a barrier: {where}")
            self._touched.clear()

    def _run_warp(self, threads: list[Any], state: list[str], warp: int) -> None:
        """The lanes of a warp that have not ended, to the next barrier or their end; all of them together
        at each exchange.
        """
        lanes = range(warp * WARP, min(self.threads, (warp + 1) * WARP))
        while True:
            for i in lanes:
                if state[i] != "done":
                    self.thread = i
                    where = threads[i].switch()
                    state[i] = "done" if threads[i].dead else where
            found = set(state[lanes.start : lanes.stop])
            if "warp" not in found:
                return
            if len(found) > 1:
                counts = {s: sum(state[i] == s for i in lanes) for s in ("warp", "block", "done")}
                raise KernelFault(f"the lanes of warp {warp} diverged at an exchange: {counts}")
            self._lanes = self._values[lanes.start : lanes.stop]


def run(
    kernel: Kernel,
    blocks: tuple[int, int, int] | int,
    arguments: Sequence[Any],
    memory: Memory,
    *,
    reverse: bool = False,
) -> None:
    """Run a kernel over a grid of blocks; `reverse` lets warps and blocks run in the opposite order.

    Raises `KernelFault`.
    """
    grid = (blocks, 1, 1) if isinstance(blocks, int) else blocks
    assert len(arguments) == len(kernel.parameters), (
        f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(arguments)}"
    )
    values = [
        np.float32(v) if code == "f" else int(v) for v, code in zip(arguments, kernel.parameters, strict=True)
    ]
    present: list[_Block] = []
    function = specialised(
        kernel.body, kernel.constants, lambda name, value: _leaf(value, present), write_out=False
    )
    order = list(range(-(-kernel.threads // WARP)))
    places = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    for place in reversed(places) if reverse else places:
        block = _Block(memory, place, grid, kernel.threads)
        present[:] = [block]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            block.run(lambda: function(*values), order[::-1] if reverse else order)


def _leaf(value: Any, present: list[_Block]) -> Any:
    if isinstance(value, Op):
        emulate, name, count = EMULATED[value.name], value.name, len(value.ins)

        def call(*arguments: Any) -> Any:
            if len(arguments) != count:
                raise KernelFault(f"{name} takes {count} arguments, not {len(arguments)}")
            return emulate(present[0], *arguments)

        return call
    if isinstance(value, SharedMemory):
        return lambda size: present[0].shared(size)
    return _CASTS.get(value, value) if isinstance(value, Cast) else value


def _int32(value: Any) -> int:
    return ((int(value) + 0x80000000) & 0xFFFFFFFF) - 0x80000000


_CASTS: dict[Cast, Callable[[Any], Any]] = {
    float32: np.float32,
    int32: _int32,
    uint32: lambda value: int(value) & 0xFFFFFFFF,
}
"""The commonest casts, as their own `__call__` makes them, without looking at their names."""
