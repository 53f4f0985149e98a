"""`TorchDevice` over a driver and a torch.cuda said in Python, and the fake device, both held to what GPUs
are held to in `tests/gpu`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.cuda.kernels.pointwise import add_kernel
from engine.backends.cuda.runtime import launcher
from engine.backends.cuda.runtime.driver import Driver
from engine.backends.cuda.runtime.torch_device import TorchDevice
from engine.backends.graph.buffers import Buffer
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from tests.gpu import checks, sanitize
from tests.gpu.on_device import OnDevice
from tests.simt import agree
from tests.simt.driver.test_launch import Images
from tests.simt.fake import FakeDevice
from tests.simt.fake_driver import FakeCuda

TOTAL = 1 << 30
KERNEL_TESTS = [
    *(
        f"tests/simt/kernels/test_{name}.py"
        for name in (
            "kv_write", "kv_write_gather", "attention", "chosen", "experts", "fused", "gemm", "linear_codes",
            "linear_rows", "norms", "plain", "recurrent", "relative", "packed_activations", "pointwise",
            "rope", "rows", "runs", "rwkv", "sampling",
        )
    ),
    # not those that compare bits of passes of several lengths: NumPy, which computes here, ends a vector's
    # exponentials by other instructions than it begins with
    *(f"tests/simt/kernels/test_pool.py::test_{name}" for name in ("keys_of_blocks", "balanced_matrices",
      "softmax_down_columns")),
]  # fmt: skip
"""Those that hold a kernel's body against its model."""


class FakeTorchCuda:
    """What `gpu` asks of torch.cuda, over a `FakeCuda`: streams are numbers, and all work is done at once
    or recorded.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> None:
        self.fake, self.current, self.streams, self.handles = fake, [0], 0x5000, 0x9000
        self.failing: Exception | None = None
        self.events = 0
        properties = SimpleNamespace(
            name="NVIDIA Fake", major=9, minor=0, multi_processor_count=132, total_memory=TOTAL
        )
        cuda = {
            "Stream": lambda device: self.stream(),
            "Event": lambda blocking: self.event(blocking),
            "CUDAGraph": self.graph,
            "device": lambda index: nullcontext(),
            "stream": self.on_stream,
            "get_device_properties": lambda index: properties,
            "mem_get_info": lambda index: (TOTAL // 2, TOTAL),
            "memory_reserved": lambda index: 3000,
            "memory_allocated": lambda index: 1000,
        }
        for name, value in cuda.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch, "empty", self.empty)
        monkeypatch.setattr(launcher, "BINARIES", Images())
        monkeypatch.setattr(launcher.Launcher.load, "__defaults__", (Images(),))

    def check(self) -> None:
        if self.failing:
            raise self.failing

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        self.current.append(stream.cuda_stream)
        try:
            yield
        finally:
            self.current.pop()

    def empty(self, size: int, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        self.check()
        assert pin_memory or device == torch.device("cuda", 0)
        if size > TOTAL:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        room = torch.zeros(size + 512, dtype=dtype)
        start = -room.data_ptr() % 512
        return room[start : start + size]

    def stream(self) -> Any:
        self.streams += 1
        return SimpleNamespace(
            cuda_stream=self.streams, synchronize=self.check, wait_event=lambda event: self.check()
        )

    def event(self, blocking: bool) -> Any:
        assert blocking, "waiting must not take a processor"
        self.events += 1
        return SimpleNamespace(
            record=lambda stream: self.check(), synchronize=self.check, query=lambda: self.check() or True
        )

    def graph(self) -> Any:
        self.handles += 1
        handle, work, stream = self.handles, list[Any](), 0

        def begin(capture_error_mode: str) -> None:
            nonlocal stream
            assert capture_error_mode == "thread_local"
            stream = self.current[-1]
            assert stream, "a recording needs a stream of its own"
            assert stream not in self.fake.recording
            self.fake.recording[stream] = work

        def end() -> None:
            del self.fake.recording[stream]
            self.fake.graph_work[handle] = work

        return SimpleNamespace(capture_begin=begin, capture_end=end, raw_cuda_graph_exec=lambda: handle)


class Made:
    """A `TorchDevice`, and what is behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, early: bool = False) -> None:
        self.fake = FakeCuda(kernels=(add_kernel(),))
        self.torch = FakeTorchCuda(monkeypatch, self.fake)
        self.device = TorchDevice(0, early=early, library=Driver(self.fake))


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("early", [False, True])
def test_torch_device(monkeypatch: pytest.MonkeyPatch, check: Callable[..., None], early: bool) -> None:
    made = Made(monkeypatch, early)
    check(made.device)
    assert {each["early"] for each in made.fake.launches} <= {early}
    assert {each["stream"] for each in made.fake.launches} <= {made.device.stream.cuda_stream}
    assert made.fake._stack() == []


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_fake_device(check: Callable[..., None]) -> None:
    """The tests' own device promises the same."""
    check(FakeDevice(total_memory=1 << 29))


def test_a_graph_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    work = checks.Sum(made.device)
    graph = made.device.record(work.launch)
    launches = len(made.fake.launches)
    graph.launch()
    assert made.fake.graphs == [(0x9001, made.device.stream.cuda_stream)]
    assert len(made.fake.launches) == launches


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_searched_while_recording(monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    """What a search deletes may call the driver; afterwards it is as before, after a recording that failed as
    well."""
    made, dropped = Made(monkeypatch), list[int]()
    work, thresholds, was = checks.Sum(made.device), gc.get_threshold(), gc.isenabled()

    class Cycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            dropped.append(len(made.fake.recording))

    def launches() -> None:
        Cycle()
        work.launch()
        kept = [[i] for i in range(50)]  # each asks for a search
        assert kept
        if not enabled:
            raise KeyError

    try:
        gc.enable() if enabled else gc.disable()
        gc.set_threshold(1)
        with nullcontext() if enabled else pytest.raises(KeyError):
            made.device.record(launches)
        assert gc.isenabled() == enabled
    finally:
        gc.set_threshold(*thresholds)
        gc.enable() if was else gc.disable()
    gc.collect()
    assert dropped == [0]


def test_errors_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    device = made.device
    mark = device.mark()

    def error(text: str, code: int | None) -> Exception:
        out = torch.AcceleratorError(text)
        if code is not None:
            out.error_code = code
        return out

    made.torch.failing = error(
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...", 700
    )
    for call in (
        device.synchronize,
        mark.wait,
        mark.reached,
        device.mark,
        lambda: device.empty(3),
        lambda: device.wait_for(mark),
    ):
        with pytest.raises(
            DeviceLost,
            match=r"stopped working: an illegal memory access was encountered\. .* reload the model",
        ):
            call()
    made.torch.failing = error("CUDA error: operation not permitted when stream is capturing", 900)
    with pytest.raises(
        EngineError, match=r"^The GPU reported: operation not permitted when stream is capturing\.$"
    ):
        device.synchronize()
    made.torch.failing = error("CUDA error: out of memory", 2)
    with pytest.raises(NotEnoughMemory, match=r"537 MB of 1\.07 GB free; 2 GB more were needed; close"):
        device.pinned(2 * 10**9)
    made.torch.failing = None
    for failure, kind, words in (
        (torch.OutOfMemoryError("CUDA out of memory"), NotEnoughMemory, "free; close"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            NotEnoughMemory,
            "free; close",
        ),
        (
            RuntimeError("CUDA driver error: invalid argument"),
            EngineError,
            "^The GPU reported: invalid argument",
        ),
        (error("CUDA error: device-side assert triggered", None), DeviceLost, "device-side assert"),
        (RuntimeError("shapes cannot be multiplied"), RuntimeError, "shapes"),
    ):
        with pytest.raises(kind, match=words), device.torch_work():
            raise failure


def test_torch_that_cannot_start_a_gpu() -> None:
    """As it is with the CPU build, and where there is no GPU of this number."""
    with pytest.raises(EngineError, match="PyTorch cannot start GPU 77: "):
        TorchDevice(77, library=Driver(FakeCuda()))


def test_copies_must_be_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Made(monkeypatch).device
    with pytest.raises(ValueError, match="12 bytes cannot be copied to 13"):
        device.copy(device.empty(12), device.empty(13))
    with pytest.raises(ValueError, match="in one piece"):
        device.copy(device.empty(16).view(4, 4)[:, :2], device.empty(8))


def test_copies_between_gpus_name_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pointer of another context is not rejected everywhere."""
    made = Made(monkeypatch)
    made.fake.devices = 2
    given = torch.arange(64, dtype=torch.uint8)
    source: Any = SimpleNamespace(
        device=torch.device("cuda", 1), nbytes=64, is_contiguous=lambda: True, data_ptr=given.data_ptr
    )
    target = made.device.empty(64)
    for _ in range(2):
        made.device.copy(source, target)
        assert target.tolist() == list(range(64))
    assert made.fake.peer_copies == [(1040, 1041, 64)] * 2
    made.device.copy(given, made.device.empty(64))
    assert len(made.fake.peer_copies) == 2


def test_one_stream_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that was freed on one stream cannot be had again on another."""
    made = Made(monkeypatch)
    again = TorchDevice(0, library=made.device.launcher._library)
    assert again.stream is made.device.stream
    assert made.torch.streams == 0x5001


def test_what_is_remembered_goes_with_the_driver_and_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where NVML, which knows the driver's own version, is not there."""
    made = Made(monkeypatch)
    seen = {made.device.identity}
    made.fake.version += 10
    seen.add(TorchDevice(0, library=Driver(made.fake)).identity)
    monkeypatch.setattr(torch, "__version__", "99.1")
    seen.add(TorchDevice(0, library=Driver(made.fake)).identity)
    assert len(seen) == 3


def test_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order; and a device that is gone is no trouble."""
    made, done = Made(monkeypatch), list[str]()
    device = made.device
    device.upload(np.zeros(9, np.uint8))
    monkeypatch.setattr(device.stream, "synchronize", lambda: (made.torch.check(), done.append("waited")))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: done.append("cuBLAS"), raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    device.trim()
    assert done == ["waited", "cuBLAS", "emptied"]
    assert device._staging == []
    error = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    error.error_code = 700
    made.torch.failing = error
    device.trim()
    assert len(done) == 3


# --- what runs on GPUs, as far as it runs without ---


def test_the_interpreters_tests_run_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's part, with the fake device in the GPU's place: same arrays, same answer; what did not
    run is reported.
    """
    runner = OnDevice(FakeDevice())
    monkeypatch.setattr(agree, "interpreted", runner.interpreted)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((checks.ROWS, checks.STRIDE // 4)).astype(np.float32) for _ in range(2)]
    arrays.append(np.zeros_like(arrays[0]))
    arguments = [
        agree.At(checks.BUFFERS.index(v)) if isinstance(v, Buffer) else v for v in checks.CALL.arguments
    ]
    found, expected = agree.both(add_kernel(), checks.GRID, arguments, arrays)
    np.testing.assert_array_equal(found[2], expected[2])
    assert found[2][:, : checks.WIDTH].any()
    assert (runner.launches, runner.ran) == (2, {"add"})
    assert runner.reported().startswith("2 launches of 1 forms of kernels on fake 0")
    assert checks.missing(set(), [add_kernel()]) == ["add"]
    assert checks.missing({"norm_64"}, [add_kernel()]) == ["add"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_registered_form_is_launched_by_some_test(tmp_path: Path) -> None:
    """What `tests/gpu/test_kernels` demands of a GPU, with the fake device in its place: it can be had."""
    from engine.backends.cuda.codegen.registry import all_kernels
    from tests.gpu.test_kernels import run_on_device

    done, ran = run_on_device(tmp_path / "report.json", {"INGLENOOK_FAKE_DEVICE": "1"}, KERNEL_TESTS)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert ran["launches"] > 0
    assert checks.missing(set(ran["ran"]), list(all_kernels())) == []


@pytest.mark.slow
def test_without_a_gpu_all_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin and the sanitizer's script end with the reason, and the GPU's tests are left out with it."""
    from engine.backends.cuda.runtime.driver import find_gpus

    reason = find_gpus().reason
    if not reason:
        pytest.skip("there is a GPU here")
    root = Path(__file__).parents[3]
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    for extra, status in ([], 0), (["-p", "tests.gpu.on_device"], 5):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *extra, *options],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert reason in done.stdout
    assert sanitize.main([]) == 2


def test_the_sanitizer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    commands = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        assert options["env"]["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
        return SimpleNamespace(returncode=99 if "racecheck" in command else 0)

    monkeypatch.setattr(sanitize, "find_gpus", lambda: SimpleNamespace(gpus=(1,), reason=""))
    monkeypatch.setattr(sanitize, "sanitizer", lambda: "/opt/compute-sanitizer")
    monkeypatch.setattr(sanitize, "subprocess", SimpleNamespace(run=run))
    assert sanitize.main(["memcheck"]) == 0
    assert sanitize.main(["memcheck", "racecheck"]) == 1
    assert commands[0][:3] == ["/opt/compute-sanitizer", "--tool", "memcheck"]
    assert sanitize.main(["nothing"]) == 2
    monkeypatch.setattr(sanitize, "sanitizer", lambda: None)
    assert sanitize.main([]) == 2
    said = capsys.readouterr().out
    assert "memcheck: clean" in said
    assert "racecheck: ended with 99" in said
    assert "There is no tool 'nothing'" in said
    assert "compute-sanitizer was not found" in said
