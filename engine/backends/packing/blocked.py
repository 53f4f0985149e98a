"""Tensors with separate scales in the form that backends pack: scales within blocks."""

from __future__ import annotations

from functools import cache
from typing import Protocol, cast, runtime_checkable

from engine.tensors import RawTensor


@runtime_checkable
class Blocked(Protocol):
    """A `RawTensor` with separate scales."""

    def in_blocks(self) -> RawTensor:
        """The tensor with each scale in its block, or itself if it has no such form."""
        ...


def in_blocks(tensor: RawTensor) -> RawTensor:
    """`tensor` in the form that backends pack."""
    return cast(Blocked, tensor).in_blocks() if _is_blocked(type(tensor)) else tensor


@cache
def _is_blocked(kind: type) -> bool:
    """Remembered, since a protocol looks for its methods again each time, for each tensor of a model."""
    return issubclass(kind, Blocked)
