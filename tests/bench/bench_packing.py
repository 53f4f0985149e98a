"""How fast weights are packed while a model loads, by moving bits and by the layouts' own `pack` in NumPy.

    python -m tests.bench.bench_packing [--types Q4_K ...] [--rounds N]

For the CPU's tiles and a GPU's, in one thread, from the second-level cache (1 MB of the file's bytes); both
ways in turns. The figures are GB/s of the file's bytes, the best of all rounds; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from engine.backends.cpu import bit_moves as cpu
from engine.backends.cpu.layouts.table import weight_layout_for as cpu_layout
from engine.backends.cuda import bit_moves as cuda
from engine.backends.cuda.layouts.table import weight_layout_for as cuda_layout
from tests.bench.bench_linear import TYPES

COLUMNS = 4096
BYTES = 1 << 20


def ways(kind: str) -> dict[str, tuple[int, Callable[[], Any], Callable[[], Any]]]:
    """For each backend whose tiles are packed by moving bits: file bytes, that way, and the layout's own."""
    found: dict[str, tuple[int, Callable[[], Any], Callable[[], Any]]] = {}
    for name, layout in (("CPU", cpu_layout(kind)), ("GPU", cuda_layout(kind))):
        if name == "CPU":
            each: Any = layout
            moves: Any = cpu.bit_moves(each, COLUMNS // each.unit)
            row = COLUMNS // each.unit * each.file_bytes
        else:
            each, moves = layout, cuda.bit_moves(layout, COLUMNS)
            row = COLUMNS // each.file_columns * each.file_bytes if moves else 0
        if moves is None:
            continue
        rows = max(1, BYTES // row // cuda.PAIR) * cuda.PAIR
        raw = np.random.default_rng(0).integers(0, 60, rows * row, np.uint8)
        move = moves.packed if name == "CPU" else moves.pack
        found[name] = (
            raw.size,
            partial(move, raw, rows, COLUMNS),
            partial(each.pack, each.types[0], raw, rows, COLUMNS),
        )
    return found


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {}
    for kind in arguments.types:
        for name, (size, moved, own) in ways(kind).items():
            moved()  # compiles the kernel
            rounds = [(seconds(moved), seconds(own)) for _ in range(arguments.rounds)]
            best = [size / min(each) / 1e9 for each in zip(*rounds, strict=True)]
            figures.setdefault(kind, {})[name] = [round(value, 3) for value in best]
            ratio = best[0] / best[1]
            print(f"{kind:8} {name}  {best[0]:6.2f} GB/s, NumPy {best[1]:6.3f}: {ratio:5.1f} times")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
