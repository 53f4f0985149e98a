"""How fast weights are packed while a model loads, by moving bits and by the layouts' own `pack` in NumPy.

    python -m tests.bench.bench_packing [--types Q4_K ...] [--folders "GPTQ 4" ...] [--rounds N]

For the CPU's tiles and a GPU's, in one thread, from the second-level cache (1 MB of the file's bytes); both
ways in turns. Then a matrix of 4096 x 4096 of each kind of packed folder becomes the CPU's tiles, read and
packed on all threads as a model's are. The figures are GB/s of the file's bytes, the best of all rounds; the
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.cpu import bit_moves as cpu
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.layouts.table import weight_layout_for as cpu_layout
from engine.backends.cuda import bit_moves as cuda
from engine.backends.cuda.layouts.table import weight_layout_for as cuda_layout
from engine.weights.checkpoint import open_checkpoint
from tests.bench.bench_linear import TYPES

COLUMNS = 4096
BYTES = 1 << 20
GROUP = 128
RNG = np.random.default_rng(0)


def words(rows: int, columns: int) -> Any:
    """Random codes: any 32 bits are some."""
    return RNG.integers(-(1 << 31), 1 << 31, (rows, columns), np.int32)


def scales(rows: int, columns: int) -> Any:
    return RNG.uniform(0.01, 0.02, (rows, columns)).astype(np.float16)


def gptq(bits: int, by_activation: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a matrix and the quantization_config."""
    groups = COLUMNS // GROUP
    index = np.arange(COLUMNS, dtype=np.int32) // GROUP
    parts = {
        "qweight": words(COLUMNS * bits // 32, COLUMNS), "qzeros": words(groups, COLUMNS * bits // 32),
        "scales": scales(groups, COLUMNS), "g_idx": RNG.permutation(index) if by_activation else index,
    }  # fmt: skip
    return parts, {"quant_method": "gptq", "bits": bits, "group_size": GROUP}


def awq(version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    groups, eighth = COLUMNS // GROUP, COLUMNS // 8
    many, few = (COLUMNS, eighth), (groups, eighth) if version == "gemm" else (COLUMNS, groups // 8)
    shape = (groups, COLUMNS) if version == "gemm" else (COLUMNS, groups)
    parts = {"qweight": words(*many), "qzeros": words(*few), "scales": scales(*shape)}
    return parts, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": version}


def exl2() -> tuple[dict[str, Any], dict[str, Any]]:
    """A quarter of the groups have 5 bits, the others 4."""
    groups = COLUMNS // GROUP
    widths = [5] * (groups // 4) + [4] * (groups - groups // 4)
    starts = np.cumsum([0, *(GROUP * bits // 32 for bits in widths)])
    parts = {
        "q_weight": words(int(starts[-1]), COLUMNS), "q_scale": words(groups, COLUMNS // 8),
        "q_scale_max": RNG.uniform(0.01, 0.02, groups).astype(np.float16),
        "q_groups": np.stack([widths, starts[:-1]], 1).astype(np.int16).reshape(-1),
        "q_invperm": RNG.permutation(COLUMNS).astype(np.int32),
    }  # fmt: skip
    return parts, {"quant_method": "exl2", "version": "0.2.4", "bits": 4.25}


def compressed(bits: int) -> tuple[dict[str, Any], dict[str, Any]]:
    groups = COLUMNS // GROUP
    parts = {
        "weight_packed": words(COLUMNS, COLUMNS * bits // 32), "weight_scale": scales(COLUMNS, groups),
        "weight_shape": np.array([COLUMNS, COLUMNS], np.int64),
    }  # fmt: skip
    return parts, {"quant_method": "compressed-tensors", "format": "pack-quantized"}


def mlx(bits: int) -> tuple[dict[str, Any], dict[str, Any]]:
    groups = COLUMNS // GROUP
    weight = words(COLUMNS, COLUMNS * bits // 32).view(np.uint32)
    parts = {"weight": weight, "scales": scales(COLUMNS, groups), "biases": scales(COLUMNS, groups)}
    return parts, {"bits": bits, "group_size": GROUP}


FOLDERS: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "GPTQ 4": partial(gptq, 4), "GPTQ 3": partial(gptq, 3), "GPTQ 8": partial(gptq, 8),
    "GPTQ 4 by activation": partial(gptq, 4, by_activation=True), "AWQ gemm": partial(awq, "gemm"),
    "AWQ gemv": partial(awq, "gemv"), "EXL2 4.25": exl2, "compressed-tensors 4": partial(compressed, 4),
    "MLX 4": partial(mlx, 4),
}  # fmt: skip


def folder_speed(kind: str, rounds: int) -> float:
    """GB/s of the file's bytes of a packed matrix."""
    from safetensors.numpy import save_file

    parts, settings = FOLDERS[kind]()
    stem = "model.layers.0.mlp.down_proj"
    with tempfile.TemporaryDirectory() as name:
        save_file({f"{stem}.{part}": each for part, each in parts.items()}, Path(name, "model.safetensors"))
        where = "quantization" if kind.startswith("MLX") else "quantization_config"
        Path(name, "config.json").write_text(json.dumps({where: settings}), "utf-8")
        best, backend = float("inf"), CpuBackend()
        for _ in range(rounds):
            checkpoint = open_checkpoint(name)
            tensor = checkpoint.tensors[f"{stem}.weight"]
            best, size = min(best, seconds(partial(backend.load_weight, tensor))), tensor.nbytes
            checkpoint.close()
    return size / best / 1e9


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
    parser.add_argument("--types", nargs="*", default=TYPES, choices=TYPES)
    parser.add_argument("--folders", nargs="*", default=list(FOLDERS), choices=FOLDERS)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    figures: dict[str, dict[str, list[float]] | float] = {}
    for kind in arguments.types:
        own_figures = dict[str, list[float]]()
        figures[kind] = own_figures
        for name, (size, moved, own) in ways(kind).items():
            moved()  # compiles the kernel
            rounds = [(seconds(moved), seconds(own)) for _ in range(arguments.rounds)]
            best = [size / min(each) / 1e9 for each in zip(*rounds, strict=True)]
            own_figures[name] = [round(value, 3) for value in best]
            ratio = best[0] / best[1]
            print(f"{kind:8} {name}  {best[0]:6.2f} GB/s, NumPy {best[1]:6.3f}: {ratio:5.1f} times")
    for kind in arguments.folders:
        figures[kind] = round(folder_speed(kind, arguments.rounds), 3)
        print(f"{kind:22} {figures[kind]:6.3f} GB/s")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
