"""Measures how fast a GPU copies memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from engine.backends.cuda.runtime.device import Device

COPIED_BYTES = 1 << 30
_TURNS, _AT_ONCE = 5, 10


def copy_bandwidth(device: Device, size: int = COPIED_BYTES) -> float:
    """Bytes per second that a copy within the device's memory reads and writes. Raises `NotEnoughMemory`."""
    size = min(size, device.free_memory() // 4)
    source, target = device.zeros(size), device.zeros(size)
    return 2 * size / seconds_of(device, lambda: target.copy_(source))


def seconds_of(device: Device, work: Callable[[], object]) -> float:
    """Seconds for one call of `work` on the device: the median of several runs after a warm-up."""
    found = []
    for _ in range(_TURNS + 1):
        device.synchronize()
        begun = time.perf_counter()
        with device.torch_work():
            for _ in range(_AT_ONCE):
                work()
        device.synchronize()
        found.append((time.perf_counter() - begun) / _AT_ONCE)
    return median(found[1:])
