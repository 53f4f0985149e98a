"""The bytes per second that decode products read with each packed weight type, relative to the read
bandwidth.

    python -m tests.bench.bench_linear [--threads N] [--megabytes M] [--types Q4_K ...]

The matrices (K = 2048) are much larger than the CPU's caches. Kernels and the bandwidth test are interleaved
in one process, and medians are printed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time

import numpy as np
import psutil

from engine.backends.base import Array, AttentionShape, Ops, Step, Weight
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.runtime.bandwidth import read_bandwidth
from engine.weights.tensor import FileTensor, find_format

COLUMNS = 2048
TYPES = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
    "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XXS", "IQ1_S",
    "MXFP4", "BF16", "F16", "F32",
)  # fmt: skip


def random_matrix(kind: str, megabytes: float) -> FileTensor:
    """A matrix of random file bytes, such that every scale and value is finite and normal: Intel's processors
    take a hundred times as long for a subnormal number. Otherwise speed does not depend on the values.
    """
    form = find_format(kind)
    assert form is not None
    row = form.nbytes((COLUMNS,))
    shape = (max(16, int(megabytes * 2**20) // row // 16 * 16), COLUMNS)
    data = np.random.default_rng(0).integers(56, 61, form.nbytes(shape), dtype=np.uint8)
    return FileTensor("bench", kind, shape, data)


def forward(table: Weight, weight: Weight, ops: Ops) -> Array:
    """An embedded row, and its product with `weight`."""
    return ops.linear(ops.last_rows(ops.embed(table)), weight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    arguments = parser.parse_args()
    backend = CpuBackend(arguments.threads)
    table = backend.load_weight(random_matrix("F32", 0))
    programs, sizes, loading = {}, {}, {}
    for kind in arguments.types:
        tensor = random_matrix(kind, arguments.megabytes)
        start = time.perf_counter()
        weight = backend.load_weight(tensor)
        loading[kind] = tensor.nbytes / (time.perf_counter() - start)
        cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16")
        programs[kind] = backend.record(functools.partial(forward, table, weight), cache, 8)
        sizes[kind] = weight.nbytes
    token = np.zeros(1, np.int32)
    seconds: dict[str, list[float]] = {kind: [] for kind in programs}
    bandwidth = []
    for _ in range(7):
        bandwidth.append(read_bandwidth(backend.threads, seconds=0.2))
        for kind, program in programs.items():
            start = time.perf_counter()
            program.run(Step(token, token, token, 1))
            seconds[kind].append(time.perf_counter() - start)
    ceiling = statistics.median(bandwidth)
    shares = {kind: sizes[kind] / statistics.median(times) / ceiling for kind, times in seconds.items()}
    for program in programs.values():
        program.close()
    print(
        f"{backend.threads} threads, read bandwidth {ceiling / 1e9:.1f} GB/s; load average "
        f"{psutil.getloadavg()[0]:.1f}"
    )
    for kind, share in shares.items():
        print(
            f"{kind:6} {share * ceiling / 1e9:6.1f} GB/s  {share:6.1%}   packed at "
            f"{loading[kind] / 1e9:.2f} GB/s of file"
        )
    answer = {
        "threads": backend.threads,
        "read_bandwidth_bytes_per_second": ceiling,
        "bandwidth_fraction": shares,
    }
    print(json.dumps({**answer, "packing_bytes_per_second": loading}))


if __name__ == "__main__":
    main()
