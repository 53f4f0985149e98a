"""Estimates a program's memory, apart from weights and cache, from a model's headers alone."""

from __future__ import annotations

import numpy as np

from engine.backends.base import Forward
from engine.backends.cpu.lowering.constants import CountedConstants
from engine.backends.cpu.lowering.lower import LoweredPass
from engine.backends.cpu.program import ARGUMENTS
from engine.backends.cpu.runtime.work_stealing import OPERATION
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import CacheSpec
from engine.backends.graph.memory_plan import assign_places
from engine.backends.kv_formats import CacheType


def work_space(forward: Forward, kind: CacheType, prompt_bits: int, threads: int) -> tuple[int, int]:
    """Bytes of a program for each row of a step, logits' rows excluded, and bytes besides.

    Logits count once, since they are seldom needed for more than one row and untouched memory costs nothing.
    """
    constants = CountedConstants()
    lowered = LoweredPass(forward, CacheSpec(kind), prompt_bits, constants)
    places = assign_places(lowered.operations, lowered.logits)
    every_row = {
        thing.place
        for operation in lowered.operations
        for thing in operation.writes
        if isinstance(thing, Buffer) and not thing.on_logit_rows
    }
    rows = sum(size for place, size in enumerate(places) if place in every_row)
    arrays = sum(each.nbytes for each in constants.kept if isinstance(each, np.ndarray))
    words = 8 * (ARGUMENTS + OPERATION) * len(lowered.operations)
    scratch = threads * lowered.scratch
    return rows, arrays + constants.copied_bytes + words + scratch + sum(places) - rows
