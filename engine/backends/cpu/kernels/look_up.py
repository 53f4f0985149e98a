"""Kernels that look the codes of GGUF's IQ types up (`engine.backends.gguf_blocks.codebooks`), one a type.

A block's fields lie where the type says, so their places, shifts and masks are constants of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64
from engine.backends.cpu.codegen.simd import I8, I16, I32, I64, intrinsic_function, load, store
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.gguf_blocks.block_type import BlockType
from engine.backends.gguf_blocks.codebooks import BitFields, Codebook

U_BLOCKS, U_COUNT, U_OUT, U_ROWS, U_SIGNS = range(5)
"""Address and number of the blocks; address of the result; addresses of the codebook's rows and signs
(uint64).
"""
ARGUMENTS = 5


def _emit_number(b: ir.IRBuilder, block: Any, fields: BitFields, group: int, size: int) -> Any:
    """The number of a group, int64."""
    number: Any = ir.Constant(I64, fields.plus[group] if fields.plus else 0)
    done = 0
    for first, bits in fields.runs:
        byte = min(first[group] // 8, size - 4)
        word = b.lshr(load(b, block, I32, byte), ir.Constant(I32, first[group] - 8 * byte))
        found = b.zext(b.and_(word, ir.Constant(I32, (1 << bits) - 1)), I64)
        number = b.or_(number, b.shl(found, ir.Constant(I64, done)))
        done += bits
    return number


def _emit_codes(book: Codebook, size: int) -> Callable[..., None]:
    def emit(b: ir.IRBuilder, block: Any, rows: Any, signs: Any, out: Any) -> None:
        """Write the codes of a block, and the block itself after them."""
        tables = [(rows, book.index)] + ([(signs, book.sign)] if book.sign is not None else [])
        groups = len(book.index.runs[0][0])
        for group in range(groups):
            codes: Any = ir.Constant(I64, 0)
            for table, fields in tables:
                number = _emit_number(b, block, fields, group, size)
                codes = b.or_(codes, load(b, b.add(table, b.shl(number, ir.Constant(I64, 3))), I64))
            store(b, codes if book.width == 8 else b.trunc(codes, I32), out, group * book.width)
        at, end = 0, groups * book.width
        for kind, width in ((I64, 8), (I32, 4), (I16, 2), (I8, 1)):
            while size - at >= width:
                store(b, load(b, block, kind, at), out, end + at)
                at += width

    return emit


def look_up_name(block: BlockType) -> str:
    """The name of a type's kernel."""
    return "look_up_" + block.name.replace("_", "").lower()


codes_of: Any = None
SIZE = RESULT = 0
"""Bytes of a block, and of a block with its codes."""


def _look_up_template(args: int, step: int, tile: int, scratch: int) -> None:
    source, out = ld_i64(args + 8 * U_BLOCKS), ld_i64(args + 8 * U_OUT)
    rows, signs = ld_i64(args + 8 * U_ROWS), ld_i64(args + 8 * U_SIGNS)
    for _ in range(ld_i64(args + 8 * U_COUNT)):
        codes_of(source, rows, signs, out)
        source += SIZE
        out += RESULT


def look_up_kernel(block: BlockType) -> Any:
    """The kernel of a type with a codebook."""
    assert block.codebook is not None
    name, size = look_up_name(block), block.nbytes
    emit = _emit_codes(block.codebook, size)
    codes = intrinsic_function(f"codes_of_{name}", types.void, (types.int64,) * 4, emit)
    return specialise(_look_up_template, name, codes_of=codes, SIZE=size, RESULT=block.values + size)
