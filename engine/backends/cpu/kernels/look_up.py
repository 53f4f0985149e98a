"""A kernel that looks codes of GGUF's IQ types up (`engine.backends.gguf_blocks.codebooks`)."""

from __future__ import annotations

from engine.backends.cpu.codegen.memory_ops import ld_i8, ld_i32, ld_i64, st_i8, st_i32, st_i64

U_BLOCKS, U_COUNT, U_BYTES, U_GROUPS, U_WIDTH, U_OUT, U_TABLES, U_FIRST = range(8)
"""Address and number of the blocks, and bytes of each; its groups, and bytes of codes of each; address of the
result; the number of tables, and the first word of these.
"""
T_FIELDS, T_RUNS, T_ROWS = range(3)
"""Words of a table: the address of its `BitFields`, their runs, the address of its rows (uint64)."""
ARGUMENTS = U_FIRST + 6
"""int32 words of the fields: for each group the bits of `plus`, then for each run these four."""
RUN_WORDS = R_OFFSET, R_SHIFT, R_MASK, R_UP = range(4)


def look_up(args: int, step: int, tile: int, scratch: int) -> None:
    """Write the codes of each block, and the block itself after them."""
    size, groups = ld_i64(args + 8 * U_BYTES), ld_i64(args + 8 * U_GROUPS)
    width, tables = ld_i64(args + 8 * U_WIDTH), ld_i64(args + 8 * U_TABLES)
    out = ld_i64(args + 8 * U_OUT)
    for i in range(ld_i64(args + 8 * U_COUNT)):
        block = ld_i64(args + 8 * U_BLOCKS) + i * size
        for g in range(groups):
            codes = 0
            for t in range(tables):
                table = args + 8 * (U_FIRST + 3 * t)
                runs = ld_i64(table + 8 * T_RUNS)
                field = ld_i64(table + 8 * T_FIELDS) + 4 * (1 + 4 * runs) * g
                number = ld_i32(field)
                for r in range(runs):
                    run = field + 4 + 16 * r
                    bits = ld_i32(block + ld_i32(run + 4 * R_OFFSET)) >> ld_i32(run + 4 * R_SHIFT)
                    number |= (bits & ld_i32(run + 4 * R_MASK)) << ld_i32(run + 4 * R_UP)
                codes |= ld_i64(ld_i64(table + 8 * T_ROWS) + 8 * number)
            if width == 8:
                st_i64(out, codes)
            else:
                st_i32(out, codes)
            out += width
        for k in range(size):
            st_i8(out + k, ld_i8(block + k))
        out += size
