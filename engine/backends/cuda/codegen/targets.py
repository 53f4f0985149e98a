"""The devices that kernels are compiled for, and the result of a compilation.

The compiler itself is in `build`, so importing this module is cheap.
"""

from __future__ import annotations

from engine.errors import EngineError
from engine.lazy_dataclass import dataclass

CAPABILITIES = (75, 80, 86, 89, 90, 100, 120)
"""Compute capabilities that kernels are built for, times ten: Turing to Blackwell.

Machine code runs on later devices of the same generation.
"""
TEGRA = frozenset({72, 87, 101, 110})
"""Compute capabilities of Jetson and similar devices, which run no machine code of other devices."""


class BuildError(EngineError):
    """A kernel cannot be compiled or breaks its bounds. This is a bug in the program, not a user error."""


@dataclass(frozen=True)
class Built:
    """One kernel for one compute capability: its machine code, PTX and resource usage.

    `registers` is for one thread; `stack`, `spilled` and `shared` are in bytes.
    """

    cubin: bytes
    ptx: str
    registers: int
    stack: int
    spilled: int
    shared: int


@dataclass(frozen=True)
class Target:
    """What a device loads: kernels for `capability`, as machine code or as PTX for its driver to compile."""

    capability: int
    machine_code: bool

    @property
    def folder(self) -> str:
        """sm_90, or compute_120 for PTX."""
        return f"{'sm' if self.machine_code else 'compute'}_{self.capability}"

    def image(self, built: Built) -> bytes:
        """The bytes to give to the driver; PTX ends with a zero byte."""
        return built.cubin if self.machine_code else built.ptx.encode() + b"\0"


def target(capability: int) -> Target:
    """The target for a device of this compute capability.

    Machine code runs on devices of its own generation (the tens) from its capability up, but desktop GPUs and
    `TEGRA` do not share it. PTX runs on everything from its capability up. Source: CUDA C++ Programming
    Guide, "Binary Compatibility". Raises `BuildError` for devices below the first of `CAPABILITIES`.
    """
    before = [each for each in CAPABILITIES if each <= capability]
    if not before:
        raise BuildError(
            f"Kernels need compute capability {CAPABILITIES[0] / 10}; this GPU has {capability / 10}."
        )
    return Target(before[-1], before[-1] // 10 == capability // 10 and capability not in TEGRA)
