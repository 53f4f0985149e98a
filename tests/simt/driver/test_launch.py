"""Launches through a driver said in Python: arguments, contexts, streams, errors."""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.codegen import cubin_cache
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.pointwise import add_kernel
from engine.backends.cuda.runtime.driver import Driver
from engine.backends.cuda.runtime.launcher import Arguments, Launcher
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from tests.gpu.checks import GRID, ROWS, STRIDE, WIDTH, values_of
from tests.simt.fake_driver import FakeCuda

STREAM = 0x7000_0000_1234
_KEPT: list[Any] = []  # what launches wrote to: the driver knows addresses only


class Images:
    """Machine code that only a `FakeCuda` understands."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def ready(self, kernels: Any, capability: int) -> list[Any]:
        return []

    def cubin(self, kernel: Kernel, capability: int) -> bytes:
        self.asked.append((kernel.name, capability))
        return f"image of {kernel.name}".encode()


def launcher(fake: FakeCuda, **options: Any) -> Launcher:
    made = Launcher(0, options.pop("capability", 90), library=Driver(fake), **options)
    list(made.load([add_kernel(), add_kernel()], Images()))  # type: ignore[arg-type]
    return made


def arrays() -> tuple[Any, Any, Any, list[int | float]]:
    rng = np.random.default_rng(0)
    x, o = (rng.standard_normal((ROWS, STRIDE // 4)).astype(np.float32) for _ in range(2))
    y = np.zeros_like(x)
    _KEPT.append((x, o, y))
    return x, o, y, values_of(x.ctypes.data, o.ctypes.data, y.ctypes.data)


@pytest.mark.parametrize(
    ("capability", "early", "expected"),
    [(90, False, False), (90, True, True), (89, True, False), (120, True, True)],
)
def test_a_launch_reaches_the_driver_as_it_was_meant(capability: int, early: bool, expected: bool) -> None:
    fake = FakeCuda(kernels=(add_kernel(),))
    x, o, y, values = arrays()
    launcher(fake, capability=capability, early=early).launch(add_kernel(), GRID, values, STREAM)
    (launch,) = fake.launches
    assert launch == {
        "kernel": "add", "grid": GRID, "block": (add_kernel().threads, 1, 1), "shared": 0, "stream": STREAM,
        "early": expected, "context": 1040, "values": values,
    }  # fmt: skip
    np.testing.assert_array_equal(y[:, :WIDTH], (x + np.float32(0.5) * o)[:, :WIDTH])
    assert (y[:, WIDTH:] == 0).all()


def test_one_load_for_a_device_and_context_of_the_thread_is_put_back() -> None:
    fake = FakeCuda(devices=2, kernels=(add_kernel(),))
    library, images = Driver(fake), Images()
    for index in (0, 1, 0):
        made = Launcher(index, 90, library=library)
        list(made.load([add_kernel()], images))  # type: ignore[arg-type]
        made.launch(add_kernel(), GRID, arrays()[-1], STREAM)
    assert fake.modules == ["add", "add"]
    assert [launch["context"] for launch in fake.launches] == [1040, 1041, 1040]
    assert fake._stack() == []
    fake._stack().append(1040)  # as torch leaves it: nothing is changed then
    made.launch(add_kernel(), GRID, arrays()[-1], STREAM)
    assert fake._stack() == [1040]


def test_errors_of_a_launch() -> None:
    fake = FakeCuda(kernels=(add_kernel(),))
    made = launcher(fake)
    values = arrays()[-1]
    for code, kind, words in (
        (700, DeviceLost, "illegal memory access"),
        (2, NotEnoughMemory, "no memory left"),
        (400, EngineError, "handle"),
    ):
        fake.launch_code = code
        for early in (False, True):
            made.early = early
            with pytest.raises(kind, match=words):
                made.launch(add_kernel(), GRID, values, STREAM)
        assert fake._stack() == []
    with pytest.raises(EngineError, match="invalid resource handle"):
        made.launch_graph(5, STREAM)
    with pytest.raises(struct.error):
        made.launch(add_kernel(), GRID, values[:-1], STREAM)


def test_an_image_that_the_driver_refuses() -> None:
    with pytest.raises(EngineError, match="The GPU reported: device kernel image is invalid"):
        launcher(FakeCuda())


@pytest.mark.parametrize("signature", ["l", "i", "f", "ilf", "iifl", "flili", "llllllif", "ifl" * 9])
def test_arguments_lie_as_c_lays_them(signature: str) -> None:
    """Each at the address that the driver is given, and at a multiple of its size."""
    kinds = {"l": ctypes.c_int64, "i": ctypes.c_int32, "f": ctypes.c_float}
    values: list[int | float] = [
        {"l": -(2**62) + i, "i": -(2**31) + i, "f": i + 0.5}[letter] for i, letter in enumerate(signature)
    ]
    arguments = Arguments(signature)
    arguments.set(values)
    for letter, value, address in zip(signature, values, arguments.pointers, strict=True):
        assert kinds[letter].from_address(address).value == value
        assert (address - arguments.pointers[0]) % ctypes.sizeof(kinds[letter]) == 0
    arguments.set([np.int64(3) if letter != "f" else np.float32(3) for letter in signature])
    assert kinds[signature[-1]].from_address(arguments.pointers[len(signature) - 1]).value == 3


@pytest.mark.slow
def test_letters_are_the_parameters_of_the_machine_code() -> None:
    """What the compiler made of a kernel takes just what `Arguments` lays out."""
    from engine.backends.cuda.codegen.build import build

    ptx = build(add_kernel(), [90])[90].ptx
    entry = re.search(r"\.entry (\w+)\((.*?)\)", ptx, flags=re.S)
    assert entry is not None
    signature = {"u64": "l", "b64": "l", "u32": "i", "b32": "i", "f32": "f"}
    assert entry[1] == "add"
    assert (
        "".join(signature[kind] for kind in re.findall(r"\.param \.(\w+)", entry[2]))
        == add_kernel().parameters
    )
    assert f".maxntid {add_kernel().threads}, 1, 1" in ptx


def test_ptx_goes_to_devices_of_generations_to_come(tmp_path: Path) -> None:
    images = Images()
    made = Launcher(0, 130, library=Driver(FakeCuda(kernels=(add_kernel(),))))
    list(made.load([add_kernel()], images))  # type: ignore[arg-type]
    assert images.asked == [("add", 130)]
    assert cubin_cache.target(130).folder == "compute_120"
