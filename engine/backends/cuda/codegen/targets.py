"""Which devices kernels are compiled for, and what comes of compiling one.

Light: the compiler itself is in `build`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import EngineError

CAPABILITIES = (75, 80, 86, 89, 90, 100, 120)
"""Compute capabilities that kernels are built for, times ten: Turing to Blackwell.

Code of one runs on later ones of its generation.
"""
TEGRA = frozenset({72, 87, 101, 110})
"""Compute capabilities of Jetson and its like: they take no machine code of other devices, whatever the
generation."""


class BuildError(EngineError):
    """A kernel cannot be compiled, or breaks a promise; a fault of the program, not of its user."""


@dataclass(frozen=True)
class Built:
    """One kernel for one compute capability: its machine code, and what it takes of the device."""

    cubin: bytes
    ptx: str
    registers: int
    stack: int
    spilled: int
    shared: int


@dataclass(frozen=True)
class Target:
    """What a device is given: kernels compiled for `capability`, as machine code or as PTX, from which its
    driver makes it.
    """

    capability: int
    machine_code: bool

    @property
    def folder(self) -> str:
        """sm_90, or compute_120."""
        return f"{'sm' if self.machine_code else 'compute'}_{self.capability}"

    def image(self, built: Built) -> bytes:
        """What the driver is given; PTX ends with a zero byte."""
        return built.cubin if self.machine_code else built.ptx.encode() + b"\0"


def target(capability: int) -> Target:
    """For a device of this compute capability.

    Machine code runs on its own generation (the tens) from its capability on, but never on both desktop GPUs
    and `TEGRA`; PTX runs on everything from its own on. Source: CUDA C++ Programming Guide, "Binary
    Compatibility". Raises `BuildError` for devices before the first of `CAPABILITIES`.
    """
    before = [each for each in CAPABILITIES if each <= capability]
    if not before:
        raise BuildError(
            f"Kernels need compute capability {CAPABILITIES[0] / 10}; this GPU has {capability / 10}."
        )
    return Target(before[-1], before[-1] // 10 == capability // 10 and capability not in TEGRA)
