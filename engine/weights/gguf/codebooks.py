"""The codebooks of GGUF's IQ types, read from resources on first use, and their sign patterns."""

from __future__ import annotations

import base64
import functools
import json

import numpy as np

import resources
from engine.weights.format import Floats


@functools.cache
def grid(name: str) -> Floats:
    """The codebook of type `name`: float32 (entries, 4 or 8)."""
    entry = json.loads(resources.text("iq_grids.json"))[name]
    width = int(entry["width"])
    bits = 16 // width
    rows = np.frombuffer(base64.b64decode(entry["rows"]), "<u2").astype(np.int64)
    digits = rows[:, None] >> bits * np.arange(width) & (1 << bits) - 1
    table: Floats = np.array(entry["levels"], np.float32)[digits]
    return table


@functools.cache
def signs() -> Floats:
    """The bits of each byte, lowest first, as +1 (clear) or -1 (set): float32 (256, 8)."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    return (1 - 2 * bits).astype(np.float32)


@functools.cache
def even_signs() -> Floats:
    """As `signs` for 7 bits, with an eighth that makes the number of set bits even: float32 (128, 8)."""
    seven = signs()[:128].copy()
    seven[:, 7] = seven[:, :7].prod(axis=1)
    return seven
