"""For tests of the CPU's programs: memory that holds no numbers before the first pass, scratch memory whose
end is watched, and operations that name all that they use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.lowering.call import Operation, Slice
from engine.backends.cpu.lowering.lower import LoweredPass
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime import thread_pool
from engine.backends.graph.buffers import Buffer

GUARD, GUARD_BYTES = 0xA5, 4096
"""What lies after scratch memory, and how much of it."""


@pytest.fixture
def memory_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and has not been written, such as the padding of rows and of heads, shows in the
    results.
    """
    make = CpuProgram.__init__

    def made(self: CpuProgram, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        for memory in (*self._arena, *self._pool._scratch):
            memory.view(np.uint8)[:] = 0xFF  # NaN as float32

    monkeypatch.setattr(CpuProgram, "__init__", made)


@pytest.fixture(autouse=True)
def _nothing_is_written_past_scratch_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels write no more scratch memory, and threads no more counters, than there are."""
    make, guards = thread_pool.aligned, []

    def guarded(size: int) -> Any:
        memory = make(size + GUARD_BYTES)
        memory[size:] = GUARD
        guards.append(memory[size:])
        return memory[:size]

    monkeypatch.setattr(thread_pool, "aligned", guarded)
    yield
    assert all((guard == GUARD).all() for guard in guards)


class Address(int):
    """Where keys or values of a layer are; operations read and write them by their `name`."""

    name: tuple[str, int]


class NamedCache:
    """A cache whose addresses have names."""

    def __init__(self, cache: Any, keys: str = "keys", values: str = "values") -> None:
        self._cache, self._names = cache, (keys, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    @property
    def crossed(self) -> NamedCache:
        return NamedCache(self._cache.crossed, "cross", "cross")

    def addresses(self, layer: int) -> list[Address]:
        found = [Address(each) for each in self._cache.addresses(layer)]
        for address, name in zip(found, self._names, strict=True):
            address.name = name, layer
        return found


@pytest.fixture(autouse=True)
def _all_that_is_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that is given a buffer, or a layer's keys or values, says that it reads or writes them:
    nothing else keeps others that do from running at the same time.
    """
    make = LoweredPass.__init__

    def made(self: LoweredPass, forward: Any, cache: Any, *arguments: Any, **more: Any) -> None:
        make(self, forward, NamedCache(cache), *arguments, **more)
        for operation in self.operations:
            missing = set(used(operation)) - {*operation.reads, *operation.writes}
            assert not missing, f"{operation.kernel} does not name {missing}"

    monkeypatch.setattr(LoweredPass, "__init__", made)


def used(operation: Operation) -> Iterator[object]:
    """The buffers and the parts of the cache that are among an operation's arguments."""
    for argument in operation.arguments:
        if isinstance(argument, Slice):
            yield argument.buffer
        elif isinstance(argument, Buffer):
            yield argument
        elif isinstance(argument, Address):
            yield argument.name
