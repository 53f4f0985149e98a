"""The table of the weight layouts of GGUF's block types; `engine.backends.gguf_parts` takes their files
apart.
"""

from __future__ import annotations

from engine.backends.cpu.layouts.blocks import BlockLayout
from engine.backends.cpu.layouts.codes import Codes
from engine.backends.gguf_parts import (
    FP4_VALUES,
    IQ4_VALUES,
    iq4_xs_parts,
    legacy_parts,
    q2_k_parts,
    q3_k_parts,
    q6_k_parts,
    q45_k_parts,
    tq1_0_parts,
    tq2_0_parts,
)

GGUF_WEIGHT_LAYOUTS = (
    BlockLayout("q40", ("Q4_0",), 18, Codes(4, offset=8), legacy_parts(2, False)),
    BlockLayout("q41", ("Q4_1",), 20, Codes(4), legacy_parts(4, False), minimums=True),
    BlockLayout("q50", ("Q5_0",), 22, Codes(5, offset=16), legacy_parts(2, True)),
    BlockLayout("q51", ("Q5_1",), 24, Codes(5), legacy_parts(4, True), minimums=True),
    BlockLayout("iq4nl", ("IQ4_NL",), 18, Codes(4, values=IQ4_VALUES), legacy_parts(2, False)),
    BlockLayout("mxfp4", ("MXFP4",), 17, Codes(4, values=FP4_VALUES), legacy_parts(1, False), exponent=True),
    BlockLayout("q2k", ("Q2_K",), 84, Codes(2), q2_k_parts, 8, 16, "nibbles", minimums=True),
    BlockLayout("q3k", ("Q3_K",), 110, Codes(3, offset=4), q3_k_parts, 8, 16, "signed"),
    BlockLayout("q4k", ("Q4_K",), 144, Codes(4), q45_k_parts(False), 8, 32, "unsigned", minimums=True),
    BlockLayout("q5k", ("Q5_K",), 176, Codes(5), q45_k_parts(True), 8, 32, "unsigned", minimums=True),
    BlockLayout("q6k", ("Q6_K",), 210, Codes(6, offset=32), q6_k_parts, 8, 16, "signed"),
    BlockLayout("iq4xs", ("IQ4_XS",), 136, Codes(4, values=IQ4_VALUES), iq4_xs_parts, 8, 32, "signed"),
    BlockLayout("tq1", ("TQ1_0",), 54, Codes(2, offset=1), tq1_0_parts, 8),
    BlockLayout("tq2", ("TQ2_0",), 66, Codes(2, offset=1), tq2_0_parts, 8),
)
"""Families of the block types; `q8` has Q8_0, `plain` the plain numbers."""
