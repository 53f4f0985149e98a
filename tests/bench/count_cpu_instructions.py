"""Instructions of the CPU's decode products for 64 weights, from the compiled code of each instruction set.

    python -m tests.bench.count_cpu_instructions [--levels NAME ...] [--layouts NAME ...]

For each level of `engine.platform.levels`, whether this processor has it or not, and each weight layout: the
innermost loop of the product of one row of activations, taken from the assembly of `linear_LAYOUT`. It is the
loop with the fewest products among those that prefetch weights. Columns: all instructions, products (vpdpbusd
of 64 pairs or vpdpwssd of 32 in 512 bits, half in 256; vfmadd), instructions that load, conversions, what
unpacks or broadcasts, and the rest, of which some may load; then the bytes of weights for each instruction.
16-bit activations take two products of bytes for each weight, so a 4-bit type needs at least two vpdpbusd for
64 weights.

With llvm-mca on the path, also the cycles for 64 weights that LLVM's model of a processor predicts with all
data in the first-level cache, and the bytes of weights in a cycle. LLVM 14 adds the latency of a load where a
sum is the addend of a vfmadd132ps that loads, so that floats look slower there than they are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from engine.platform.levels import LEVELS

LAYOUTS = ("q40", "q4k", "q6k", "q8", "f16", "bf16", "f32")
PROCESSORS = {
    "x86-64-v4-vnni-amd": (), "x86-64-v4-vnni": ("icelake-server",), "x86-64-v4": ("skylake-avx512",),
    "x86-64-v3-vnni": ("alderlake",), "x86-64-v3": ("znver3", "skylake"),
}  # fmt: skip
"""LLVM's models of processors of each level. Zen 4, for which `-amd` is, has none before LLVM 16."""
_LANES = {"zmm": 16, "ymm": 8, "xmm": 4}
_PAIRS = {"vpdpbusd": 4, "vpmaddubsw": 4, "vpdpwssd": 2, "vpmaddwd": 2, "vdpbf16ps": 2}
"""Products of an instruction in each lane of 32 bits."""
_UNPACKING = (
    "vpand",
    "vpsr",
    "vpsl",
    "vpor",
    "vpshuf",
    "vshuf",
    "vperm",
    "vpunpck",
    "vpbroadcast",
    "vbroadcast",
)
_COMPILE = """
import sys
from engine.backends.cpu.codegen import kernel_cache
print(kernel_cache._compile_here("linear_" + sys.argv[1], None)._library.get_asm_str())
"""


@dataclass(frozen=True)
class Loop:
    """The instructions of an innermost loop, its jump back included."""

    body: tuple[str, ...]

    def count(self, *starts: str) -> int:
        """Instructions whose names begin so."""
        return sum(line.startswith(starts) for line in self.body)

    @property
    def products(self) -> int:
        """Instructions that multiply weights with activations."""
        return self.count(*_PAIRS) or self.count("vfmadd")

    @property
    def weights(self) -> float:
        """Weights of one turn. Products of bytes take two parts of an activation of 16 bits."""
        found = 0.0
        for line in self.body:
            name, lanes = line.split()[0], next((n for r, n in _LANES.items() if f"%{r}" in line), 4)
            if name == "vpmaddwd" and self.count("vpmaddubsw"):
                continue  # it only adds products of bytes
            if name in _PAIRS:
                found += lanes * _PAIRS[name] / (2 if _PAIRS[name] == 4 else 1)
            elif name.startswith("vfmadd") and not self.count(*_PAIRS):
                found += lanes
        return found

    @property
    def loads(self) -> int:
        """Instructions with an operand in memory, prefetches apart."""
        return sum("(" in line and not line.startswith(("prefetch", "lea")) for line in self.body)


def loops(assembly: str) -> Iterator[Loop]:
    """The innermost loops: from a label to a jump back to it, without another such pair between."""
    lines = assembly.splitlines()
    labels = {found[1]: i for i, line in enumerate(lines) if (found := re.match(r"(\.L\w+):", line))}
    spans = [
        (labels[found[1]], i)
        for i, line in enumerate(lines)
        if (found := re.match(r"\s+j\w+\s+(\.L\w+)", line)) and labels.get(found[1], i) < i
    ]
    for first, last in spans:
        if not any(first < a and b < last for a, b in spans):
            yield Loop(
                tuple(
                    line.strip().removeprefix("{vex}").lstrip()
                    for line in lines[first : last + 1]
                    if line.startswith("\t") and not line.lstrip().startswith((".", "#"))
                )
            )


def decode_loop(assembly: str) -> Loop:
    """The loop of one row. Raises ValueError if there is none."""
    found = [loop for loop in loops(assembly) if loop.count("prefetch") and loop.products]
    if not found:
        raise ValueError("no loop that prefetches weights and multiplies")
    return min(found, key=lambda loop: loop.products)


def compiled(layout: str, settings: dict[str, str]) -> str:
    """The assembly of a layout's product for an instruction set."""
    command = [sys.executable, "-c", _COMPILE, layout]
    return subprocess.run(
        command, env=os.environ | settings, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def cycles(loop: Loop, processor: str) -> float | None:
    """Cycles of one turn by LLVM's model; None without llvm-mca, or if it does not know an instruction."""
    program = shutil.which("llvm-mca")
    if program is None:
        return None
    turns, code = 200, "\n".join(loop.body[:-1]) + "\n"  # it takes no jumps
    run = subprocess.run(
        [program, "-mtriple=x86_64", f"-mcpu={processor}", f"-iterations={turns}"], input=code,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    return int(found[1]) / turns if found else None


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--levels", nargs="+", default=list(PROCESSORS), choices=list(PROCESSORS))
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS))
    options = parser.parse_args()
    from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS

    layouts = {layout.name: layout for layout in WEIGHT_LAYOUTS}
    print("for 64 weights      all  products  loads  converts  unpacks  rest  bytes an instruction")
    for level in (level for level in LEVELS if level.name in options.levels):
        print(level.name)
        for name in options.layouts:
            loop = decode_loop(compiled(name, level.settings))
            each = 64 / loop.weights
            size = 64 * layouts[name].block_bytes / (16 * layouts[name].unit)
            parts = (
                loop.products,
                loop.loads,
                loop.count("vcvt", "vpmovzx", "vpmovsx"),
                loop.count(*_UNPACKING),
            )
            # a product or conversion may load, so that the parts may overlap
            rest = sum(
                not line.startswith((*_PAIRS, "vfmadd", "vcvt", "vpmov", *_UNPACKING)) and "(" not in line
                for line in loop.body
            )
            line = f"  {name:16}{each * len(loop.body):6.1f}"
            line += "".join(f"{each * part:9.1f}" for part in (*parts, rest))
            line += f"{size / (each * len(loop.body)):9.1f}"
            for processor in PROCESSORS[level.name]:
                if (took := cycles(loop, processor)) is not None:
                    line += f"   {processor}: {each * took:.1f} cycles, {size / (each * took):.1f} B a cycle"
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
