"""The weight layouts of GGUF's block types."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cuda.layouts.codes import CodeLayout, CodeParts
from engine.backends.cuda.layouts.layout import Bytes
from engine.backends.gguf_blocks.block_type import BlockType, Parts
from engine.backends.gguf_blocks.quants import FP4_LEVELS
from engine.backends.gguf_blocks.table import PACKED_BLOCKS


def _taken(block: BlockType, raw: Bytes, rows: int, columns: int) -> CodeParts:
    """The `CodeLayout.split` of a block type: `CodeParts` from file bytes."""
    parts = block.split(raw.reshape(rows * (columns // block.values), block.nbytes))
    return code_parts(block, parts, rows, columns)


def code_parts(block: BlockType, parts: Parts, rows: int, columns: int) -> CodeParts:
    """Blocks of `rows` x `columns` that are taken apart, by rows."""
    codes, d = parts.codes.reshape(rows, columns), parts.d.reshape(rows, -1)
    dmin = None if parts.dmin is None else parts.dmin.reshape(rows, -1)
    if _scales(block) == "float":
        assert parts.scales is not None
        # Numbers of fp4 are half of the levels.
        steps = 2 * parts.d.reshape(-1, 1) * block.scales(parts.scales)
        return CodeParts(codes, steps.astype(np.float32).reshape(rows, -1))
    if parts.scales is None:
        return CodeParts(codes, d=d) if _scales(block) == "one" else CodeParts(codes, d, dmin)
    scales = parts.scales.reshape(rows, -1)
    if parts.mins is None:
        return CodeParts(codes, scales, d=d)
    mins = parts.mins.reshape(rows, -1)
    if _scales(block) == "nibbles":
        return CodeParts(codes, scales | mins << np.uint8(4), d=d, dmin=dmin)
    return CodeParts(codes, scales, mins, d, dmin)


def _scales(block: BlockType) -> str:
    """The kind of scales, as in `CodeLayout`."""
    if block.floats:
        return "float"
    if not block.scale_bits:
        return "power" if block.d == "e8m0" else "half" if block.values == 32 else "one"
    if block.signed:
        return "signed"
    return "nibbles" if block.scale_bits == 4 else "unsigned"


def _layout(block: BlockType) -> CodeLayout:
    table = "fp4" if block.levels == FP4_LEVELS else "int8" if block.levels else ""
    return CodeLayout(
        block.name.replace("_", "").lower(),
        block.types or (block.name,),
        4 if table else block.bits,
        partial(_taken, block),
        block.values,
        block.nbytes,
        min(64, block.values // block.groups),
        _scales(block),
        ("sub" if block.scale_bits else "half") if block.mins else "",
        128 if table == "int8" else block.zero,
        4 if block.values == 256 else 1,
        table,
        block.levels if table == "int8" else (),
        block.unit,
        block.moved,
        block.lowest,
        block.d == "fp32" and block.signed,
    )


GGUF_WEIGHT_LAYOUTS = tuple(_layout(block) for block in PACKED_BLOCKS)
"""Some take more bytes than in the file: the base-3 digits of TQ1_0 become codes of two bits, groups of IQ1
to IQ3 a code of four bits for each value, and the scales of NVFP4 float32 numbers.
"""
