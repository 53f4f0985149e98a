"""Sampling the next token as the last part of a pass: a survey of the logits on all threads, then the pick.

The functions are those of `engine.sampling.passes`, so that the results are the host's, bit for bit. A pass
that is not asked to sample leaves them out.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cpu.codegen.memory_ops import (
    f32_array,
    f64_array,
    i64_array,
    ld_f64,
    ld_i64,
    st_f64,
    st_i64,
)
from engine.backends.cpu.codegen.specialise import Jit, specialise
from engine.backends.cpu.lowering.call import Calls
from engine.backends.cpu.runtime.sampling_block import (
    ALTERNATIVES,
    DONE,
    PICK,
    RESULT,
    RESULTS,
    SURVEY,
    UNIFORM,
    SamplingBlock,
)
from engine.backends.cpu.runtime.step_block import SAMPLED, SMALL_BATCH
from engine.backends.graph.buffers import Buffer
from engine.sampling import passes
from engine.sampling.kernels import MIN_SCANNED, parts_of
from engine.sampling.passes import BLOCK, IDS, ROOM, SCORES, SUM_LANES

(S_LOGITS, S_BLOCK) = range(2)
_COLUMNS = 512
"""Columns of a tile of `column_maxima`."""
_LANES = SURVEY * 8 + 4 * BLOCK
"""Bytes from the beginning of the sampling block to the lanes of the first block of logits."""

part: Any = None
largest_of: Any = None
pick: Any = None


def _column_maxima(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile for each `_COLUMNS` columns."""
    count = ld_i64(step + 8 * SAMPLED)
    if count:
        logits = f32_array(ld_i64(args + 8 * S_LOGITS), count)
        maxima = f32_array(ld_i64(args + 8 * S_BLOCK) + 8 * SURVEY, BLOCK)
        part(logits, tile * _COLUMNS, (tile + 1) * _COLUMNS, maxima)


def _softmax_lanes(args: int, step: int, tile: int, scratch: int) -> None:
    """A tile for each block of logits."""
    count, first = ld_i64(step + 8 * SAMPLED), tile * BLOCK
    if first < count:
        block = ld_i64(args + 8 * S_BLOCK)
        logits = f32_array(ld_i64(args + 8 * S_LOGITS) + 4 * first, min(BLOCK, count - first))
        lanes = f32_array(block + _LANES + 8 * SUM_LANES * tile, 2 * SUM_LANES)
        part(logits, largest_of(f32_array(block + 8 * SURVEY, BLOCK), lanes), lanes)


def _sample(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile, which writes what the step sampled."""
    count, block = ld_i64(step + 8 * SAMPLED), ld_i64(args + 8 * S_BLOCK)
    if not count:
        return
    done, room = ld_i64(block + 8 * DONE), block + 8 * PICK
    blocks = (count + BLOCK - 1) // BLOCK
    token, final, raw, entropy, reported = pick(
        f32_array(ld_i64(args + 8 * S_LOGITS), count),
        ld_f64(block + 8 * (UNIFORM + done)),
        ld_i64(block + 8 * ALTERNATIVES),
        f64_array(room, ROOM),
        i64_array(room + 8 * IDS, SCORES - IDS),
        f32_array(block + 8 * SURVEY, BLOCK),
        f32_array(block + _LANES, 2 * SUM_LANES * (blocks + 1)),
    )
    result = block + 8 * (RESULTS + RESULT * done)
    st_i64(result, token)
    st_f64(result + 8, final)
    st_f64(result + 16, raw)
    st_f64(result + 24, entropy)
    st_i64(result + 32, reported)
    for i in range(3 * reported):
        st_f64(result + 40 + 8 * i, ld_f64(room + 8 * (passes.ALTERNATIVES + i)))


SAMPLE = ("column_maxima", "softmax_lanes", "sample")
"""The kernels, in order."""


def sample_kernel(name: str, jit: Jit) -> Any:
    """The kernel of this name."""
    parts = parts_of(jit)
    if name == "sample":
        return specialise(_sample, name, pick=parts["_survey_pick"])
    if name == "column_maxima":
        return specialise(_column_maxima, name, part=parts["_column_maxima"])
    return specialise(_softmax_lanes, name, part=parts["_softmax_lanes"], largest_of=parts["_largest"])


def add_sampling(calls: Calls, logits: Buffer) -> SamplingBlock | None:
    """Add the calls that sample from the first row of the logits; None for a small vocabulary, which the
    host surveys faster than it calls compiled code.
    """
    if logits.width < MIN_SCANNED:
        return None
    block = SamplingBlock(logits.width)
    calls.constants.kept.append(block)
    tiles = BLOCK // _COLUMNS, -(-logits.width // BLOCK), 1
    read: list[object] = [logits]
    for name, count in zip(SAMPLE, tiles, strict=True):
        calls.add(
            name,
            [logits, block.address],
            [*read],
            [name],
            tiles=(count, SMALL_BATCH, 0, 1),
            on_logit_rows=True,
        )
        read.append(name)
    return block
