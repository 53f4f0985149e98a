"""Bytes a second that the decode product of each packed weight type reads, as a share of the measured read bandwidth.

    python -m tests.bench.bench_linear [--threads N] [--megabytes M]

The matrices (K = 2048) are far beyond the caches; kernels and the bandwidth test take turns in one process, and medians are
printed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu import CpuBackend
from engine.backends.cpu.bandwidth import read_bandwidth

COLUMNS = 2048
ROW_BYTES = {"Q4_1": COLUMNS // 32 * 20, "Q8_0": COLUMNS // 32 * 34, "Q6_K": COLUMNS // 256 * 210, "F16": COLUMNS * 2, "F32": COLUMNS * 4}


@dataclass
class RandomMatrix:
    """Random file bytes: speed does not depend on the values."""

    type: str
    shape: tuple[int, int]
    name: str = "bench"

    def __post_init__(self) -> None:
        self.data = np.random.default_rng(0).integers(0, 60, self.shape[0] * ROW_BYTES[self.type], dtype=np.uint8)
        self.nbytes = self.data.nbytes

    def dequantise(self) -> Any:
        raise AssertionError("every benchmarked type has a layout of its own")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=256)
    arguments = parser.parse_args()
    backend = CpuBackend(arguments.threads)
    for _ in backend.prepare(frozenset(ROW_BYTES), "fp16"):
        pass
    table = backend.load_weight(RandomMatrix("F32", (16, COLUMNS)))
    programs, sizes = {}, {}
    for kind, row in ROW_BYTES.items():
        weight = backend.load_weight(RandomMatrix(kind, (arguments.megabytes * 2**20 // row // 16 * 16, COLUMNS)))
        cache = backend.new_cache(1, AttentionShape(1, 1, 16, 1.0), 1, "fp16")
        programs[kind] = backend.record(lambda ops, w=weight: ops.linear(ops.last_rows(ops.embed(table)), w), cache, 8)
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
    print(f"{backend.threads} threads, read bandwidth {ceiling / 1e9:.1f} GB/s")
    for kind, share in shares.items():
        print(f"{kind:5} {share * ceiling / 1e9:6.1f} GB/s  {share:6.1%}")
    print(json.dumps({"threads": backend.threads, "read_bandwidth_bytes_per_second": ceiling, "bandwidth_fraction": shares}))


if __name__ == "__main__":
    main()
