"""Matrices with permuted columns, or with parts of several layouts: GPTQ with activation order, EXL2.

The recorder permutes the activations once for all matrices that share an order, into a buffer for each part,
and chains the parts' products: each adds to the result of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from engine.backends.base import Weight
from engine.tensors import RawTensor

PERMUTED = "PERMUTED"
"""Prefix of the type of such a tensor."""
_WHOLE_ONLY = (".experts.", "embed")
"""Parts of the names of matrices that are read by rows or chosen by a router: these become no `Composite`."""

PartT = TypeVar("PartT", bound=Weight)


class PermutedTensor(RawTensor, Protocol):
    """A `RawTensor` whose type begins with `PERMUTED`."""

    @property
    def order(self) -> npt.NDArray[np.int64] | None:
        """The model's column for each stored column; None if the order is the same."""
        ...

    def pieces(self) -> Sequence[RawTensor]:
        """The parts, in the order of the stored columns."""
        ...


def is_composite(tensor: RawTensor) -> TypeGuard[PermutedTensor]:
    """Whether `tensor` becomes a `Composite`."""
    return tensor.type.startswith(PERMUTED) and not any(part in tensor.name for part in _WHOLE_ONLY)


class Composite(Generic[PartT]):
    """A matrix (N, K) in `parts` of its columns: column j of part i is the model's column `orders[i][j]`."""

    def __init__(self, tensor: PermutedTensor, part: Callable[[RawTensor], PartT]) -> None:
        """`part` makes a backend's matrix, or a spec, from a piece."""
        self.shape = tensor.shape
        self.parts: Sequence[PartT] = [part(piece) for piece in tensor.pieces()]
        self.nbytes = sum(each.nbytes for each in self.parts) + 4 * tensor.shape[1]
        order = np.arange(tensor.shape[1]) if tensor.order is None else tensor.order
        whole = np.ascontiguousarray(order, np.int32)
        ends = np.cumsum([part.shape[1] for part in self.parts])
        self.orders: list[npt.NDArray[np.int32]] = [
            whole[end - part.shape[1] : end] for part, end in zip(self.parts, ends, strict=True)
        ]
