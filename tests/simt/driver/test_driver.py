"""What is found of GPUs, against a driver said in Python; and that our ctypes are those of NVIDIA's own
header.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.backends.cuda.runtime import driver, launcher, nvml
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from tests.simt.fake_driver import H200, FakeCuda


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has all it needs, and no management library."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(driver, "torch_build", lambda: "13.0")
    monkeypatch.setattr(driver, "gpu_parts", lambda: True)
    monkeypatch.setattr(nvml, "load", lambda: None)


def found(monkeypatch: pytest.MonkeyPatch, fake: Any) -> driver.Gpus:
    made = driver.Driver(fake)
    monkeypatch.setattr(driver, "driver", lambda: made)
    return driver.find_gpus()


def test_a_gpu_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = found(monkeypatch, FakeCuda(devices=2))
    assert (gpus.reason, gpus.refused) == ("", ())
    expected = {
        "capability": 90,
        "total_memory": 141 * 10**9,
        "sm_count": 132,
        "clock": 1980,
        "memory_clock": 3201,
        "bus": 6144,
    }
    for index, gpu in enumerate(gpus.gpus):
        assert gpu == driver.GpuInfo(index, f"NVIDIA Fake {index}", **expected, l2_cache=62914560)


def test_attributes_that_a_driver_no_longer_knows_are_0(monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = found(
        monkeypatch, FakeCuda(attributes={k: v for k, v in H200.items() if k not in (13, 36)})
    ).gpus
    assert (gpu.clock, gpu.memory_clock, gpu.sm_count) == (0, 0, 132)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 12040}, "too old: found one for CUDA 12.4, expected R580 or later"),
        ({"init_code": 100}, "found no GPU"),
        ({"devices": 0}, "found no GPU"),
        ({"init_code": 803}, "different versions: system has .*MISMATCH.*restart"),
        ({"init_code": 999}, "does not start: unknown error"),
        (
            {"attributes": {**H200, 75: 6, 76: 1}},
            r"NVIDIA Fake 0 is too old: its compute capability is 6\.1, and at least 7\.5",
        ),
        ({"attributes": {**H200, 20: 2}}, "accepts no programs"),
    ],
)
def test_reasons(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str) -> None:
    fake = FakeCuda()
    for name, value in changes.items():
        setattr(fake, name, value)
    gpus = found(monkeypatch, fake)
    assert gpus.gpus == ()
    assert re.search(words, gpus.reason)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", refuse)
    driver.driver.cache_clear()
    assert driver.find_gpus().reason == "No NVIDIA driver was found on this machine."


def test_hidden_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    fake = FakeCuda()
    fake.init_code = 100
    assert "CUDA_VISIBLE_DEVICES is '7'" in found(monkeypatch, fake).reason


def test_a_driver_that_lacks_a_function_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    monkeypatch.setattr(
        FakeCuda, "__getattr__", lambda self, name: (_ for _ in ()).throw(AttributeError(name))
    )
    assert "has no cuDriverGetVersion: it is older than R580" in found(monkeypatch, fake).reason


def test_what_the_program_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "gpu_parts", lambda: False)
    assert 'pip install "inglenook[gpu]"' in found(monkeypatch, FakeCuda()).reason
    monkeypatch.setattr(driver, "torch_build", lambda: "")
    gpus = found(monkeypatch, FakeCuda())
    assert "CPU build" in gpus.reason
    assert gpus.gpus == ()


def test_a_driver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()
    monkeypatch.setattr(driver, "_find", lambda: waiting.wait(1000))
    assert "did not answer within 0.05 seconds" in driver.find_gpus(0.05).reason
    waiting.set()


class FakeNvml:
    """The management library, of one part of a GPU; functions as ctypes would call them."""

    def __init__(self) -> None:
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        kinds = {
            "nvmlInit_v2": (),
            "nvmlShutdown": (),
            "nvmlSystemGetDriverVersion": (ctypes.c_void_p, ctypes.c_uint),
            "nvmlDeviceGetHandleByUUID": (ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
            "nvmlDeviceGetMemoryInfo": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulonglong)),
        }[name]
        made = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(getattr(self, "_" + name))
        setattr(self, name, made)
        return made

    def _nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def _nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def _nvmlSystemGetDriverVersion(self, out: int, size: int) -> int:
        ctypes.memmove(out, b"550.54.14\0", 10)
        return 0

    def _nvmlDeviceGetHandleByUUID(self, uuid: bytes, out: Any) -> int:
        if uuid != b"MIG-28292a2b-2c2d-2e2f-3031-323334353637":
            return 6
        out[0] = 77
        return 0

    def _nvmlDeviceGetMemoryInfo(self, device: int, out: Any) -> int:
        assert device == 77
        out[0], out[1], out[2] = 100, 60, 40
        return 0


def test_free_memory_and_version_from_the_management_library(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = FakeNvml()
    monkeypatch.setattr(nvml, "load", lambda: manager)
    assert found(monkeypatch, FakeCuda()).gpus[0].free_memory == 60
    assert "found version 550.54.14 (CUDA 12.4)" in found(monkeypatch, FakeCuda(version=12040)).reason
    assert manager.open == 0


def test_errors_become_ours() -> None:
    library = driver.Driver(FakeCuda())
    assert isinstance(library.error(2), NotEnoughMemory)
    lost = library.error(700)
    assert isinstance(lost, DeviceLost)
    assert "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)" in str(lost)
    assert "reload the model" in str(lost)
    other = library.error(400)
    assert type(other) is EngineError
    assert str(other) == "The GPU reported: invalid resource handle (CUDA_ERROR_INVALID_HANDLE)."
    assert str(library.error(12345)) == "The GPU reported: error 12345."


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cuda: Optional[str] = None", ""), ("cuda: Optional[str] = '13.0'", "13.0"), ("hip = 1", "")],
)
def test_torch_is_not_imported_to_be_asked(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2'\n{text}\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    code += "; from engine.backends.cuda.runtime.driver import torch_build; print(repr(torch_build()))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert answer.stdout.strip() == repr(expected)


def test_on_this_machine_it_answers_fast_and_lightly() -> None:
    """Whatever there is: no exception, GPUs or a reason, and neither torch nor numba was imported."""
    code = """
import sys
from engine.backends.cuda.runtime.driver import find_gpus
found = find_gpus()
assert bool(found.gpus) != bool(found.reason), found
print([name for name in ("torch", "numba", "numba_cuda", "llvmlite") if name in sys.modules])
"""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert answer.stdout.strip() == "[]"


# --- NVIDIA's own declarations, as its Python package has them ---


def declarations() -> dict[str, list[str]]:
    """Each driver function's kinds of arguments: "pointer", or the size of a number."""
    spec = importlib.util.find_spec("cuda.bindings")
    assert spec is not None
    assert spec.submodule_search_locations
    text = (Path(next(iter(spec.submodule_search_locations))) / "cydriver.pxd").read_text()
    out = {}
    for name, arguments in re.findall(r"^cdef CUresult (cu\w+)\((.*?)\) except", text, flags=re.M):
        out[name] = [kind_of(argument) for argument in arguments.split(", ") if argument]
    return out


def kind_of(argument: str) -> str:
    words = argument.replace("const ", "").replace("*", " * ").split()
    handles = {"CUmodule", "CUfunction", "CUstream", "CUcontext", "CUgraphExec", "CUgraph"}
    if "*" in words or words[0] in handles:
        return "pointer"
    sizes = {
        "unsigned": "4",
        "int": "4",
        "CUdevice": "4",
        "CUresult": "4",
        "CUdevice_attribute": "4",
        "size_t": "8",
        "CUdeviceptr": "8",
    }
    return sizes.get(words[0], words[0])


def kind_of_ctype(kind: Any) -> str:
    return (
        "pointer"
        if kind in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(kind, "contents")
        else str(ctypes.sizeof(kind))
    )


def test_signatures_are_those_of_the_header() -> None:
    declared = declarations()
    for name, kinds in driver._SIGNATURES.items():
        assert [kind_of_ctype(kind) for kind in kinds] == declared[name.removesuffix("_v2")], name


def test_numbers_are_those_of_the_header() -> None:
    from cuda.bindings import driver as real

    required = {
        "clock": "CLOCK_RATE", "processors": "MULTIPROCESSOR_COUNT", "mode": "COMPUTE_MODE",
        "memory_clock": "MEMORY_CLOCK_RATE", "bus": "GLOBAL_MEMORY_BUS_WIDTH", "l2_cache": "L2_CACHE_SIZE",
        "major": "COMPUTE_CAPABILITY_MAJOR", "minor": "COMPUTE_CAPABILITY_MINOR",
    }  # fmt: skip
    assert {
        k: int(getattr(real.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"))
        for k, name in required.items()
    } == driver._ATTRIBUTES
    assert int(real.CUcomputemode.CU_COMPUTEMODE_PROHIBITED) == driver._PROHIBITED
    lost = {
        "ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE", "CONTAINED", "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT",
        "CONTEXT_IS_DESTROYED", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED", "TENSOR_MEMORY_LEAK", "MPS_CLIENT_TERMINATED",
        "UNKNOWN",
    }  # fmt: skip
    assert {int(getattr(real.CUresult, f"CUDA_ERROR_{name}")) for name in lost} == driver.LOST
    assert int(real.CUresult.CUDA_ERROR_OUT_OF_MEMORY) == driver.OUT_OF_MEMORY


@contextmanager
def real_config() -> Iterator[tuple[Any, int]]:
    """NVIDIA's own structure of a launch, filled in, and its address."""
    from cuda.bindings import driver as real

    attribute = real.CUlaunchAttribute()
    attribute.id = real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = real.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 11, 12, 13
    config.blockDimX, config.blockDimY, config.blockDimZ = 14, 15, 16
    config.sharedMemBytes, config.hStream = 17, real.CUstream(18)
    config.attrs, config.numAttrs = [attribute], 1
    yield config, int(config.getPtr())


def test_structures_are_those_of_the_header() -> None:
    with real_config() as (_, address):
        ours = launcher.LaunchConfig.from_address(address)
        assert (list(ours.grid), list(ours.block), ours.shared_bytes, ours.stream) == (
            [11, 12, 13],
            [14, 15, 16],
            17,
            18,
        )
        assert ours.attribute_count == 1
        attribute = ours.attributes[0]
        assert (attribute.id, attribute.value) == (launcher._PROGRAMMATIC_STREAM_SERIALIZATION, 1)
    assert ctypes.sizeof(launcher.LaunchAttribute) == 72
    assert ctypes.sizeof(launcher.LaunchConfig) == 56


def test_a_torch_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """`addmm` with another output type in place came with 2.13: said before a reply stumbles over it."""
    for version, usable in (((2, 12), False), ((2, 13), True), ((3, 0), True)):
        monkeypatch.setattr(driver, "torch_version", lambda version=version: version)
        gpus = found(monkeypatch, FakeCuda())
        assert bool(gpus.gpus) is usable
        if not usable:
            assert gpus.reason == (
                "A GPU was found, but PyTorch 2.12 is too old for it: 2.13 or later is needed; update "
                "PyTorch."
            )


@pytest.mark.slow
def test_torch_says_its_version(tmp_path: Path) -> None:
    import torch

    assert driver.torch_version() == tuple(map(int, torch.__version__.split(".")[:2]))
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('not to be imported')")
    code = "from engine.backends.cuda.runtime.driver import torch_version; print(torch_version())"
    for text, version in (
        ("__version__ = '2.9.1+cu130'", (2, 9)),
        ("x = 1", (0, 0)),
        ("__version__: str = '2.13.0a0'", (2, 13)),
    ):
        (tmp_path / "torch" / "version.py").write_text(text + "\n")
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
        )
        assert done.stdout.strip() == str(version)
