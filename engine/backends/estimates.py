"""What can be asked of a device before a model is loaded, or before it is chosen."""

from __future__ import annotations

from typing import Protocol

from engine.backends.base import Forward, Weight
from engine.tensors import RawTensor


class MemoryEstimator(Protocol):
    """What a backend, or one that is not there yet, tells from a model's headers alone; see `Backend` for
    each.
    """

    @property
    def name(self) -> str: ...

    def weight_spec(self, tensor: RawTensor) -> Weight: ...

    def work_space(self, forward: Forward) -> tuple[int, int, int]: ...
