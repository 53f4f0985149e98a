"""The weight layouts of codes with a scale and an integer zero point, or a scale and a bias, for each group
of columns: the types of `engine.weights.packed.grouped` and `engine.weights.packed.affine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from engine.backends.cuda.layouts.codes import CodeLayout, CodeParts, Numbers
from engine.backends.cuda.layouts.layout import Bytes
from engine.backends.packing.pieces import KINDS, affine_type, kept_numbers

WIDTHS = (2, 3, 4, 5, 6, 8)
UNITS = (32, 64, 128)
Keep = Callable[[Bytes], tuple[Numbers, Numbers]]
_NUMBERS = {"F16": "half", "BF16": "bfloat", "F32": "float"}


def _keep(numbers: Bytes, half: bool) -> tuple[Numbers, Numbers]:
    """Scales and zero points, from a float32 and an int16. Zeros up to 2048 are exact in fp16."""
    scales = np.ascontiguousarray(numbers[:, :4]).view(np.float32)[:, 0]
    zeros = np.ascontiguousarray(numbers[:, 4:]).view(np.int16)[:, 0]
    kept = scales.astype(np.float16).view(np.uint16) if half else scales
    return kept, zeros.astype(np.float16).view(np.uint16)


def _keep_affine(numbers: Bytes, kind: str) -> tuple[Numbers, Numbers]:
    """Scales and biases, from two float32."""
    both = kept_numbers(np.ascontiguousarray(numbers).view(np.float32), kind)
    return both[:, 0], both[:, 1]


def kept_parts(codes: Bytes, numbers: Sequence[Numbers], rows: int) -> CodeParts:
    """`CodeParts` of the blocks of this many rows."""
    scales, mins = (each.reshape(rows, -1) for each in numbers)
    return CodeParts(codes.reshape(rows, -1), scales, mins)


def _taken(keep: Keep, unit: int) -> Callable[[Bytes, int, int], CodeParts]:
    """The `CodeLayout.split` for `unit` bytes of codes and two numbers."""

    def split(raw: Bytes, rows: int, columns: int) -> CodeParts:
        blocks = raw.reshape(rows * (columns // unit), -1)
        return kept_parts(blocks[:, :unit], keep(blocks[:, unit:]), rows)

    return split


def _weight_layout(bits: int, unit: int, half: bool) -> CodeLayout:
    end, keep = "" if half else "f32", partial(_keep, half=half)
    return CodeLayout(
        f"grouped{bits}u{unit}{end}", (f"GROUPED{bits}_{unit}{'' if half else '_F32'}",), bits,
        _taken(keep, unit), unit, unit + 6, unit, "half" if half else "float", "zero",
        span=max(1, unit // 64), keep=keep,
    )  # fmt: skip


def _affine(bits: int, unit: int, kind: str) -> CodeLayout:
    keep = partial(_keep_affine, kind=kind)
    return CodeLayout(
        f"affine{bits}u{unit}{kind.lower()}", (affine_type(bits, unit, kind),), bits,
        _taken(keep, unit), unit, unit + 8, unit, _NUMBERS[kind], _NUMBERS[kind],
        span=max(1, unit // 64), keep=keep,
    )  # fmt: skip


GROUPED_WEIGHT_LAYOUTS = (
    *(_weight_layout(bits, unit, half) for half in (True, False) for unit in UNITS for bits in WIDTHS),
    *(_affine(bits, unit, kind) for kind in KINDS for unit in UNITS for bits in WIDTHS),
)
"""All widths, units and kinds of numbers. Only the kernels of those that a model has are compiled."""
