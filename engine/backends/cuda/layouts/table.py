"""The table of all packed layouts of the CUDA engine."""

from __future__ import annotations

from engine.backends.cuda.layouts.gguf import GGUF_WEIGHT_LAYOUTS
from engine.backends.cuda.layouts.grouped import GROUPED_WEIGHT_LAYOUTS
from engine.backends.cuda.layouts.layout import WeightLayout
from engine.backends.cuda.layouts.plain import PLAIN_WEIGHT_LAYOUTS
from engine.backends.packing.pieces import TO_F32

WEIGHT_LAYOUTS: tuple[WeightLayout, ...] = (
    *GGUF_WEIGHT_LAYOUTS,
    *GROUPED_WEIGHT_LAYOUTS,
    *PLAIN_WEIGHT_LAYOUTS,
)
"""All layouts."""

_BY_TYPE = {type_name: weight_layout for weight_layout in WEIGHT_LAYOUTS for type_name in weight_layout.types}


def weight_layout_for(tensor_type: str, capability: int = 80) -> WeightLayout:
    """The layout that a tensor type is packed into, dequantised first if it has none of its own.

    Types beyond the range or precision of fp16 go to F32, others to F16, whose error, 2^-11 of a weight, is
    far below that of quantised types. BF16 also goes to F16 below compute capability 8.0, which cannot
    multiply bf16; F16 holds bf16 exactly from 2^-17 to 65504.
    """
    if tensor_type == "BF16" and capability < 80:
        return _BY_TYPE["F16"]
    return _BY_TYPE.get(tensor_type) or _BY_TYPE["F32" if tensor_type in TO_F32 else "F16"]
