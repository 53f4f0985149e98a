"""Memory of the CPU backend: where it begins, which of it has huge pages, and what is said where there is
none.
"""

from __future__ import annotations

import mmap

import pytest

from engine.backends.cpu.runtime import memory
from engine.errors import NotEnoughMemory


@pytest.mark.parametrize(
    ("size", "step"), [(1, 64), (1000, 64), (1 << 20, mmap.PAGESIZE), ((8 << 20) + 5, 2 << 20)]
)
def test_arrays_begin_on_a_line_a_page_or_a_huge_page(size: int, step: int) -> None:
    array = memory.aligned(size)
    assert array.size == size
    assert array.ctypes.data % step == 0
    assert not array.any()
    array[:] = 1


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages to ask for")
def test_what_fills_up_slowly_begins_without_a_huge_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first token of a chat would otherwise take two megabytes in each layer's keys."""
    advised: list[tuple[int, ...]] = []

    class Noted(mmap.mmap):
        def madvise(self, *given: int) -> None:
            advised.append(given)
            super().madvise(*given)

    monkeypatch.setattr(mmap, "mmap", Noted)
    memory.aligned(8 << 20)
    assert advised == [(mmap.MADV_HUGEPAGE,)]
    array = memory.aligned(8 << 20, sparse=True)
    assert array.ctypes.data % memory.HUGE_PAGE == 0
    small = 2 * memory.HUGE_PAGE - mmap.PAGESIZE  # wherever the array begins, its first huge page
    assert advised[1:] == [(mmap.MADV_HUGEPAGE,), (mmap.MADV_NOHUGEPAGE, 0, small)]
    memory.aligned(1 << 20)
    assert len(advised) == 3


def test_memory_that_the_system_refuses() -> None:
    with pytest.raises(NotEnoughMemory, match=r"^The system refused .* of memory; close other programs"):
        memory.aligned(1 << 62)
