"""Estimates by a model's headers whether it fits into memory and how fast it generates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.backends.choice import Fits, Target, Usable, choose
from engine.core import PAGE_TOKENS, ModelInfo, WorkSpace
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.base import rope_tables
from engine.models.memory.estimate import CacheEstimate, cache_bytes, free_words
from engine.settings import CacheSettings, LoadSettings
from engine.units import size_text
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.backends.base import MemoryEstimator
    from engine.models.config import ModelConfig
    from engine.models.layers.whole import Parts

MIN_ROWS, MAX_ROWS = 32, 512
STEP_FLOPS = 3e11
"""Work in one prefill step: about half a second on two cores, so that even a large model stops quickly."""
GPU_ROWS = 1024
"""Rows of one prefill step on a GPU; each step reads and unpacks all weights, which needs many rows to pay.
"""
TIGHT = 0.9
"""A model that takes more than this part of the free memory is a tight fit: other programs need some, too."""
TOKEN_BYTES = 480
"""Memory of the tokenizer for each token, measured with 49,152 and with 262,144 tokens."""
READ_SHARE = 0.7
"""The part of the measured read bandwidth that products with quantised weights reach."""
LAYER_SECONDS = 80e-6
"""Time of each layer besides reading its weights: attention, norms, and waiting for the slowest thread.

Measured, as is `READ_SHARE`: SmolLM2-135M Q4_1 generates 161 tokens/s on 2 threads that read 39.9 GB/s; the
formula gives 178.
"""


@dataclass(frozen=True, slots=True)
class Fit:
    """The memory that a model needs, in bytes, and the speed to expect."""

    weights: int
    cache: int
    """The KV cache of one context."""
    work: int
    """The work space of the passes."""
    total: int
    free: int
    """The free memory of the device."""
    context_length: int
    verdict: str
    """"fits", "tight", "on disk" (a part of the weights stays there) or "too large"."""
    tokens_per_second: float
    """For a short conversation: `measured` in earlier replies, or else an estimate; 0 if it is unknown."""
    measured: bool
    sentence: str
    """All this in words, for the user."""


QUANTISED_BITS = {"q8": 8.5, "q6": 6.75, "q4": 5.0}
"""Bits of a weight quantised while loading: its code, and its share of the block's scale and zero point."""


def fit(
    info: ModelInfo,
    cache: CacheSettings,
    free: int,
    bandwidth: float = 0.0,
    load: LoadSettings = LoadSettings(),
    *,
    backend: str = "cpu",
    where: str = "",
    measured: float = 0.0,
) -> Fit:
    """Judge a model, loaded as `load` says, on a device with `free` bytes that reads `bandwidth` bytes/s.

    `measured` is its speed in earlier replies, in tokens/s; 0 if there were none.

    `backend` and `where` are those of the device (`engine.backends.choice.Target`). A context length beyond
    the model's own counts as the model's own.
    """
    saved = _saved(info, load)
    weights = _resident(info, backend == "cuda") - saved
    try:
        context = cache_bytes(info, cache, backend, free=free)
    except BadSetting:
        context = cache_bytes(
            info, dataclasses.replace(cache, context_length=info.context_length), backend, free=free
        )
    work = work_bytes(info, context.context_length, backend)
    total = weights + context.context_bytes + work
    verdict = "too large" if total > free else "tight" if total > TIGHT * free else "fits"
    in_memory = offload_limit(free, context.context_bytes + work)
    if verdict == "too large" and load.offload and backend == "cpu" and in_memory:
        verdict = "on disk"
    sentence = _sentence(verdict, weights, context, work, free, where)
    return Fit(
        weights,
        context.context_bytes,
        work,
        total,
        free,
        context.context_length,
        verdict,
        0.0 if verdict == "on disk" else measured or _speed(info, bandwidth, saved),
        measured > 0 and verdict != "on disk",
        sentence,
    )


def head_of(info: ModelInfo) -> ModelInfo | None:
    """The head for multi-token prediction of a model as a draft model, of one layer; None if it has none."""
    if not info.mtp:
        return None
    return dataclasses.replace(
        info, resident_bytes=info.mtp_bytes, gpu_bytes=0, kv_shapes=info.kv_shapes[-1:], state_bytes=0,
        plain=(0, 0, 0, 0), work=WorkSpace(), gpu_work=WorkSpace(),
    )  # fmt: skip


def offload_limit(free: int, beside: int) -> int:
    """Bytes of weights to keep in memory when not all fit: of the `free` bytes, what is left `beside` cache
    and work space, less an eighth, in which the system holds what it reads from the disk.
    """
    return max(0, free - free // 8 - beside)


def work_bytes(info: ModelInfo, context: int, backend: str) -> int:
    """Bytes of work space for conversations of up to `context` tokens on this backend."""
    if backend != "cuda":
        return info.work.bytes(context)
    return (info.gpu_work if info.gpu_work.rows else dataclasses.replace(info.work, rows=GPU_ROWS)).bytes(
        context
    )


def fits_by_headers(
    info: ModelInfo, cache: CacheSettings, load: LoadSettings, leaving: ModelInfo | None = None
) -> Fits:
    """A function that tells whether the model fits on a device; it replaces the loaded model `leaving`."""

    def fits_on(target: Target) -> bool:
        if target.backend == "cuda" and info.cpu_only:
            return False
        free = target.free + freed_bytes(leaving, target.where)
        return (
            fit(info, cache, free, load=load, backend=target.backend, where=target.where).verdict
            != "too large"
        )

    return fits_on


def freed_bytes(leaving: ModelInfo | None, where: str) -> int:
    """Bytes that become free on a device (`Backend.where`) when a loaded model is closed."""
    if leaving is None or leaving.where != where:
        return 0
    return _resident(leaving, bool(where)) + leaving.cache_bytes


def _resident(info: ModelInfo, on_gpu: bool) -> int:
    """Bytes of the weights in memory."""
    return (info.gpu_bytes if on_gpu else 0) or info.resident_bytes or info.weights_bytes


def likely_target(
    info: ModelInfo, cache: CacheSettings, load: LoadSettings, known: Usable, leaving: ModelInfo | None = None
) -> Target:
    """The device that a model would be loaded on; a chosen GPU that is missing has no free memory."""
    try:
        return choose(load, fits_by_headers(info, cache, load, leaving), known)
    except BadSetting:
        return Target("cuda", where=_("the chosen GPU"))


def prefill_rows(config: ModelConfig, backend: str = "cpu") -> int:
    """Rows of one prefill step, a power of two that depends only on the model's size and the backend, so that
    results are reproducible; an encoder needs all rows of a text in one step.
    """
    if config.bidirectional:
        return config.context_length
    if backend == "cuda":
        return GPU_ROWS
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim
    weights = config.layers * config.width * (attention + 3 * config.ffn_width)
    rows = MAX_ROWS
    while rows > MIN_ROWS and 2.0 * weights * rows > STEP_FLOPS:
        rows //= 2
    return rows


def work_space(config: ModelConfig, backend: MemoryEstimator, parts: Parts) -> WorkSpace:
    """The work space of a decoder's passes, found by recording one; its weights may be specs.

    On the CPU it includes the tokenizer.
    """
    ropes = rope_tables(config, PAGE_TOKENS, min(PAGE_TOKENS, config.context_length))
    row, position, fixed = backend.work_space(lambda ops: parts(ops, ropes))
    tables = [
        table for table in (ropes.main, ropes.local, ropes.queries, ropes.unrotated) if table is not None
    ]
    fixed += 0 if backend.name == "cuda" else TOKEN_BYTES * config.vocab_size
    position += sum(8 * table.cos.shape[1] for table in tables)
    return WorkSpace(prefill_rows(config, backend.name), row, position, fixed)


def _saved(info: ModelInfo, load: LoadSettings) -> int:
    """Bytes that quantising while loading saves."""
    body, body_bytes, head, head_bytes = info.plain
    kinds = load.quantise, load.quantise if load.quantise_head == "same" else load.quantise_head
    parts = zip(kinds, (body, head), (body_bytes, head_bytes), strict=True)
    return sum(
        taken - int(numbers * QUANTISED_BITS[kind] / 8) for kind, numbers, taken in parts if kind != "none"
    )


def _speed(info: ModelInfo, bandwidth: float, saved: int) -> float:
    """Tokens/s = 1 / (bytes read / (READ_SHARE * bandwidth) + layers * LAYER_SECONDS)."""
    if bandwidth <= 0:
        return 0.0
    return 1 / (
        max((info.read_bytes or info.weights_bytes) - saved, 1) / (READ_SHARE * bandwidth)
        + info.layers * LAYER_SECONDS
    )


def bandwidth_from(info: ModelInfo, tokens_per_second: float) -> float:
    """The bandwidth with which `fit` estimates this speed for a loaded model, in bytes/s; 0 where reading
    weights takes less than half of a token's time, which would say little.
    """
    reading = 1 / tokens_per_second - info.layers * LAYER_SECONDS
    if reading < 0.5 / tokens_per_second:
        return 0.0
    return (info.read_bytes or info.weights_bytes) / (READ_SHARE * reading)


_FITS = N_("It needs {size} ({parts}) of {size_2} free memory.")
_FITS_ON = N_("It needs {size} ({parts}) of {size_2} free on {where}.")
_TIGHT = N_(
    "It only just fits: it needs {size} ({parts}) of {size_2} free memory; close other programs first."
)
_TIGHT_ON = N_(
    "It only just fits: it needs {size} ({parts}) of {size_2} free on {where}; close other programs first."
)


def _sentence(verdict: str, weights: int, context: CacheEstimate, work: int, free: int, where: str) -> str:
    """The verdict in words."""
    total = weights + context.context_bytes + work
    room = _(
        "{size} for {context_length:,} tokens, {size_2} work space",
        size=size_text(context.context_bytes),
        context_length=context.context_length,
        size_2=size_text(work),
    )
    parts = _("{size} weights, {room}", size=size_text(weights), room=room)
    sizes = {"size": size_text(total), "parts": parts, "size_2": size_text(free), "where": where}
    if verdict == "fits":
        return translate(_FITS_ON if where else _FITS, **sizes)
    if verdict == "tight":
        return translate(_TIGHT_ON if where else _TIGHT, **sizes)
    return {
        "on disk": _(
            "It needs {size} ({parts}), but {available}: {size_2} of its weights are read "
            "from the disk for each token, so replies are slow.",
            size=size_text(total),
            parts=parts,
            available=free_words(free, where),
            size_2=size_text(weights - offload_limit(free, context.context_bytes + work)),
        ),
        "too large": _(
            "It needs {size} ({parts}), but {available}; choose a smaller quantisation or "
            "model, or a shorter context.",
            size=size_text(total),
            parts=parts,
            available=free_words(free, where),
        ),
    }[verdict]
