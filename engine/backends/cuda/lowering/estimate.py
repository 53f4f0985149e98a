"""Estimates the GPU memory of a model from its headers: its weights, and what a pass needs."""

from __future__ import annotations

import math
from operator import attrgetter

from engine.backends.base import Forward, Weight
from engine.backends.cuda.kernels.attention.indexer import ScoreRows
from engine.backends.cuda.lowering.arena import row_bytes
from engine.backends.cuda.lowering.call import SMALL_BATCH, Call
from engine.backends.cuda.lowering.constants import USUAL_CAPABILITY, CountedConstants
from engine.backends.cuda.lowering.lower import LoweredPass
from engine.backends.cuda.runtime.decode_loop import decode_loop_bytes
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import WeightSpec
from engine.backends.graph.cache import CacheSpec
from engine.backends.kv_formats import CacheType, cache_type
from engine.backends.packing.composite import Composite, is_composite
from engine.tensors import RawTensor


def kept_as(dtype: str) -> CacheType:
    """The cache type on a GPU, where "auto" is fp16: its error is far below the granularity of sampling."""
    return cache_type(dtype, automatic="fp16")


def weight_spec(tensor: RawTensor, capability: int) -> Weight:
    """The spec of a matrix on a GPU of this compute capability (times ten)."""

    def one(tensor: RawTensor) -> WeightSpec:
        return WeightSpec(tensor, capability)

    return Composite(tensor, one) if is_composite(tensor) else one(tensor)


def dry_pass(
    forward: Forward,
    cache_dtype: str,
    device: Device | None = None,
    constants: CountedConstants | None = None,
) -> LoweredPass:
    """A pass as if everything were on one device (default: a usual one), with nothing allocated."""
    return LoweredPass(forward, CacheSpec(kept_as(cache_dtype)), constants or CountedConstants(device))


def work_space(forward: Forward, device: Device | None = None) -> tuple[int, int, int]:
    """Bytes per row, per position, and fixed, as `Backend.work_space`.

    They cover buffers, scratch memory, constants and a decode loop.
    """
    constants = CountedConstants(device)
    lowered = dry_pass(forward, "auto", constants=constants)
    small, small_logits = row_bytes(lowered.small, 0, lowered.logits)
    large, large_logits = row_bytes(lowered.large, 0, lowered.logits)
    sizes = lowered.scratch_sizes(0).values()
    row, position, fixed = (sum(max(part(size) for size in each) for each in sizes) for part in _PARTS)
    fixed += SMALL_BATCH * (small + small_logits + large_logits) + constants.nbytes
    written = (buffer for _, call in lowered.small if isinstance(call, Call) for buffer in call.writes)
    scores = (buffer.bytes_per_position for buffer in written if isinstance(buffer, ScoreRows))
    position += math.ceil(SMALL_BATCH * max(scores, default=0.0))
    return large + row, position, fixed + decode_loop_bytes(lowered.logits.width)


_PARTS = attrgetter("row"), attrgetter("position"), attrgetter("fixed")


class UsualGpu:
    """Estimates for a GPU of compute capability 8.0 or higher, if none is chosen or present."""

    name = "cuda"

    def weight_spec(self, tensor: RawTensor) -> Weight:
        return weight_spec(tensor, USUAL_CAPABILITY)

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        return work_space(forward)
