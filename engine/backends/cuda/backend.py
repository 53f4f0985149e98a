"""The CUDA backend: Numba-CUDA kernels on one GPU, or on several, each with some of the layers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import cast

from engine.backends.base import AttentionShape, Forward, KVCache, Program, Weight
from engine.backends.cuda.kv_cache import CudaCache
from engine.backends.cuda.lowering.constants import Constants
from engine.backends.cuda.lowering.estimate import dry_pass, kept_as, weight_spec, work_space
from engine.backends.cuda.lowering.lower import LoweredPass
from engine.backends.cuda.program import CudaProgram
from engine.backends.cuda.proof import proven
from engine.backends.cuda.proof.torch_program import TorchCache, TorchProgram
from engine.backends.cuda.proof.trial import Trial
from engine.backends.cuda.runtime.decode_loop import decode_loop_kernels
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.runtime.device_map import Split
from engine.backends.cuda.weight import CudaWeight, WeightSpec
from engine.backends.packing.composite import Composite, is_composite
from engine.backends.states import NO_STATES, States
from engine.backends.trim import give_memory_back
from engine.core import PAGE_TOKENS, Loading
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from engine.tensors import RawTensor
from engine.words import N_, _, translate

_ADVICE = N_(
    "Please copy this report and send it to the developers; a newer driver or another model may help."
)


class CudaBackend:
    """A `Backend` on one GPU or several.

    Layers go to the fewest devices that hold the model, or, with `even`, to all by their free memory. `where`
    is the devices' display name; `keep_free` bytes of each device's memory are left to other programs.
    """

    def __init__(
        self, devices: Sequence[Device], *, even: bool = False, where: str = "", keep_free: int = 0
    ) -> None:
        # This import keeps references to the caller's frames; those of a reply would keep a model's memory
        # alive.
        import torch.nn.attention.bias  # noqa: F401

        assert devices
        self._devices, self._keep_free = list(devices), keep_free
        self.where = where or ", ".join(device.name for device in devices)
        self._split = Split(devices, even)
        self.name = "cuda"
        """"torch" if torch's own operations replace the kernels, see `replace`."""
        self.notice = self.report = ""

    def replace(self, why: str, report: str) -> None:
        """Use torch's own operations for new programs and caches from now on; existing ones stay as they are.

        `why` is a clause for the user, `report` the details.
        """
        self.notice = _(
            "On {where}, {why}. PyTorch's own operations are used instead: replies are correct, but "
            "slow. {advice}",
            where=self.where,
            why=why,
            advice=translate(_ADVICE),
        )
        self.name, self.report = "torch", report
        logging.getLogger(__name__).warning("%s\n%s", self.notice, report)

    def to_prove(self, forward: Forward, cache_dtype: str) -> list[Trial]:
        """The kernels of `forward` that are not proven yet, for each device that has any.

        If one of them stopped its device before, all kernels are replaced without another trial.
        """
        trials: list[Trial] = []
        for device in self._devices[: self._split.used]:
            if self.notice or not device.identity:
                continue
            lowered = dry_pass(forward, cache_dtype, device)
            width = lowered.logits.width
            kernels = [*lowered.kernels(0), *decode_loop_kernels(width)]
            names, before = frozenset(kernel.name for kernel in kernels), proven.known(device.identity)
            if stopped := sorted(names & before.crashed):
                self.replace(
                    "kernels that this model needs stopped this GPU before",
                    "Stopped the GPU: " + ", ".join(stopped),
                )
            elif left := names - before.passed - before.untried:
                trials.append(Trial(device, left, width))
        return [] if self.notice else trials

    def forget_proofs(self) -> None:
        """Forget which kernels are proven."""
        for device in self._devices:
            if device.identity:
                proven.forget(device.identity)

    @property
    def devices(self) -> Sequence[Device]:
        """The devices in the order of the layers."""
        return self._devices

    def free_memory(self) -> int:
        """Free bytes of all devices together, without those kept free."""
        return sum(max(0, device.free_memory() - self._keep_free) for device in self._devices)

    def trim(self) -> None:
        for device in self._devices:
            device.trim()
        give_memory_back()

    def prepare(self, forward: Forward, cache_dtype: str) -> Iterator[Loading]:
        """Compile the kernels that `forward` calls, or read them from the disk cache, and load them."""
        if self.notice:
            return
        try:
            for device in self._devices[: self._split.used]:
                lowered = dry_pass(forward, cache_dtype, device)
                yield from device.prepare([*lowered.kernels(0), *decode_loop_kernels(lowered.logits.width)])
        except (NotEnoughMemory, DeviceLost):
            raise
        except EngineError as error:  # one that cannot be compiled, or that the driver does not take
            self.replace("a kernel that this model needs cannot be used", str(error))

    def weight_spec(self, tensor: RawTensor) -> Weight:
        seen = weight_spec(tensor, min(device.capability for device in self._devices))
        self._split.note(tensor.name, seen.nbytes)
        return seen

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        """Bytes of buffers, constants, scratch memory and a decode loop, on the first device."""
        return work_space(forward, self._devices[0])

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Pack a matrix into tiles, on the device of its layer."""
        number = self._split.device_of(tensor.name)

        def load(tensor: RawTensor) -> CudaWeight:
            weight = CudaWeight(self._devices[number], tensor)
            weight.device_number = number
            return weight

        return Composite(tensor, load) if is_composite(tensor) else load(tensor)

    def new_cache(
        self, shapes: Sequence[AttentionShape], page_count: int, dtype: str, states: States = NO_STATES,
        numbers: Sequence[int] = (),
    ) -> KVCache:  # fmt: skip
        layers = [self._split.layer(layer) for layer in numbers or range(len(shapes))]
        places = [self._split.layer(layer) for layer in states.layers or (0,) * len(states.shapes)]
        devices, parts = ([self._devices[number] for number in each] for each in (layers, places))
        if self.notice:
            return TorchCache(devices, shapes, page_count, kept_as(dtype), states, parts)
        cache = CudaCache(devices, shapes, page_count, kept_as(dtype), states, parts)
        cache.placed = layers, places
        return cache

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> Program:
        if isinstance(cache, TorchCache):
            return TorchProgram(forward, cache, max_rows, self._devices[: self._split.used])
        assert isinstance(cache, CudaCache)
        devices = self._devices[: self._split.used]
        layers, parts = cache.placed
        constants, positions = Constants(self._devices), cache.page_count * PAGE_TOKENS
        crossed = cache.cross.placed[0] if isinstance(cache.cross, CudaCache) else ()
        lowered = LoweredPass(forward, cache, constants, layers, _device_of, parts, positions, crossed)
        return CudaProgram(lowered, cache, max_rows, devices)


def _device_of(weight: Weight) -> int:
    return cast(WeightSpec, weight).device_number
