"""Large arrays are spread over all nodes of a machine, unless somebody chose nodes for the process."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import pytest

from engine.backends.cpu.runtime import memory, numa

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these calls")


class Kernel:
    """Answers the two system calls and records what was asked of mbind."""

    def __init__(self, policy: int = 0, refuses: bool = False) -> None:
        self.policy, self.refuses = policy, refuses
        self.asked: list[tuple[int, int, int, int]] = []

    def __call__(self, which: int, *arguments: int) -> int:
        if which == 1:
            ctypes.c_int.from_address(arguments[0]).value = self.policy
            return 0
        address, size, mode, nodes, bits, flags = arguments
        assert flags == 0
        words = (bits - 1) // 64
        found = (ctypes.c_uint64 * words).from_address(nodes)
        self.asked.append((address, size, mode, sum(word << 64 * i for i, word in enumerate(found))))
        return -1 if self.refuses else 0


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "memory_nodes", lambda: (0, 70))


@pytest.mark.usefixtures("two_nodes")
def test_large_arrays_lie_on_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    monkeypatch.setattr(numa, "_call", kernel)
    array = memory.aligned(1 << 20)
    assert kernel.asked == [(array.ctypes.data, 1 << 20, 3, 1 | 1 << 70)]
    assert array.ctypes.data % mmap.PAGESIZE == 0
    memory.aligned(1 << 10)
    assert len(kernel.asked) == 1, "a small array shares its pages with others"


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize(
    ("kernel", "asks"),
    [(Kernel(policy=2), False), (Kernel(policy=-1), False), (Kernel(refuses=True), True)],
    ids=["nodes were chosen", "cannot be asked", "refused"],
)
def test_where_the_system_decides(kernel: Kernel, asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "_call", kernel)
    array = memory.aligned(1 << 20)
    assert not numa.interleave(array.ctypes.data, array.size)
    assert bool(kernel.asked) == asks
    assert not array.any()


@linux
@pytest.mark.parametrize(
    ("has", "allowed", "nodes"),
    [("0\n", "0", (0,)), ("0-1,4\n", "0-3", (0, 1)), ("0-1\n", "1", (1,)), ("\n", "0", ()), (None, "0", ())],
)
def test_nodes_with_memory_that_may_be_used(
    has: str | None, allowed: str, nodes: tuple[int, ...], tmp_path: Path
) -> None:
    if has is not None:
        (tmp_path / "has_memory").write_text(has)
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nMems_allowed:\t1\nMems_allowed_list:\t{allowed}\n")
    assert numa.memory_nodes(tmp_path, status) == nodes


@linux
def test_the_kernel_takes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one node: the pages then say so themselves."""
    nodes = numa.memory_nodes()
    if not nodes or numa._policy() != 0:
        pytest.skip("this system has no policies for memory, or forbids them")
    monkeypatch.setattr(numa, "memory_nodes", lambda: (nodes[0], nodes[0]))
    pages = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if not numa.interleave(address, len(pages)):
        pytest.skip("this system forbids it")
    maps = Path("/proc/self/numa_maps")
    if maps.is_file():
        line = next(line for line in maps.read_text().splitlines() if int(line.split()[0], 16) == address)
        assert line.split()[1].startswith(f"interleave:{nodes[0]}")
