"""A real GPU does what `Device` promises; see `checks`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.backends.cuda.runtime.driver import GpuInfo
from tests.gpu.checks import CHECKS, Sum

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("early", [False, True])
def test_device(gpus: tuple[GpuInfo, ...], check: Callable[..., None], early: bool) -> None:
    from engine.backends.cuda.runtime.torch_device import TorchDevice

    check(TorchDevice(gpus[0].index, early=early))


def test_torch_and_driver_agree(gpus: tuple[GpuInfo, ...]) -> None:
    """They agree on the order of GPUs, their names and their memory."""
    from engine.backends.cuda.runtime.torch_device import TorchDevice

    for gpu in gpus:
        device = TorchDevice(gpu.index)
        assert (device.name, device.capability, device.sm_count) == (gpu.name, gpu.capability, gpu.sm_count)
        assert abs(device.total_memory - gpu.total_memory) < gpu.total_memory // 50
        assert gpu.free_memory is None or gpu.free_memory <= gpu.total_memory


def test_a_chain_in_a_graph_early_or_not(gpus: tuple[GpuInfo, ...]) -> None:
    """200 sums, each on the result of the previous one, give the same bits however their launches overlap."""
    from engine.backends.cuda.runtime.torch_device import TorchDevice

    found = []
    for early in (False, True):
        device = TorchDevice(gpus[0].index, early=early)
        work = Sum(device)

        def chain(work: Sum = work) -> None:
            for _ in range(100):
                work.launch()
                work.x, work.y = work.y, work.x

        graph = device.record(chain)
        for _ in range(2):
            graph.launch()
        found.append(device.read(work.x).tobytes())
    assert found[0] == found[1]
    assert np.frombuffer(found[0], np.float32).any()


def test_two_devices(gpus: tuple[GpuInfo, ...]) -> None:
    """The result of one device is copied to the other, which waits for it."""
    if len(gpus) < 2:
        pytest.skip("needs two GPUs")
    from engine.backends.cuda.runtime.torch_device import TorchDevice

    one, other = (TorchDevice(gpu.index) for gpu in gpus[:2])
    work = Sum(one)
    target = other.zeros(work.y.nbytes)
    work.launch()
    other.wait_for(one.mark())
    other.copy(work.y, target)
    assert other.read(target).tobytes() == one.read(work.y).tobytes()
