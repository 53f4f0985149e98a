"""The CPU's time counter, which compiled code reads faster than by a system call.

On x86 it is the time stamp counter (RDTSC; AMD64 Architecture Programmer's Manual, volume 2, section 13.2.4),
on 64-bit ARM the virtual count CNTVCT_EL0 (Arm Architecture Reference Manual, D13.11.17), because
`llvm.readcyclecounter` would read PMCCNTR_EL0, which programs may not. Elsewhere it is what that intrinsic
reads, which stays 0 on a CPU without a counter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.simd import ARM64, I64, intrinsic_function


def _emit_ticks(b: ir.IRBuilder) -> Any:
    kind = ir.FunctionType(I64, [])
    if ARM64:
        return b.asm(kind, "mrs $0, cntvct_el0", "=r", [], side_effect=True)
    return b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.readcyclecounter"), [])


ticks = intrinsic_function("ticks", types.int64, (), _emit_ticks)
"""ticks(): the counter now, int64; see `ticks_per_second` for its unit."""


def _read_ticks() -> int:
    return int(ticks())


@cache
def ticks_per_second(read: Callable[[], int]) -> float:
    """Rate of the counter that `read` reads, measured once against the system's clock; 0.0 without one."""
    read()
    begun, first = time.perf_counter(), read()
    time.sleep(0.002)
    ended, last = time.perf_counter(), read()
    return float(max(0.0, (last - first) / (ended - begun)))


def clock_functions(jit: Any) -> dict[str, Any]:
    """`ticks`, compiled for calls from Python."""
    return {"ticks": jit(_read_ticks, types.int64())}
