"""Packed activations: the input rows of products, packed once by whatever produces a row.

Columns are padded with zeros to whole blocks of 64; K64 is the padded number of columns. Two kinds:

  "fp16"    for weights of small integer codes, fp16 and fp8. A row is fp16 (K64,), then float32 (K64 / 64,):
            x = fp16 * scale of its block. A scale is 2^(e - 14) with 2^e <= the block's largest magnitude
            < 2^(e + 1), so no fp16 overflows and the largest keeps its 11 bits; 0 for a block of zeros (or
            of numbers below 2^-100), NaN for a block that contains infinity or NaN.
  "bf16x2"  for weights of bf16. A row is bf16 (K64,), then bf16 (K64,): x = first + second with a relative
            error of 2^-17. The first is x rounded to nearest, the second the rounded remainder.

Weights of float32 take the float32 rows themselves: "fp32".
"""

from __future__ import annotations

from engine.backends.graph.buffers import Buffer

COLUMNS = 64
"""Columns of a block."""


def padded(columns: int) -> int:
    """`columns` rounded up to whole blocks."""
    return -(-columns // COLUMNS) * COLUMNS


def packed_buffer(kind: str, x: Buffer) -> Buffer:
    """A buffer for x packed as `kind`; for "fp32" it is x itself."""
    if kind == "fp32":
        return x
    whole = padded(x.width)
    assert kind in ("fp16", "bf16x2")
    return Buffer(whole // 2 + whole // COLUMNS if kind == "fp16" else whole, x.on_logit_rows, x.copies)
