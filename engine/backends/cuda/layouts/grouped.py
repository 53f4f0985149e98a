"""The weight layouts of codes with a scale and an integer zero point for each group of columns: the
types of `engine.weights.packed.grouped`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.cuda.layouts.codes import CodeLayout, CodeParts
from engine.backends.cuda.layouts.layout import Bytes

WIDTHS = (2, 3, 4, 5, 6, 8)
UNITS = (32, 64, 128)


def _taken(unit: int, half: bool) -> Callable[[Bytes, int, int], CodeParts]:
    """The `CodeLayout.split` for `unit` bytes of codes, a float32 scale and an int16 zero per row and group.

    Zeros up to 2048 are exact in fp16.
    """

    def split(raw: Bytes, rows: int, columns: int) -> CodeParts:
        parts = raw.reshape(rows, columns // unit, unit + 6)
        codes = parts[..., :unit].reshape(rows, columns)
        scales = np.ascontiguousarray(parts[..., unit : unit + 4]).view(np.float32)[..., 0]
        zeros = np.ascontiguousarray(parts[..., unit + 4 :]).view(np.int16)[..., 0]
        kept = scales.astype(np.float16).view(np.uint16) if half else scales
        return CodeParts(codes, kept, zeros.astype(np.float16).view(np.uint16))

    return split


def _weight_layout(bits: int, unit: int, half: bool) -> CodeLayout:
    end = "" if half else "f32"
    return CodeLayout(
        f"grouped{bits}u{unit}{end}", (f"GROUPED{bits}_{unit}{'' if half else '_F32'}",), bits,
        _taken(unit, half), unit, "half" if half else "float", "zero", span=max(1, unit // 64),
    )  # fmt: skip


GROUPED_WEIGHT_LAYOUTS = tuple(
    _weight_layout(bits, unit, half) for half in (True, False) for unit in UNITS for bits in WIDTHS
)
"""All widths, units and kinds of scale. Only the kernels of those that a model has are compiled."""
