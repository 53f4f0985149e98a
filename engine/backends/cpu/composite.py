"""Matrices whose columns lie in another order than the model's, or in parts of several layouts: GPTQ by activation order, EXL2.

The recorder brings the activations into that order once for all matrices that share it, a buffer for each part, and adds
the parts' products up one after the other: each begins where the one before ended.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from engine.backends.base import RawTensor
from engine.backends.cpu.weight import CpuWeight, packed_bytes
from engine.weights.grouped import GroupedTensor

PERMUTED = "PERMUTED"
"""What the type of such a tensor begins with."""
_WHOLE_ONLY = (".experts.", "embed")
"""Matrices that are looked up by rows or chosen by a router are kept whole: dequantised to F16."""


def is_composite(tensor: RawTensor) -> TypeGuard[GroupedTensor]:
    """Whether `tensor` becomes a `CompositeWeight`."""
    return isinstance(tensor, GroupedTensor) and tensor.type.startswith(PERMUTED) and not any(part in tensor.name for part in _WHOLE_ONLY)


def composite_bytes(tensor: GroupedTensor) -> int:
    """What the parts take, and the order of columns."""
    return sum(packed_bytes(piece) for piece in tensor.pieces()) + 4 * tensor.shape[1]


class CompositeWeight:
    """(N, K) as `parts`, each a matrix of some columns; column j of all parts side by side is the model's `order`[j], int32."""

    def __init__(self, tensor: GroupedTensor) -> None:
        self.shape = tensor.shape
        self.nbytes = composite_bytes(tensor)
        self.parts = [CpuWeight(piece) for piece in tensor.pieces()]
        order = np.arange(tensor.shape[1]) if tensor.order is None else tensor.order
        self._order = np.ascontiguousarray(order, np.int32)
        ends = np.cumsum([part.shape[1] for part in self.parts])
        self.orders: list[npt.NDArray[np.int32]] = [
            self._order[end - part.shape[1] : end] for part, end in zip(self.parts, ends, strict=True)
        ]
