"""Every kernel becomes machine code for every device, keeps its values in registers, and takes no more of them than it says."""

from __future__ import annotations

import pytest

from engine.backends.cuda.build import CAPABILITIES, build
from engine.backends.cuda.kernel import Kernel
from engine.backends.cuda.registry import all_kernels

ALL = list(all_kernels())


def complaints(kernel: Kernel) -> tuple[list[str], str]:
    """What is wrong with the machine code, and a line for the table."""
    built = build(kernel, CAPABILITIES)
    wrong = [
        f"sm_{c}: {b.registers} registers of {kernel.registers}, stack {b.stack}, spilled {b.spilled}"
        for c, b in built.items()
        if b.registers > kernel.registers or b.stack or b.spilled
    ]
    return wrong, f"{kernel.name:40} {kernel.registers:4}  " + " ".join(f"{c}:{b.registers}" for c, b in built.items())


def test_names_are_unique() -> None:
    assert len({kernel.name for kernel in ALL}) == len(ALL)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_kernel_spills() -> None:
    found = [complaints(kernel) for kernel in ALL]
    print("\n" + "\n".join(line for _, line in found))
    assert [(kernel.name, wrong) for kernel, (wrong, _) in zip(ALL, found, strict=True) if wrong] == []
