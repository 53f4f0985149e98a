"""Tensors whose files hold more rows or columns than the model has."""

from __future__ import annotations

from collections.abc import Callable

import numpy.typing as npt

from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats

Shape = tuple[int, ...]


class Padded:
    """A `RawTensor` of which each dimension is padded to a multiple of `unit`, as far as its file tells."""

    __slots__ = ("_cut", "_unit", "_whole", "name", "shape", "type")

    def __init__(self, whole: RawTensor, unit: int, cut: Callable[[Shape], RawTensor]) -> None:
        """`cut` gives the tensor without padding, from the shape that the model's headers state."""
        self._whole, self._unit, self._cut = whole, unit, cut
        self.name, self.type, self.shape = whole.name, whole.type, whole.shape

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._whole.nbytes

    @property
    def data(self) -> Bytes:
        """As in `RawTensor`, padding included."""
        return self._whole.data

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        return self._whole.dequantise()

    def part(self, index: int) -> RawTensor:
        return self._whole.part(index)

    def rows(self, start: int, stop: int) -> RawTensor:
        return self._whole.rows(start, stop)

    def take(self, indices: npt.ArrayLike) -> RawTensor:
        return self._whole.take(indices)

    def without_padding(self, shape: Shape) -> RawTensor:
        """The tensor of this shape, or itself if that is not its shape before it was padded."""
        if len(shape) != len(self.shape) or any(
            -(-size // self._unit) * self._unit != own for size, own in zip(shape, self.shape, strict=True)
        ):
            return self
        return self._cut(shape)


def without_padding(tensor: RawTensor, shape: Shape) -> RawTensor:
    """`tensor` in the shape that the model's headers state, if it is padded; other tensors unchanged."""
    return tensor.without_padding(shape) if isinstance(tensor, Padded) else tensor
