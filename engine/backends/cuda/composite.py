"""The CUDA backend's `Composite` matrices. Their orders stay with the host, which gives them to the kernel that permutes x."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.base import RawTensor
from engine.backends.composite import Composite, PermutedTensor
from engine.backends.cuda.device import Device
from engine.backends.cuda.weight import CudaWeight, WeightOutline


class CompositeOutline(Composite[WeightOutline]):
    """What is known of a `CompositeWeight` before it is loaded; as `WeightOutline`."""

    def __init__(self, tensor: PermutedTensor, capability: int = 80, part: Callable[[RawTensor], WeightOutline] | None = None) -> None:
        super().__init__(tensor, part or (lambda piece: WeightOutline(piece, capability)))


class CompositeWeight(CompositeOutline):
    """Its parts are `CudaWeight`s of one device."""

    def __init__(self, device: Device, tensor: PermutedTensor) -> None:
        super().__init__(tensor, device.capability, lambda piece: CudaWeight(device, piece))
