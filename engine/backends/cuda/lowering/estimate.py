"""What a model will need of a GPU, from headers alone: its weights, and what a pass takes beside them and
its cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from engine.backends.base import AttentionShape, Floats, Forward, RawTensor, Weight
from engine.backends.composite import Composite, is_composite
from engine.backends.cuda.kernels.attention import prefill
from engine.backends.cuda.lowering.call import SMALL_BATCH
from engine.backends.cuda.lowering.calls import finish
from engine.backends.cuda.lowering.recorder import NoStore, Recorder
from engine.backends.cuda.lowering.recording import Recording, row_bytes
from engine.backends.cuda.runtime.decode_loop import decode_loop_bytes
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import ExpertTable, WeightSpec, expert_tables
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType, cache_type


class _EveryLayer(Sequence[int]):
    """Every layer on device 0."""

    def __getitem__(self, index: Any) -> Any:
        return 0

    def __len__(self) -> int:
        return 0


class Outline(Recorder):
    """Records a pass as if all were on one device; its vectors may be empty, and nothing is kept but
    counted.
    """

    def __init__(self, kind: CacheType, device: Device | None = None) -> None:
        """Without a device for a usual one."""
        super().__init__(NoStore(kind), () if device is None else (device,), _EveryLayer())
        if device is None:
            self.processors = [_PROCESSORS]
        self.kept_bytes = 0

    def recording(self, logits: Buffer) -> Recording:
        """What the pass became."""
        return finish(self, logits)

    def keep(self, values: Any, device: int) -> int:
        """Counted."""
        self.kept_bytes += -(-values.nbytes // 256) * 256
        return 256

    def _table(self, table: Floats, device: int) -> int:
        return 256

    def _weight_device(self, weight: WeightSpec) -> int:
        return 0

    def _flash(self, device: int, shape: AttentionShape) -> bool:
        if not self.devices:
            return prefill.takes_flash(_CAPABILITY, shape)
        return super()._flash(device, shape)

    def _expert_tables(self, device: int, weights: Sequence[WeightSpec]) -> list[ExpertTable]:
        return expert_tables(None, weights)

    def work_space(self, logits: Buffer) -> tuple[int, int, int]:
        """Bytes that a program has for each row of a step, for each position of the context, and whatever
        these are: buffers, scratch memory, constants, and a decode loop."""
        recording = self.recording(logits)
        few, few_logits = row_bytes(recording.few, 0, logits)
        many, many_logits = row_bytes(recording.many, 0, logits)
        rooms = recording.rooms(0).values()
        row, position, fixed = (sum(max(size(room) for room in each) for each in rooms) for size in _SIZES)
        fixed += SMALL_BATCH * (few + few_logits + many_logits) + self.kept_bytes
        fixed += decode_loop_bytes(logits.width)
        return many + row, position, fixed


_SIZES = attrgetter("row"), attrgetter("position"), attrgetter("fixed")


def kept_as(dtype: str) -> CacheType:
    """A cache type on a GPU: "auto" is fp16 here, at an error far below the sampler's grain."""
    return cache_type(dtype, automatic="fp16")


def weight_spec(tensor: RawTensor, capability: int) -> Weight:
    """See `Backend.weight_spec`, for a GPU of this compute capability (times ten)."""

    def one(tensor: RawTensor) -> WeightSpec:
        return WeightSpec(tensor, capability)

    return Composite(tensor, one) if is_composite(tensor) else one(tensor)


def work_space(forward: Forward, device: Device | None = None) -> tuple[int, int, int]:
    """See `Backend.work_space`, on this device; without one, on a usual one."""
    recorder = Outline(kept_as("auto"), device)
    return recorder.work_space(forward(recorder))


class UsualGpu:
    """What a model takes on a GPU, where none was chosen yet or none is there: as on one of compute
    capability 8.0 and up.
    """

    name = "cuda"

    def weight_spec(self, tensor: RawTensor) -> Weight:
        """See `Backend.weight_spec`."""
        return weight_spec(tensor, _CAPABILITY)

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        """See `Backend.work_space`."""
        return work_space(forward)


_CAPABILITY, _PROCESSORS = 80, 64
"""Of a usual GPU. The multiprocessors change little of what is taken."""
