"""Every kernel becomes machine code for every device, keeps its values in registers, and takes no more of
them than it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from engine.backends.cuda.codegen.build import build
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.registry import all_kernels
from engine.backends.cuda.codegen.targets import CAPABILITIES, BuildError
from engine.backends.cuda.codegen.workers import Outcome, compiled
from engine.backends.cuda.kernels.pointwise import add_kernel
from engine.backends.cuda.runtime.launcher import Arguments
from tests.simt import cubin
from tests.simt.driver.test_build import doubling, spilling

WORKERS = 2


def complaints(kernel: Kernel, outcome: Outcome) -> list[str]:
    """What is wrong with what came of a kernel."""
    if isinstance(outcome, BuildError):
        return [f"{kernel.name}: {outcome}"]
    expected = {capability for capability in CAPABILITIES if capability >= kernel.min_capability}
    wrong = [f"{kernel.name}: no code for sm_{c}" for c in sorted(expected - set(outcome))]
    return (
        wrong
        + [
            f"{kernel.name} sm_{c}: {b.registers} registers of {kernel.registers}, stack {b.stack}, spilled "
            f"{b.spilled}"
            for c, b in outcome.items()
            if b.registers > kernel.registers or b.stack or b.spilled
        ]
        + [
            f"{kernel.name} sm_{c}: {text}"
            for c, b in outcome.items()
            for text in disagreements(kernel, b.cubin)
        ]
    )


def disagreements(kernel: Kernel, image: bytes) -> list[str]:
    """Where machine code takes its parameters from elsewhere than `launch.Arguments` puts them, or runs in
    other blocks."""
    arguments = Arguments(kernel.parameters)
    places, sizes = [], {"l": 8, "i": 4, "f": 4}
    for address, letter in zip(arguments.pointers, kernel.parameters, strict=False):
        places.append((address - arguments.pointers[0], sizes[letter]))
    said = {
        "parameters": (cubin.parameters(image, kernel.name), places),
        "bytes of parameters": (cubin.number(image, kernel.name, cubin.CBANK_PARAM_SIZE), sum(places[-1])),
        "threads": (cubin.number(image, kernel.name, cubin.MAX_THREADS), kernel.threads),
    }
    return [
        f"{what} {theirs}, launched with {ours}" for what, (theirs, ours) in said.items() if theirs != ours
    ]


def line(kernel: Kernel, outcome: Outcome) -> str:
    """Of the table: what a kernel says, then what it takes on each device."""
    if isinstance(outcome, BuildError):
        return f"{kernel.name:40} failed"
    shared = max((b.shared for b in outcome.values()), default=0)
    return f"{kernel.name:40} {kernel.registers:4} {shared:6}  " + "  ".join(
        f"{c}:{b.registers:3}" for c, b in outcome.items()
    )


def gate(kernels: Iterable[Kernel]) -> tuple[list[str], list[str]]:
    """All complaints, and the table, which is printed while it is made."""
    wrong, table = [], []
    print(f"\n{'kernel':40} said shared  registers on each sm_", flush=True)
    for kernel, outcome in compiled(list(kernels), CAPABILITIES, WORKERS):
        wrong += complaints(kernel, outcome)
        table.append(line(kernel, outcome))
        print(table[-1], flush=True)
    return wrong, table


def test_names_are_unique_and_symbols() -> None:
    names = [kernel.name for kernel in all_kernels()]
    assert len(set(names)) == len(names) > 0
    assert [name for name in names if not (name.isidentifier() and name.isascii())] == []


def test_parameters_lie_where_machine_code_takes_them_from() -> None:
    """Of a kernel with parameters of all kinds, on each generation; the slow test below does it for all
    kernels.
    """
    kernel = add_kernel()
    assert set(kernel.parameters) == {"l", "i", "f"}
    for capability, built in build(kernel, [75, 90, 120]).items():
        assert disagreements(kernel, built.cubin) == [], capability


def test_a_kernel_that_is_launched_otherwise_is_found() -> None:
    kernel = add_kernel()
    image = build(kernel, [90])[90].cubin
    moved = replace(kernel, parameters="i" + kernel.parameters[1:])
    fewer = replace(kernel, parameters=kernel.parameters[:-1], threads=kernel.threads // 2)
    assert any("parameters" in text for text in disagreements(moved, image))
    assert [text.split(" [")[0].split(" 1")[0] for text in disagreements(fewer, image)][-1] == "threads"
    with pytest.raises(ValueError, match=r"no \.nv\.info\.other"):
        cubin.parameters(image, "other")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_kernel_spills() -> None:
    wrong, table = gate(all_kernels())
    assert wrong == []
    assert len(table) == len(list(all_kernels()))


@pytest.mark.slow
def test_the_gate_bites() -> None:
    """A kernel that spills and one that computes in float64 are found; so is one that takes more registers
    than it says.
    """
    modest = next(iter(all_kernels()))
    greedy = Kernel("greedy", modest.body, modest.parameters, modest.threads, 4, modest.constants)
    wrong, table = gate([spilling(), doubling(), greedy])
    text = "\n".join(wrong)
    assert all(f"wasteful sm_{c}:" in text for c in CAPABILITIES), text
    assert "The kernel double computes in float64" in text
    assert all(f"greedy sm_{c}:" in text for c in CAPABILITIES)
    assert any("failed" in row for row in table)
