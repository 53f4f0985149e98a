"""Missing kernels are compiled in several processes, and in this one if a worker fails."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from engine.backends.cpu.codegen import kernel_cache
from engine.backends.cpu.codegen.kernel_cache import KERNELS, KernelTable
from engine.core import Loading
from engine.platform.worker_pool import WorkerPool

NAMES = ["add", "gated_silu", "last_rows", "columns", "pack_int16", "permute", "rms_norm", "add_positions"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelTable:
    """Nothing is compiled yet but the pool's functions, which are the same for all."""
    for _ in KERNELS.compile(["read_memory"]):
        pass
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel_cache, "_count", lambda left, folder: min(1, len(left)))
    table = KernelTable()
    table.pool = KERNELS.pool
    return table


def compiled_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = kernel_cache._compile_here

    def compile_here(name: str, folder: Path | None) -> object:
        names.append(name)
        return real(name, folder)

    monkeypatch.setattr(kernel_cache, "_compile_here", compile_here)
    return names


@pytest.mark.slow
def test_a_worker_s_kernels_are_loaded(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process takes none back here, so that the worker must compile all."""
    here = compiled_here(monkeypatch)
    monkeypatch.setattr(WorkerPool, "take", lambda pool: None)
    events = list(table.compile(NAMES))
    assert here == []
    assert all(table.address(name) for name in NAMES)
    assert [event.done for event in events] == [0, *range(1, 9), 8]
    assert {event.total for event in events} == {8}
    assert list(table.compile(NAMES)) == []


@pytest.mark.slow
def test_kernels_of_a_worker_that_fails_are_compiled_here(
    table: KernelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = compiled_here(monkeypatch)
    monkeypatch.setattr(kernel_cache, "_WORKER", "engine.no_such_module")
    monkeypatch.setattr(WorkerPool, "take", lambda pool: None)
    for _ in table.compile(NAMES):
        pass
    assert sorted(here) == sorted(NAMES)
    assert all(table.address(name) for name in NAMES)


@pytest.mark.slow
def test_a_worker_fills_another_cache_meanwhile(
    table: KernelTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = WorkerPool.take
    monkeypatch.setattr(WorkerPool, "take", lambda pool: None)
    for _ in table.compile(NAMES[:1], partial(os.mkdir, tmp_path / "by a worker")):
        pass
    assert (tmp_path / "by a worker").is_dir()
    monkeypatch.setattr(kernel_cache, "_WORKER", "engine.no_such_module")
    monkeypatch.setattr(WorkerPool, "take", take)
    for _ in table.compile(NAMES[1:2], partial(os.mkdir, tmp_path / "here or nowhere")):
        pass
    assert table.address(NAMES[1])
    monkeypatch.setattr(kernel_cache, "_count", lambda left, folder: 0)
    for _ in table.compile(NAMES[2:3], partial(os.mkdir, tmp_path / "without workers")):
        pass
    assert not (tmp_path / "without workers").exists()


@pytest.mark.slow
def test_workers_compile_from_the_first_event_on(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[WorkerPool[str]] = []
    begin = WorkerPool.__init__
    monkeypatch.setattr(
        WorkerPool, "__init__", lambda pool, *rest: (pools.append(pool), begin(pool, *rest))[1]
    )
    compiling = table.compile(NAMES)
    assert next(compiling).done == 0
    (pool,) = pools
    assert pool.outcomes.get(timeout=120)[1]
    compiling.close()


@pytest.mark.slow
def test_what_is_cached_is_compiled_nowhere(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in table.compile(NAMES[:2]):
        pass
    here, counts = compiled_here(monkeypatch), []
    monkeypatch.setattr(kernel_cache, "_count", lambda left, folder: counts.append(list(left)) or 0)
    other = KernelTable()
    other.pool = table.pool
    assert [event.done for event in other.compile(NAMES[:3])] == [0, 3, 3]
    assert here == NAMES[2:3]
    assert counts == [NAMES[2:3]]


def test_a_load_that_is_given_up_ends_its_worker(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    close = WorkerPool.close
    monkeypatch.setattr(WorkerPool, "close", lambda pool: closed.append(True) or close(pool))
    loading = table.compile(NAMES)
    assert next(loading) == Loading("Preparing the CPU kernels", 0, 8)
    assert next(loading).done == 1
    loading.close()
    assert closed == [True]


@pytest.mark.parametrize(
    ("kernels", "cpus", "kept", "expected"),
    [(12, 2, True, 1), (5, 8, True, 0), (6, 8, True, 1), (40, 8, True, 3), (40, 1, True, 0), (40, 3, True, 2),
     (40, 8, False, 0)],
)  # fmt: skip
def test_how_many_workers(
    kernels: int, cpus: int, kept: bool, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "usable_cpus", lambda: cpus)
    assert kernel_cache._count(["x"] * kernels, tmp_path if kept else None) == expected


def test_kernels_that_sample_are_compiled_by_one_process() -> None:
    """Before others, and after what fills the sampler's own cache, with which they share their parts."""
    beside = partial(os.mkdir, "x")
    groups = kernel_cache._groups(["add", "column_maxima", "rope", "sample"], beside)
    assert list(groups.items()) == [
        (("column_maxima", "sample"), beside),
        (("add",), None),
        (("rope",), None),
    ]
    assert kernel_cache._groups(["add"], beside) == {(): beside, ("add",): None}
    assert kernel_cache._groups(["add"], None) == {("add",): None}
    assert kernel_cache._groups(["sample"], None) == {("sample",): None}
