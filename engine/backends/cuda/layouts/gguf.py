"""The weight layouts of GGUF's quantised types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.cuda.layouts.codes import CodeLayout, Numbers, Taken
from engine.backends.cuda.layouts.layout import Bytes
from engine.backends.gguf_parts import (
    Parts,
    iq4_xs_parts,
    legacy_parts,
    q2_k_parts,
    q3_k_parts,
    q6_k_parts,
    q8_parts,
    q45_k_parts,
    tq1_0_parts,
    tq2_0_parts,
)


def _halves(numbers: Bytes, which: int, rows: int) -> Numbers:
    """fp16 number `which` of each block, as uint16 (N, blocks)."""
    return np.ascontiguousarray(numbers[:, 2 * which : 2 * which + 2]).view(np.uint16).reshape(rows, -1)


def _taken(
    split: Callable[[Bytes], Parts], file_bytes: int, block_columns: int, scales: str
) -> Callable[[Bytes, int, int], Taken]:
    """How `CodeLayout` gets its `Taken` from files whose blocks `split` takes apart."""

    def take_apart(raw: Bytes, rows: int, columns: int) -> Taken:
        parts = split(raw.reshape(rows * (columns // block_columns), file_bytes))
        codes = parts.codes.reshape(rows, columns)
        first = (
            parts.numbers[:, :1].reshape(rows, -1) if scales == "power" else _halves(parts.numbers, 0, rows)
        )
        second = _halves(parts.numbers, 1, rows) if parts.numbers.shape[-1] == 4 else None
        if parts.scales is None:
            return Taken(codes, d=first) if scales == "one" else Taken(codes, first, second)
        lows = None if parts.minimums is None else parts.minimums.reshape(rows, -1)
        return Taken(codes, parts.scales.reshape(rows, -1), lows, first, second)

    return take_apart


def _legacy(
    name: str, type_name: str, bits: int, zero: int = 0, minimums: bool = False, table: str = ""
) -> CodeLayout:
    """Blocks of 32 with d, perhaps m."""
    numbers, fifth = 4 if minimums else 2, bits == 5
    split = _taken(legacy_parts(numbers, fifth), numbers + 16 + 4 * fifth, 32, "half")
    return CodeLayout(
        name, (type_name,), bits, split, lows="half" if minimums else "", zero=zero, table=table
    )


GGUF_WEIGHT_LAYOUTS = (
    _legacy("q40", "Q4_0", 4, 8),
    _legacy("q41", "Q4_1", 4, minimums=True),
    _legacy("q50", "Q5_0", 5, 16),
    _legacy("q51", "Q5_1", 5, minimums=True),
    CodeLayout("q80", ("Q8_0",), 8, _taken(q8_parts, 34, 32, "half"), zero=128),
    _legacy("iq4nl", "IQ4_NL", 4, 128, table="iq4"),
    CodeLayout(
        "mxfp4", ("MXFP4",), 4, _taken(legacy_parts(1, False), 17, 32, "power"), scales="power", table="fp4"
    ),
    CodeLayout("q2k", ("Q2_K",), 2, _taken(q2_k_parts, 84, 256, "nibbles"), 16, "nibbles", "sub", span=4),
    CodeLayout("q3k", ("Q3_K",), 3, _taken(q3_k_parts, 110, 256, "signed"), 16, "signed", zero=4, span=4),
    CodeLayout(
        "q4k", ("Q4_K",), 4, _taken(q45_k_parts(False), 144, 256, "unsigned"), 32, "unsigned", "sub", span=4
    ),
    CodeLayout(
        "q5k", ("Q5_K",), 5, _taken(q45_k_parts(True), 176, 256, "unsigned"), 32, "unsigned", "sub", span=4
    ),
    CodeLayout("q6k", ("Q6_K",), 6, _taken(q6_k_parts, 210, 256, "signed"), 16, "signed", zero=32, span=4),
    CodeLayout(
        "iq4xs",
        ("IQ4_XS",),
        4,
        _taken(iq4_xs_parts, 136, 256, "signed"),
        32,
        "signed",
        zero=128,
        span=4,
        table="iq4",
    ),
    CodeLayout("tq1", ("TQ1_0",), 2, _taken(tq1_0_parts, 54, 256, "one"), 64, "one", zero=1, span=4),
    CodeLayout("tq2", ("TQ2_0",), 2, _taken(tq2_0_parts, 66, 256, "one"), 64, "one", zero=1, span=4),
)
"""TQ1_0 takes more bytes than in the file: its digits of three become codes of two bits."""
