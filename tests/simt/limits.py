"""What a launch may ask of a device, by its compute capability: CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.targets import TEGRA
from engine.backends.cuda.runtime.launcher import EARLY_CAPABILITY

THREADS, WARPS_OF_MULTIPROCESSOR = 1024, {75: 32, 86: 48, 87: 48, 89: 48, 120: 48, 121: 48}
GRID = (2**31 - 1, 65535, 65535)
SHARED = 48 << 10
"""Bytes of a block, without asking for more."""
REGISTERS, REGISTERS_AT_ONCE = 65536, 256
"""Of a multiprocessor, and how many a warp gets at a time."""


def against(
    kernel: Kernel, grid: Sequence[int], block: Sequence[int], shared: int, capability: int, early: bool
) -> str:
    """Why a device refuses a launch; "" where it does not."""
    threads = block[0] * block[1] * block[2]
    warps = -(-threads // 32)
    own = -(-kernel.registers * 32 // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    reasons = {
        f"{threads} threads in a block": not 0 < threads <= THREADS,
        f"{threads} threads of a kernel made for {kernel.threads}": threads > kernel.threads,
        f"a grid of {tuple(grid)}": not all(0 < side <= most for side, most in zip(grid, GRID, strict=True)),
        f"{shared} bytes of shared memory": shared > SHARED,
        f"{warps} warps at once": warps > WARPS_OF_MULTIPROCESSOR.get(capability, 64),
        f"{kernel.registers} registers for {warps} warps": own * warps > REGISTERS,
        f"compute capability {kernel.min_capability / 10}": kernel.min_capability > capability,
        "an early start": early and capability < EARLY_CAPABILITY,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def runs(folder: str, capability: int) -> bool:
    """Whether a device takes an image: sm_86 is machine code, compute_86 is PTX."""
    kind, made = folder.split("_")
    if kind == "compute":
        return int(made) <= capability
    same = int(made) // 10 == capability // 10 and int(made) <= capability
    return int(made) == capability or (same and not {int(made), capability} & TEGRA)
