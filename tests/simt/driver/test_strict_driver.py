"""Order and lifetime of calls: whole passes over a driver that forgives nothing, and each thing that it does
not forgive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Step
from engine.backends.cuda.backend import CudaBackend
from engine.backends.cuda.kernels.pointwise import add_kernel
from engine.backends.decode_loop import SamplingPlan
from engine.errors import DeviceLost, EngineError
from tests.engine.models.oracle import load
from tests.gpu import checks
from tests.gpu.checks import GRID
from tests.simt.fake import FakeDevice
from tests.simt.limits import against, runs
from tests.simt.strict_driver import StrictDevice
from tests.tiny import TINY, write_gguf

PAGES = np.array([1, 0], np.int32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("m") / "m.gguf", TINY, "Q4_0")


def passes(device: Any, path: Path) -> list[Any]:
    """What steps of all lengths and the tokens of a decode loop come to; all is closed afterwards."""
    model = load(path, CudaBackend([device]))
    cache = model.new_cache(512)
    program: Any = model.record(cache, 96)
    found, position = [], 0
    for rows, logit_rows in ((1, 1), (3, 2), (12, 1), (70, 3), (1, 1)):
        ids = np.arange(position, position + rows, dtype=np.int32)
        found.append(program.run(Step(ids % 50, ids, PAGES, logit_rows)).copy())
        position += rows
    decode_loop = program.decode_loop(SamplingPlan(program._lowered.logits.width, greedy=True))
    decode_loop.start([*range(position), 7], PAGES, lambda place: 0.5)
    found.append([decode_loop.next(further).id for further in (1, 1, 0)])
    cache.copy_page(1, 0)
    found.append(cache.read_page(0))
    program.close()
    cache.close()
    model.close()
    return found


MORE = [pytest.param(*case, marks=pytest.mark.slow) for case in ((75, False), (90, False), (120, True))]


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "early"), [(90, True), *MORE])
def test_whole_passes(path: Path, capability: int, early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch, ctypes and the driver as without them, to the last bit; nothing is refused, and nothing is
    left."""
    fake = FakeDevice(capability=capability, sm_count=132)
    fake.memory.kept = {}
    expected = passes(fake, path)
    device = StrictDevice(monkeypatch, capability, early)
    device.cuda.memory.kept = {}
    found = passes(device, path)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    cuda = device.cuda
    assert (cuda.faults, cuda.refused, cuda.broken) == ([], [], 0)
    assert (cuda.graph_work, cuda.held) == ({}, {})
    device.trim()
    assert cuda.bytes == 0
    assert {each["early"] for each in cuda.launches} == {early}
    assert cuda._stack() == []


def test_a_graph_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    device = StrictDevice(monkeypatch)
    work = checks.Sum(device)
    graph = device.record(work.launch)
    handle = graph._handle
    graph.launch()
    del graph
    with pytest.raises(EngineError, match="invalid resource handle"):
        device.launcher.launch_graph(handle, device.stream.cuda_stream)
    with pytest.raises(EngineError, match="invalid resource handle"):
        device.launcher.launch(add_kernel(), GRID, checks.values_of(0, 0, 0), 77)


def test_memory_that_a_graph_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its going is noted at once; the graph that then runs breaks the device, which no later call gets
    back."""
    device = StrictDevice(monkeypatch)
    work = checks.Sum(device)
    graph = device.record(work.launch)
    graph.launch()
    size, work.y = work.y.nbytes, device.zeros(16)
    assert device.cuda.faults == [
        f"{size} bytes were freed while graph {graph._handle:#x} holds their address"
    ]
    graph.launch()
    for call in (graph.launch, device.synchronize, work.launch, lambda: device.zeros(3)):
        with pytest.raises(DeviceLost, match="an illegal memory access"):
            call()


def test_what_a_recording_does_not_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading code and waiting."""
    device = StrictDevice(monkeypatch)
    work = checks.Sum(device)
    other = replace(add_kernel(), name="add_again")
    for call in (lambda: list(device.prepare([other])), device.synchronize):
        with pytest.raises(EngineError):
            device.record(call)
    device.record(work.launch).launch()
    np.testing.assert_allclose(work.found(), work.expected(), rtol=1e-6)


def test_code_of_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    device = StrictDevice(monkeypatch, 80)
    device.launcher.capability = 90  # whose machine code this device does not take
    with pytest.raises(EngineError, match="no kernel image is available"):
        list(device.prepare([add_kernel()]))
    taken = {
        (folder, capability)
        for folder in ("sm_80", "sm_86", "sm_90", "compute_86")
        for capability in (80, 86, 87, 89, 90)
    }
    allowed = {each for each in taken if runs(*each)}
    assert allowed == {
        ("sm_80", 80), ("sm_80", 86), ("sm_80", 89), ("sm_86", 86), ("sm_86", 89), ("sm_90", 90),
        ("compute_86", 86), ("compute_86", 87), ("compute_86", 89), ("compute_86", 90),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "grid", "capability", "early", "reason"),
    [
        ({}, (1, 1, 1), 90, False, ""),
        ({}, (1, 1, 1), 90, True, ""),
        ({}, (1, 1, 1), 89, True, "an early start"),
        ({}, (1, 65536, 1), 90, False, "a grid of (1, 65536, 1)"),
        ({}, (2**31, 1, 1), 90, False, f"a grid of ({2**31}, 1, 1)"),
        ({"threads": 1056}, (1, 1, 1), 90, False, "1056 threads in a block"),
        ({"threads": 1024, "registers": 72}, (1, 1, 1), 90, False, "72 registers for 32 warps"),
        ({"threads": 1024, "registers": 64}, (1, 1, 1), 75, False, ""),
        ({"min_capability": 80}, (1, 1, 1), 75, False, "compute capability 8.0"),
    ],
)
def test_limits_of_a_launch(change: Any, grid: Any, capability: int, early: bool, reason: str) -> None:
    kernel = replace(add_kernel(), **change)
    assert against(kernel, grid, (kernel.threads, 1, 1), 0, capability, early) == reason


def test_a_launch_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    device = StrictDevice(monkeypatch)
    work = checks.Sum(device)
    with pytest.raises(EngineError, match="too many resources requested"):
        device.launch(
            add_kernel(),
            (1, 65536, 1),
            checks.values_of(*(x.data_ptr() for x in (work.x, work.other, work.y))),
        )
    assert device.cuda.refused == ["a grid of (1, 65536, 1)"]
