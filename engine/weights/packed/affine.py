"""Matrices of integer codes with a scale and a bias for each group of inputs: w = code * scale + bias.

MLX, HQQ and torchao files hold such matrices, packed in different ways. Backends keep the codes, and both
numbers in a type that holds all of them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.backends.packing.pieces import affine_type
from engine.errors import BadCheckpoint
from engine.weights.format import Bytes, Floats
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import UNITS, Indices
from engine.words import _


class Affine(Protocol):
    """Reads a matrix's codes and numbers for some outputs (rows). Raises `BadCheckpoint`."""

    def codes(self, outputs: Indices) -> Bytes:
        """(outputs, K)."""
        ...

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        """Scales and biases (outputs, groups)."""
        ...

    def decode(self, outputs: Indices) -> Floats:
        """The values (outputs, K), rounded in the order of the file's own formula."""
        ...


def affine_matrix(
    name: str, shape: tuple[int, int], bits: int, groups: int, kind: str, nbytes: int, source: Affine
) -> DecodedMatrix:
    """The matrix, with `groups` groups of equal size in a row, and numbers that the type `kind` holds.

    Groups that are no multiple of 32 columns are decoded, as type "AFFINE4"; for those of others, `data` is
    for each row and `unit` columns their codes, a byte each, a float32 scale and a float32 bias.
    """
    unit = next((unit for unit in UNITS if shape[1] // groups % unit == 0), 0)
    if not unit:
        return DecodedMatrix(name, f"AFFINE{bits}", shape, nbytes, source.decode)

    def blocks(outputs: Indices) -> Bytes:
        out = np.empty((outputs.size, shape[1] // unit, unit + 8), np.uint8)
        out[:, :, :unit] = source.codes(outputs).reshape(*out.shape[:2], unit)
        for at, numbers in zip((unit, unit + 4), source.numbers(outputs), strict=True):
            if not np.isfinite(numbers).all():
                raise BadCheckpoint(
                    _(
                        "The scales of {name} hold something that is not a number. Download the model again.",
                        name=name,
                    )
                )
            wide = np.repeat(np.ascontiguousarray(numbers, np.float32), out.shape[1] // groups, axis=1)
            out[:, :, at : at + 4] = wide[..., None].view(np.uint8)
        return out.reshape(-1)

    return DecodedMatrix(name, affine_type(bits, unit, kind), shape, nbytes, source.decode, blocks)
