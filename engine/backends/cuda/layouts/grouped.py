"""The weight layouts of codes with a scale and an integer zero point, or a scale and a bias, for each group
of columns: the types of `engine.weights.packed.grouped` and `engine.weights.packed.affine`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.cuda.layouts.codes import CodeLayout, CodeParts
from engine.backends.cuda.layouts.layout import Bytes
from engine.backends.packing.pieces import KINDS, affine_type, kept_numbers

WIDTHS = (2, 3, 4, 5, 6, 8)
UNITS = (32, 64, 128)
_NUMBERS = {"F16": "half", "BF16": "bfloat", "F32": "float"}


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


def _taken_affine(unit: int, kind: str) -> Callable[[Bytes, int, int], CodeParts]:
    """The `CodeLayout.split` for `unit` bytes of codes, a float32 scale and bias per row and group."""

    def split(raw: Bytes, rows: int, columns: int) -> CodeParts:
        parts = raw.reshape(rows, columns // unit, unit + 8)
        numbers = kept_numbers(np.ascontiguousarray(parts[..., unit:]).view(np.float32), kind)
        return CodeParts(parts[..., :unit].reshape(rows, columns), numbers[..., 0], numbers[..., 1])

    return split


def _weight_layout(bits: int, unit: int, half: bool) -> CodeLayout:
    end = "" if half else "f32"
    return CodeLayout(
        f"grouped{bits}u{unit}{end}", (f"GROUPED{bits}_{unit}{'' if half else '_F32'}",), bits,
        _taken(unit, half), unit, unit + 6, unit, "half" if half else "float", "zero",
        span=max(1, unit // 64),
    )  # fmt: skip


def _affine(bits: int, unit: int, kind: str) -> CodeLayout:
    return CodeLayout(
        f"affine{bits}u{unit}{kind.lower()}", (affine_type(bits, unit, kind),), bits,
        _taken_affine(unit, kind), unit, unit + 8, unit, _NUMBERS[kind], _NUMBERS[kind],
        span=max(1, unit // 64),
    )  # fmt: skip


GROUPED_WEIGHT_LAYOUTS = (
    *(_weight_layout(bits, unit, half) for half in (True, False) for unit in UNITS for bits in WIDTHS),
    *(_affine(bits, unit, kind) for kind in KINDS for unit in UNITS for bits in WIDTHS),
)
"""All widths, units and kinds of numbers. Only the kernels of those that a model has are compiled."""
