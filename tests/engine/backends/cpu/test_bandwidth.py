"""The measured read bandwidth: each pass reads every byte once, the fastest one counts, and where memory is
short nothing is measured.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.kernels.read_memory import READ_AHEAD, TILE
from engine.backends.cpu.runtime import bandwidth
from engine.backends.cpu.runtime.thread_pool import CapturedProgram, ThreadPool
from engine.backends.cpu.runtime.work_stealing import ARGUMENTS, BIG_TILES, FUNCTION, SMALL_TILES

MEGABYTES = 2
TILES = MEGABYTES * 2**20 // TILE


class Passes(ThreadPool):
    """Notes what each replay reads: the bytes at the tiles' address, and how far ahead of them."""

    read: list[tuple[bytes, int]] = []

    def replay(self, program: CapturedProgram, *_unused: object) -> None:
        operations, stages, _step, _counters = program.arrays
        assert stages.tolist() == [0, 1]
        assert operations[FUNCTION] == KERNELS.address("read_memory")
        assert operations[SMALL_TILES : BIG_TILES + 2].tolist() == [TILES, 1, TILES, 1]
        address, size, ahead = (ctypes.c_int64 * 3).from_address(int(operations[ARGUMENTS]))
        assert size == TILE
        self.read.append((ctypes.string_at(address, TILES * size), ahead))
        super().replay(program)
        found = sum(int(scratch.view(np.int32)[0]) for scratch in self._scratch)
        assert found == 0, "an even number of equal words"


def test_each_pass_reads_all_bytes_and_the_fastest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 1/2, 1/8, 1/4 and 1/2 second, in pairs before each of which the time is looked at."""
    clock = iter([0.0, 0.0, 0.0, 0.5, 0.5, 0.625, 0.625, 0.625, 0.875, 0.875, 1.375, 1.375])
    monkeypatch.setattr(bandwidth, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(bandwidth, "ThreadPool", Passes)
    monkeypatch.setattr(Passes, "read", [])
    assert bandwidth.read_bandwidth(2, MEGABYTES, 1.0) == MEGABYTES * 2**20 / 0.125
    assert next(clock, None) is None
    # memory that was never written would not be read
    written = b"\1" * (MEGABYTES << 20)
    assert Passes.read == [(written, ahead) for ahead in READ_AHEAD * 2]


@pytest.mark.parametrize(
    ("argument", "free", "threads"), [("3", (8 << 20) + 1, 3), ("0", 1 << 40, 5), ("3", 8 << 20, None)]
)
def test_the_program_prints_what_it_measured(
    argument: str, free: int, threads: int | None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """For the default number of threads where none is given; 0 unless four times as much memory is free."""
    asked: list[tuple[int, int, float]] = []
    monkeypatch.setattr(sys, "argv", ["bandwidth", argument, "2"])
    monkeypatch.setattr(bandwidth, "free_memory", lambda: free)
    monkeypatch.setattr(bandwidth, "default_threads", lambda: 5)
    monkeypatch.setattr(bandwidth, "read_bandwidth", lambda *arguments: asked.append(arguments) or 12.5e9)
    bandwidth.main()
    assert float(capsys.readouterr().out) == (12.5e9 if threads else 0.0)
    assert [each[:2] for each in asked] == ([(threads, 2)] if threads else [])
