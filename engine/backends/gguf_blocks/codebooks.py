"""The codebooks of GGUF's IQ types, read from resources on first use, and their sign patterns."""

from __future__ import annotations

import base64
import functools
import json

import numpy as np

import resources
from engine.backends.gguf_blocks.block_type import Bytes


@functools.cache
def grid(name: str, codes: tuple[int, ...] = ()) -> Bytes:
    """The codebook of type `name`: uint8 (entries, 4 or 8), digits, or what `codes` has for each digit."""
    entry = json.loads(resources.text("iq_grids.json"))[name]
    width = int(entry["width"])
    bits = 16 // width
    rows = np.frombuffer(base64.b64decode(entry["rows"]), "<u2").astype(np.int64)
    digits = (rows[:, None] >> bits * np.arange(width) & (1 << bits) - 1).astype(np.uint8)
    return np.array(codes, np.uint8)[digits] if codes else digits


@functools.cache
def signs(value: int) -> Bytes:
    """The bits of each byte, lowest first, as 0 (clear) or `value` (set): uint8 (256, 8)."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    return (value * bits).astype(np.uint8)


@functools.cache
def even_signs(value: int) -> Bytes:
    """As `signs` for 7 bits, with an eighth that makes the number of set bits even: uint8 (128, 8)."""
    seven = signs(value)[:128].copy()
    seven[:, 7] = np.bitwise_xor.reduce(seven[:, :7], axis=1)
    return seven
