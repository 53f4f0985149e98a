"""Measures the peak rates of a GPU: copying memory, and torch's matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from engine.backends.cuda.runtime.device import Device

COPIED_BYTES, SIDE = 1 << 30, 8192
_TURNS, _AT_ONCE = 5, 10


def copy_bandwidth(device: Device, size: int = COPIED_BYTES) -> float:
    """Bytes per second that a copy within the device's memory reads and writes. Raises `NotEnoughMemory`."""
    size = min(size, device.free_memory() // 4)
    source, target = device.zeros(size), device.zeros(size)
    return 2 * size / _seconds(device, lambda: target.copy_(source))


def matmul_rate(device: Device, side: int = SIDE) -> float:
    """Floating-point operations per second of torch's product of two square matrices.

    They are bf16, or fp16 below compute capability 8.0.
    """
    kind = torch.bfloat16 if device.capability >= 80 else torch.float16
    with device.torch_work():
        a, b = (torch.ones(side, side, dtype=kind, device=device.torch_device) for _ in range(2))
    return 2 * float(side) ** 3 / _seconds(device, lambda: torch.mm(a, b))


def _seconds(device: Device, work: Callable[[], object]) -> float:
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
