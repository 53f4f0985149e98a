"""Tensors whose scales lie apart in the file, as backends pack them: with the scales among the numbers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engine.tensors import RawTensor


@runtime_checkable
class Blocked(Protocol):
    """A `RawTensor` of numbers with scales of their own."""

    def in_blocks(self) -> RawTensor:
        """The same with the scales among the numbers, where they serve whole blocks; else itself."""
        ...


def in_blocks(tensor: RawTensor) -> RawTensor:
    """`tensor` as it is packed."""
    return tensor.in_blocks() if isinstance(tensor, Blocked) else tensor
