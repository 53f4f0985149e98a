"""Counts the instructions in the main loops of the small-batch products and of recurrent layers, from their
machine code, without a GPU.

    python -m tests.tools.count_instructions [PART OF A NAME ...]

For each kernel it prints the instructions of the main loop for each block of 16 x 64 weights that a warp
multiplies, the bytes of weights that one iteration loads (16 for each lane and load), the issue slots
available for a block while memory is read at full speed, and the share of them that the loop uses. The slots
are those of an H200: 4.8e12 bytes/s, 132 multiprocessors with 4 schedulers that issue one instruction per
cycle at 1.855 GHz; a block of 4.25-bit weights (544 bytes) has 111 cycles. Every instruction counts as one
slot, also predicated ones and no-ops. Code outside the main loop and waiting for memory or tensor cores are
not counted.

A kernel of a recurrent layer has lines of its own: the instructions of its main loop, those of them that
multiply or add float32 numbers, and their share. An iteration is a row in linear attention (a lane holds
`KEYS` numbers of a column), and `AT_ONCE` taps of a column in a convolution.
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
from engine.backends.cuda.kernels import recurrent
from engine.backends.cuda.kernels.linear.variants import variants
from engine.backends.cuda.layouts.codes import CodeLayout
from engine.backends.cuda.layouts.table import WEIGHT_LAYOUTS

BANDWIDTH, PROCESSORS, SCHEDULERS, CLOCK = 4.8e12, 132, 4, 1.855e9
CAPABILITY = 90
_PLAIN_BYTES = {"bf16": 2048, "fp16": 2048, "fp8": 1040, "fp32": 4096}


@dataclass(frozen=True)
class Loop:
    """The main loop of a kernel: its instructions, those on tensor cores, the bytes of weights that a lane
    loads in an iteration, and the blocks that an iteration multiplies.
    """

    instructions: int
    matrix: int
    loaded: int
    blocks: float


def instructions(cubin: bytes) -> tuple[list[str], dict[str, int]]:
    """All instructions of a kernel in order, and the positions of its labels. Raises `OSError` without
    nvdisasm.
    """
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
    """The loop with the most matrix products, or additions. `each`: the blocks for 4 of them."""
    best = body_of(cubin)
    loads = [code for code in best if "LDG" in code and ".NA" in code]
    loaded = sum(16 if ".128" in code else 8 if ".64" in code.split(",")[0] else 4 for code in loads)
    return Loop(len(best), sum("HMMA" in code for code in best), loaded, each)


def body_of(cubin: bytes, innermost: bool = False) -> list[str]:
    """The instructions of that loop; of the `innermost` ones only, if so asked."""
    found, labels = instructions(cubin)
    loops = []
    for end, code in enumerate(found):
        target = re.search(r"BRA.*?(\.L_x_\d+)", code)
        if target and labels.get(target[1], end + 1) <= end:
            loops.append((labels[target[1]], end))
    if innermost:
        loops = [
            (start, end)
            for start, end in loops
            if not any((start, end) != (a, b) and start <= a and b <= end for a, b in loops)
        ]
    return max((found[start : end + 1] for start, end in loops), key=_weight, default=[])


def _weight(body: list[str]) -> tuple[int, int]:
    return sum("HMMA" in code for code in body), sum("FFMA" in code for code in body)


def slots(block_bytes: float) -> float:
    """Issue slots of a scheduler in the time that memory delivers this many bytes."""
    return block_bytes * PROCESSORS * SCHEDULERS * CLOCK / BANDWIDTH


def counted(kernel: Kernel) -> tuple[Kernel, Loop, float]:
    """A kernel, its loop, and the bytes of a block."""
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
    for kernel in variants():
        if kernel.name.startswith(("linear", "experts")) and (
            not names or any(name in kernel.name for name in names)
        ):
            _, loop, size = counted(kernel)
            each = loop.instructions / loop.blocks
            yield (
                f"{kernel.name:30} {each:8.1f} {loop.matrix / loop.blocks:7.1f} {loop.loaded:7} "
                f"{slots(size):7.0f} {each / slots(size):6.0%}"
            )


def recurrent_lines(names: list[str]) -> Iterator[str]:
    """The table of recurrent layers."""
    from engine.backends.cuda.codegen.build import build

    yield f"{'kernel':30} {'loop':>8} {'sums':>7} {'share':>6}"
    for kernel in recurrent.variants():
        if not names or any(name in kernel.name for name in names):
            body = body_of(build(kernel, (CAPABILITY,))[CAPABILITY].cubin, innermost=True)
            sums = sum(bool(re.match(r"(@!?U?P\d+ )?F(FMA|MUL|ADD)", code)) for code in body)
            yield f"{kernel.name:30} {len(body):8} {sums:7} {sums / max(1, len(body)):6.0%}"


if __name__ == "__main__":
    for table in (lines, recurrent_lines):
        for line in table(sys.argv[1:]):
            print(line, flush=True)
