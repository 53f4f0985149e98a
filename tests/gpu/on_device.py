"""Runs the interpreter's tests on a real GPU.

    python -m pytest -p tests.gpu.on_device tests/simt -m "slow or not slow"

Each kernel test calls `tests.simt.agree.both`, which compares the kernel's body with its model. Here the body
runs compiled on the device, twice, on copies of the same arrays, and both runs must give the same bits. Tests
of whole models get a `RealDevice` instead of the fake one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.registry import all_kernels
from engine.backends.cuda.runtime.device import Device
from tests.gpu.checks import missing
from tests.simt import agree, fake_machine, whole

REPORT = "INGLENOOK_ON_DEVICE_REPORT"
"""Names a file for what ran, as JSON."""
EARLY = "INGLENOOK_EARLY"
"""Where this is "1", kernels may start before the ones before them have ended."""
WHOLE_MODELS = "tests.simt.backend."
"""Modules with this name use the real device for whole models, too."""

FAKE = "INGLENOOK_FAKE_DEVICE"
"""Where this is "1", the tests' fake device stands for the GPU: what is launched and reported can be seen
without one."""


class OnDevice:
    """Replaces `agree.interpreted`."""

    def __init__(self, device: Device) -> None:
        self.device, self.launches = device, 0
        self.ran: set[str] = set()

    def interpreted(
        self,
        kernel: Kernel,
        blocks: tuple[int, int, int],
        arguments: Sequence[Any],
        arrays: Sequence[Any],
        reverse: bool,
    ) -> list[Any]:
        """The arrays after the kernel ran. `reverse` is the interpreter's; a device has no order."""
        if kernel.min_capability > self.device.capability:
            pytest.skip(f"{kernel.name} needs compute capability {kernel.min_capability / 10}")
        list(self.device.prepare([kernel]))
        tensors = [
            self.device.zeros(8 * len(a.entries))
            if isinstance(a, agree.Table)
            else self.device.upload(np.ascontiguousarray(a))
            for a in arrays
        ]
        places = [tensor.data_ptr() for tensor in tensors]
        for tensor, array in zip(tensors, arrays, strict=True):
            if isinstance(array, agree.Table):
                self.device.copy(self.device.upload(array.addresses(places)), tensor)
                self.device.synchronize()
        values = [tensors[a.array].data_ptr() + a.offset if isinstance(a, agree.At) else a for a in arguments]
        self.device.launch(kernel, blocks, values)
        out = [
            a if isinstance(a, agree.Table) else self.device.read(t).view(a.dtype).reshape(a.shape)
            for t, a in zip(tensors, arrays, strict=True)
        ]
        self.launches += 1
        self.ran.add(kernel.name)
        return out

    def reported(self) -> str:
        """A line of summary, and one with what did not run, if any."""
        left = missing(self.ran, list(all_kernels()))
        line = f"{self.launches} launches of {len(self.ran)} forms of kernels on {self.device.name}"
        return f"{line}\nnot launched: {', '.join(left)}" if left else line


_runner: OnDevice | None = None
_installed = fake_machine.install


def pytest_sessionstart() -> None:
    """Replace the interpreter by the device, once the environment of the tests is set up."""
    global _runner
    _runner = OnDevice(_device())
    agree.interpreted, agree.CONTRACTED = _runner.interpreted, True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replace the fake device by the real one, where whole models use it."""
    if os.environ.get(FAKE) == "1":
        return
    from tests.gpu.real_device import RealDevice

    RealDevice.early = os.environ.get(EARLY) == "1"
    modules = {item.module for item in items if item.module.__name__.startswith(WHOLE_MODELS)}  # type: ignore[attr-defined]
    for module in [*modules, whole, fake_machine]:
        if hasattr(module, "FakeDevice"):
            module.FakeDevice = RealDevice
        if hasattr(module, "install"):
            module.install = _install


def _install(monkeypatch: pytest.MonkeyPatch, *devices: Any) -> fake_machine.FakeMachine:
    """A machine with one GPU, which is a real one."""
    if len(devices) > 1:
        pytest.skip("needs a machine with several GPUs")
    return _installed(monkeypatch, *devices)


def _device() -> Device:
    if os.environ.get(FAKE) == "1":
        from tests.simt.fake import FakeDevice

        return FakeDevice(total_memory=1 << 36, capability=120)
    from engine.backends.cuda.runtime.driver import find_gpus

    found = find_gpus()
    if not found.gpus:
        pytest.exit(found.reason, returncode=5)
    from engine.backends.cuda.runtime.torch_device import TorchDevice

    return TorchDevice(found.gpus[0].index, early=os.environ.get(EARLY) == "1")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that shares out the tests (pytest-xdist) what ran in this one."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and _runner is not None:
        output["launches"], output["ran"] = _runner.launches, sorted(_runner.ran)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up what ran in the others."""
    output = getattr(node, "workeroutput", {})
    if _runner is not None:
        _runner.launches += output.get("launches", 0)
        _runner.ran |= set(output.get("ran", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report what ran."""
    if _runner is None:
        return
    terminalreporter.write_line(_runner.reported())
    if REPORT in os.environ:
        Path(os.environ[REPORT]).write_text(
            json.dumps({"launches": _runner.launches, "ran": sorted(_runner.ran)}), "utf-8"
        )
