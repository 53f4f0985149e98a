"""The CPU backend's `Composite` matrices."""

from __future__ import annotations

from engine.backends.composite import Composite, PermutedTensor
from engine.backends.cpu.weight import CpuWeight, WeightOutline


class CompositeOutline(Composite[WeightOutline]):
    """What is known of a `CompositeWeight` before it is loaded; as `WeightOutline`."""

    def __init__(self, tensor: PermutedTensor, part: type[WeightOutline] = WeightOutline) -> None:
        super().__init__(tensor, part)


class CompositeWeight(CompositeOutline):
    """Its parts are `CpuWeight`s."""

    def __init__(self, tensor: PermutedTensor) -> None:
        super().__init__(tensor, CpuWeight)
