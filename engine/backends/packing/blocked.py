"""Tensors with separate scales in the form that backends pack: scales within blocks."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engine.tensors import RawTensor


@runtime_checkable
class Blocked(Protocol):
    """A `RawTensor` with separate scales."""

    def in_blocks(self) -> RawTensor:
        """The tensor with each scale in its block, or itself if it has no such form."""
        ...


def in_blocks(tensor: RawTensor) -> RawTensor:
    """`tensor` in the form that backends pack."""
    return tensor.in_blocks() if isinstance(tensor, Blocked) else tensor
