"""Whether a model fits into memory and how fast it will write, from its headers alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backends.choice import Fits, Target, Usable, choose
from engine.core import PAGE_TOKENS, ModelInfo, WorkSpace
from engine.errors import BadSetting
from engine.models.base import rotary
from engine.models.memory.estimate import cache_bytes, free_words
from engine.settings import CacheSettings, LoadSettings
from engine.units import size_text

if TYPE_CHECKING:
    from engine.backends.estimates import MemoryEstimator
    from engine.models.config import ModelConfig
    from engine.models.layers import Parts

MIN_ROWS, MAX_ROWS = 32, 512
STEP_FLOPS = 3e11
"""Work in one prefill step: about half a second on two cores, so that a stop is obeyed soon even with a
large model.
"""
GPU_ROWS = 1024
"""Rows of one prefill step on a GPU: each step reads and unpacks all weights anew, which few rows would
not repay.
"""
TIGHT = 0.9
"""From this part of the free memory on a model fits only just: other programs want some, too."""
TOKEN_BYTES = 480
"""What the tokenizer takes for each token: tables of texts, ids and merges.

Measured with 49,152 and with 262,144 tokens.
"""
READ_SHARE = 0.75
"""The part of the measured read bandwidth that multiplying with quantised weights keeps up."""
LAYER_SECONDS = 80e-6
"""What each layer takes beside reading its weights: attention, norms, and waiting for the slowest thread.

Measured for both: SmolLM2-135M Q4_1 writes 161 tokens/s on 2 threads that read 39.9 GB/s; the formula says
178.
"""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a model will take, bytes: `weights`, `cache` of one context, `work` space; `total` of them, beside
    the `free` memory.

    `verdict` is "fits", "tight" or "too large". `tokens_per_second` is an estimate for a short conversation,
    0 when the bandwidth is not known. `sentence` says it for people.
    """

    weights: int
    cache: int
    work: int
    total: int
    free: int
    context_length: int
    verdict: str
    tokens_per_second: float
    sentence: str


QUANTISED_BITS = {"q8": 8.5, "q6": 6.75, "q4": 5.0}
"""What a weight takes that was quantised while loading: its code, and its share of a block's scale and
zero.
"""


def fit(
    info: ModelInfo,
    cache: CacheSettings,
    free: int,
    bandwidth: float = 0.0,
    load: LoadSettings = LoadSettings(),
    *,
    backend: str = "cpu",
    where: str = "",
) -> Fit:
    """Judge a model by its headers, loaded as `load` says: `free` bytes of memory, and `bandwidth` bytes read
    a second.

    `backend` and `where` are those of the device, see `engine.backends.choice.Target`. A context length that
    is more than the model sees counts as the model's own.
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
    room = (
        f"{size_text(context.context_bytes)} for {context.context_length:,} tokens, {size_text(work)} work "
        "space"
    )
    parts = f"{size_text(weights)} weights, {room}"
    of_free = f"of {size_text(free)} free on {where}" if where else f"of {size_text(free)} free memory"
    sentence = {
        "fits": f"It takes {size_text(total)} ({parts}) {of_free}.",
        "tight": f"It fits only just: it takes {size_text(total)} ({parts}) {of_free}; close other programs "
        "first.",
        "too large": f"It takes {size_text(total)} ({parts}), but {free_words(free, where)}; choose a "
        "smaller "
        "quantisation or model, or a shorter context.",
    }[verdict]
    return Fit(
        weights,
        context.context_bytes,
        work,
        total,
        free,
        context.context_length,
        verdict,
        _speed(info, bandwidth, saved),
        sentence,
    )


def work_bytes(info: ModelInfo, context: int, backend: str) -> int:
    """Bytes of a model's passes over conversations of up to `context` tokens, on a backend of this name."""
    if backend != "cuda":
        return info.work.bytes(context)
    return (info.gpu_work if info.gpu_work.rows else dataclasses.replace(info.work, rows=GPU_ROWS)).bytes(
        context
    )


def finds_room(
    info: ModelInfo, cache: CacheSettings, load: LoadSettings, leaving: ModelInfo | None = None
) -> Fits:
    """Whether a model finds room on a device, by its headers alone; `leaving` is a loaded model that goes
    for it.
    """

    def answer(target: Target) -> bool:
        free = target.free + freed_bytes(leaving, target.where)
        return (
            fit(info, cache, free, load=load, backend=target.backend, where=target.where).verdict
            != "too large"
        )

    return answer


def freed_bytes(leaving: ModelInfo | None, where: str) -> int:
    """Bytes that become free on a device (`Backend.where`) when a loaded model goes."""
    if leaving is None or leaving.where != where:
        return 0
    return _resident(leaving, bool(where)) + leaving.cache_bytes


def _resident(info: ModelInfo, on_gpu: bool) -> int:
    """What the weights take in memory."""
    return (info.gpu_bytes if on_gpu else 0) or info.resident_bytes or info.weights_bytes


def likely_target(
    info: ModelInfo, cache: CacheSettings, load: LoadSettings, known: Usable, leaving: ModelInfo | None = None
) -> Target:
    """Where a model would be loaded to; of a GPU that was chosen and is not there, nothing is free."""
    try:
        return choose(load, finds_room(info, cache, load, leaving), known)
    except BadSetting:
        return Target("cuda", where="the chosen GPU")


def prefill_rows(config: ModelConfig, backend: str = "cpu") -> int:
    """Rows of one prefill step: a power of two, fixed by the model's size and the backend so that results
    repeat exactly.
    """
    if backend == "cuda":
        return GPU_ROWS
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim
    weights = config.layers * config.width * (attention + 3 * config.ffn_width)
    rows = MAX_ROWS
    while rows > MIN_ROWS and 2.0 * weights * rows > STEP_FLOPS:
        rows //= 2
    return rows


def work_space(config: ModelConfig, backend: MemoryEstimator, parts: Parts) -> WorkSpace:
    """What the passes of a decoder take, by recording one; its weights may be specs.

    In the machine's own memory the tokenizer counts, too.
    """
    turn = rotary(config, PAGE_TOKENS, min(PAGE_TOKENS, config.context_length))
    row, position, fixed = backend.work_space(lambda ops: parts(ops, turn))
    tables = [table for table in (turn.main, turn.local) if table is not None]
    fixed += 0 if backend.name == "cuda" else TOKEN_BYTES * config.vocab_size
    position += sum(8 * table.cos.shape[1] for table in tables)
    return WorkSpace(prefill_rows(config, backend.name), row, position, fixed)


def _saved(info: ModelInfo, load: LoadSettings) -> int:
    """Bytes that quantising while loading saves."""
    body, body_bytes, head, head_bytes = info.plain
    kinds = load.quantise, load.quantise if load.quantise_head == "same" else load.quantise_head
    parts = zip(kinds, (body, head), (body_bytes, head_bytes), strict=True)
    return sum(
        taken - int(numbers * QUANTISED_BITS[kind] / 8)
        for kind, numbers, taken in parts
        if kind != "none" and numbers
    )


def _speed(info: ModelInfo, bandwidth: float, saved: int) -> float:
    """Each token reads its weights once: tokens/s is what the bandwidth allows, less the time between the
    reads.
    """
    if bandwidth <= 0:
        return 0.0
    return 1 / (
        max((info.read_bytes or info.weights_bytes) - saved, 1) / (READ_SHARE * bandwidth)
        + info.layers * LAYER_SECONDS
    )
