"""The codebooks of GGUF's IQ types, read from resources on first use, and their sign patterns."""

from __future__ import annotations

import base64
import functools
import json

import numpy as np
import numpy.typing as npt

import resources

Words = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
"""Rows of bytes as numbers, the first byte the lowest: those are looked up and combined at once."""


@functools.cache
def grid(name: str, codes: tuple[int, ...] = ()) -> Words:
    """The codebook of type `name` (entries,): rows of 4 or 8 digits, or what `codes` has for each digit."""
    entry = json.loads(resources.text("iq_grids.json"))[name]
    width = int(entry["width"])
    bits = 16 // width
    rows = np.frombuffer(base64.b64decode(entry["rows"]), "<u2").astype(np.int64)
    digits = (rows[:, None] >> bits * np.arange(width) & (1 << bits) - 1).astype(np.uint8)
    return (np.array(codes, np.uint8)[digits] if codes else digits).view(f"<u{width}")[:, 0]


@functools.cache
def signs(value: int) -> npt.NDArray[np.uint64]:
    """The bits of each byte, lowest first, as bytes 0 (clear) or `value` (set): (256,)."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    rows: npt.NDArray[np.uint64] = (value * bits).astype(np.uint8).view("<u8").reshape(-1)
    return rows


@functools.cache
def even_signs(value: int) -> npt.NDArray[np.uint64]:
    """As `signs` for 7 bits, with an eighth that makes the number of set bits even: (128,)."""
    odd = np.array([i.bit_count() % 2 for i in range(128)])
    rows: npt.NDArray[np.uint64] = signs(value)[np.arange(128) + 128 * odd]
    return rows
