"""How products take their input: rows of short numbers, written once by whatever makes the row and read by
every product.

Columns are padded with zeros to whole blocks of 64. Two kinds:

"halves"  for weights of small whole codes and of fp16. A row is fp16 (K64,), then float32 (K64 / 64,): x =
          half * scale of its block. A scale is 2^(e - 14) with 2^e <= the block's largest magnitude < 2^(e +
          1), so no half overflows and the largest keeps its 11 bits; 0 for a block of zeros (or of numbers
          below 2^-100), NaN for one that holds a number that is not finite.
"pairs"   for weights of bf16. A row is bf16 (K64,), then bf16 (K64,): x = first + second but for 2^-17 of it;
          the first is x rounded to the nearest, the second what is missing, rounded likewise.

Weights of float32 and fp8 and whatever else take rows as they are: "floats".
"""

from __future__ import annotations

from engine.backends.graph.buffers import Buffer

COLUMNS = 64
"""Columns of a block."""


def padded(columns: int) -> int:
    """`columns` rounded up to whole blocks."""
    return -(-columns // COLUMNS) * COLUMNS


def packed_buffer(kind: str, x: Buffer) -> Buffer:
    """A buffer for the records of x, "halves" or "pairs"; "floats" are x itself."""
    if kind == "fp32":
        return x
    whole = padded(x.width)
    assert kind in ("fp16", "bf16x2")
    return Buffer(whole // 2 + whole // COLUMNS if kind == "fp16" else whole, x.on_logit_rows, x.copies)
