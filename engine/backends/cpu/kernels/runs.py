"""What kernels read from the table of runs in the step block."""

from __future__ import annotations

from typing import Any

from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64
from engine.backends.cpu.codegen.specialise import Jit
from engine.backends.cpu.runtime.step_block import RUN_FIRST, RUN_PAGES, RUN_ROWS, RUN_TABLE, RUN_WORDS


def _block_table(step: int, row: int) -> int:
    run = step + 8 * RUN_TABLE
    while row >= ld_i64(run + 8 * RUN_FIRST) + ld_i64(run + 8 * RUN_ROWS):
        run += 8 * RUN_WORDS
    return int(ld_i64(run + 8 * RUN_PAGES))


def block_table_function(jit: Jit) -> dict[str, Any]:
    """`block_table(step, row)`, the address of the block table of a row's sequence, compiled by `jit`."""
    return {"block_table": jit(_block_table, types.int64(types.int64, types.int64))}
