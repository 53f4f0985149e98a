"""Measuring this machine's read bandwidth, which limits decoding, with the threads that decode."""

from __future__ import annotations

import sys
import time

import numpy as np

from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.kernels.read_memory import READ_AHEAD, TILE
from engine.backends.cpu.runtime.cores import default_threads
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.thread_pool import CapturedProgram, ThreadPool
from engine.backends.cpu.runtime.work_stealing import OPERATION
from engine.backends.main_memory import free_memory


def read_bandwidth(threads: int, megabytes: int = 512, seconds: float = 0.5) -> float:
    """Bytes per second that `threads` threads together read from memory: the best pass in `seconds`."""
    for _ in KERNELS.compile(["read_memory"]):
        pass
    data = aligned(megabytes << 20)
    data[:] = 1  # pages that were never written have no memory
    block = np.array([data.ctypes.data, TILE, 0], np.int64)
    tiles = data.size // TILE
    operations = np.zeros(OPERATION, np.int64)
    operations[:6] = [KERNELS.address("read_memory"), block.ctypes.data, tiles, 1, tiles, 1]
    program = CapturedProgram(operations, np.array([0, 1], np.int64), np.ones(8, np.int64), threads)
    pool = ThreadPool(KERNELS.pool, threads, 4096)
    best, until = 0.0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < until:
            for block[2] in READ_AHEAD:
                start = time.perf_counter()
                pool.replay(program)
                best = max(best, data.size / (time.perf_counter() - start))
    finally:
        pool.close()
    return best


def main() -> None:
    """Print the bandwidth for the arguments THREADS (0: the default) and MEGABYTES; 0 if memory is short."""
    threads, megabytes = int(sys.argv[1]), int(sys.argv[2])
    enough = free_memory() > 4 * megabytes << 20
    print(read_bandwidth(threads or default_threads(), megabytes, 0.3) if enough else 0.0)
