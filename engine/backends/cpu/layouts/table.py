"""The table of all packed layouts of the CPU engine."""

from __future__ import annotations

from functools import cache

from engine.backends.cpu.layouts.fp8 import FP8_WEIGHT_LAYOUTS
from engine.backends.cpu.layouts.gguf import GGUF_WEIGHT_LAYOUTS
from engine.backends.cpu.layouts.grouped import GROUPED_WEIGHT_LAYOUTS
from engine.backends.cpu.layouts.layout import WeightLayout
from engine.backends.cpu.layouts.plain import PLAIN
from engine.backends.cpu.layouts.q8 import Q8
from engine.backends.packing.pieces import TO_F32

WEIGHT_LAYOUTS: tuple[WeightLayout, ...] = (
    *GGUF_WEIGHT_LAYOUTS,
    Q8(),
    *PLAIN,
    *GROUPED_WEIGHT_LAYOUTS,
    *FP8_WEIGHT_LAYOUTS,
)
"""All packed layouts."""


@cache
def weight_layout_for(type_name: str) -> WeightLayout:
    """The layout a tensor type is packed into.

    Types without one are dequantised: `TO_F32` to F32, the others to F16, whose relative error of 2^-11 is
    far below that of quantised types.
    """
    fallback = PLAIN[0] if type_name in TO_F32 else PLAIN[1]
    return next((f for f in WEIGHT_LAYOUTS if type_name in f.types), fallback)
