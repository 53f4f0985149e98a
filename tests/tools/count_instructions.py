"""Counts what the main loops of the products of few rows issue, from their machine code; no GPU is needed:
`python -m tests.tools.count_instructions [parts of names]`.

Printed for each kernel: instructions of the main loop for each block of 16 x 64 weights that a warp
multiplies, the 16-byte loads of weights (in bytes: 16 for each lane) of a turn of the loop, the issue slots
that there are for such a block while memory is read at full speed, and the share of them that the loop takes.
Slots are those of an H200: 4.8e12 bytes a second, 132 multiprocessors of 4 schedulers that issue an
instruction a cycle, at 1.855e9 cycles a second: of 4.25-bit weights a block of 544 bytes for each 111 cycles.
Each instruction counts as one slot, those under a predicate and no-operations, too. What is outside of the
main loop is not counted, nor what waits for memory or the tensor cores.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.linear.variants import forms
from engine.backends.cuda.layouts.codes import CodeLayout
from engine.backends.cuda.layouts.table import WEIGHT_LAYOUTS

BANDWIDTH, PROCESSORS, SCHEDULERS, CLOCK = 4.8e12, 132, 4, 1.855e9
CAPABILITY = 90
_PLAIN_BYTES = {"bf16": 2048, "fp16": 2048, "fp8": 1040, "fp32": 4096}


@dataclass(frozen=True)
class Loop:
    """The main loop of a kernel: instructions, those of them that are of the tensor cores, bytes a lane loads
    of weights in a turn, blocks that a turn multiplies.
    """

    instructions: int
    matrix: int
    loaded: int
    blocks: float


def instructions(cubin: bytes) -> tuple[list[str], dict[str, int]]:
    """All of a kernel's, in their order, and where its labels are. Raises `OSError` without nvdisasm."""
    from cuda.pathfinder import find_nvidia_binary_utility

    tool = find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        raise OSError("nvdisasm was not found: install nvidia-cuda-nvdisasm, or the CUDA toolkit.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        text = subprocess.run([tool, "-c", str(path)], check=True, capture_output=True, text=True).stdout
    found: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(found)
        elif code := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            found.append(code[1].strip())
    return found, labels


def main_loop(cubin: bytes, each: float) -> Loop:
    """The loop that has the most matrix products, or, of those without any, the most sums.

    `each`: blocks for each 4 of them.
    """
    found, labels = instructions(cubin)
    best: list[str] = []
    for end, code in enumerate(found):
        target = re.search(r"BRA.*?(\.L_x_\d+)", code)
        if target and labels.get(target[1], end + 1) <= end:
            body = found[labels[target[1]] : end + 1]
            if _weight(body) > _weight(best):
                best = body
    loads = [code for code in best if "LDG" in code and ".NA" in code]
    loaded = sum(16 if ".128" in code else 8 if ".64" in code.split(",")[0] else 4 for code in loads)
    return Loop(len(best), sum("HMMA" in code for code in best), loaded, each)


def _weight(body: list[str]) -> tuple[int, int]:
    return sum("HMMA" in code for code in body), sum("FFMA" in code for code in body)


def slots(block_bytes: float) -> float:
    """Of a scheduler, while memory brings it so many bytes."""
    return block_bytes * PROCESSORS * SCHEDULERS * CLOCK / BANDWIDTH


def counted(kernel: Kernel) -> tuple[Kernel, Loop, float]:
    """A kernel, its loop, and the bytes of one of its blocks."""
    from engine.backends.cuda.codegen.build import build

    cubin = build(kernel, (CAPABILITY,))[CAPABILITY].cubin
    family = kernel.name.split("_")[1]
    packed = {f.name: f for f in WEIGHT_LAYOUTS if isinstance(f, CodeLayout)}
    if family in packed:
        loop = main_loop(cubin, 2 * kernel.constants["TILES"])
        return kernel, loop, packed[family].span_bytes / packed[family].span
    kind = kernel.constants["KIND"]
    blocks = kernel.constants["TILES"] * kernel.constants["UNROLL"] / (2 if kind == "fp32" else 1)
    return kernel, main_loop(cubin, blocks), _PLAIN_BYTES[kind]


def lines(names: list[str]) -> Iterator[str]:
    """The table."""
    yield f"{'kernel':30} {'a block':>8} {'matrix':>7} {'loaded':>7} {'slots':>7} {'share':>6}"
    for kernel in forms():
        if kernel.name.startswith(("linear", "experts")) and (
            not names or any(name in kernel.name for name in names)
        ):
            _, loop, size = counted(kernel)
            each = loop.instructions / loop.blocks
            yield (
                f"{kernel.name:30} {each:8.1f} {loop.matrix / loop.blocks:7.1f} {loop.loaded:7} "
                f"{slots(size):7.0f} {each / slots(size):6.0%}"
            )


if __name__ == "__main__":
    for line in lines(sys.argv[1:]):
        print(line, flush=True)
