"""The codebooks of GGUF's IQ types, read from resources on first use, and their sign patterns."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import resources
from engine.lazy_dataclass import dataclass

Words = npt.NDArray[np.uint64]
"""Rows of 4 or 8 bytes as numbers, the first byte the lowest: those are looked up and combined at once."""


@dataclass(frozen=True)
class BitFields:
    """A number for each group of a block, put together from runs of bits, the lowest first.

    A run has the number of its first bit in the block for each group, and how many bits it has: together with
    those of the byte before it, at most 16. `plus` has further bits of each group's number, or is empty.
    """

    runs: tuple[tuple[tuple[int, ...], int], ...]
    plus: tuple[int, ...] = ()

    def read(self, blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
        """The numbers (B, groups) of blocks (B, bytes)."""
        groups, done = len(self.runs[0][0]), 0
        numbers = np.tile(np.array(self.plus or (0,) * groups, np.intp), (len(blocks), 1))
        for first, bits in self.runs:
            byte, shift = np.divmod(np.array(first), 8)
            word = blocks[:, byte].astype(np.uint16)
            if (shift + bits > 8).any():
                word |= blocks[:, np.minimum(byte + 1, blocks.shape[1] - 1)].astype(np.uint16) << np.uint16(8)
            found = word >> shift.astype(np.uint16) & np.uint16((1 << bits) - 1)
            numbers |= found.astype(np.intp) << done
            done += bits
        return numbers


@dataclass(frozen=True)
class Codebook:
    """How the codes of a block are looked up: `width` (4 or 8) of them for each group, as bytes of the words
    of `rows` (R,), by the group's `index`, together with those of `signs` (S,), by its `sign`.
    """

    width: int
    index: BitFields
    rows: Callable[[], Words]
    sign: BitFields | None = None
    signs: Callable[[], Words] | None = None

    def codes(self, blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The codes (B, values) of blocks (B, bytes)."""
        found = self.rows()[self.index.read(blocks)]
        if self.sign is not None and self.signs is not None:
            found |= self.signs()[self.sign.read(blocks)]
        return found.astype(f"<u{self.width}").view(np.uint8)


@functools.cache
def grid(name: str, codes: tuple[int, ...] = ()) -> Words:
    """The codebook of type `name` (entries,): rows of 4 or 8 digits, or what `codes` has for each digit."""
    entry = json.loads(resources.text("iq_grids.json"))[name]
    width = int(entry["width"])
    bits = 16 // width
    packed = np.frombuffer(base64.b64decode(entry["rows"]), "<u2").astype(np.int64)
    digits = (packed[:, None] >> bits * np.arange(width) & (1 << bits) - 1).astype(np.uint8)
    rows = (np.array(codes, np.uint8)[digits] if codes else digits).view(f"<u{width}")[:, 0]
    return rows.astype(np.uint64)


@functools.cache
def signs(value: int) -> Words:
    """The bits of each byte, lowest first, as bytes 0 (clear) or `value` (set): (256,)."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    rows: Words = (value * bits).astype(np.uint8).view("<u8").reshape(-1)
    return rows


@functools.cache
def signs_of_four(value: int) -> Words:
    """As `signs` for 4 bits: (16,)."""
    return signs(value)[:16]


@functools.cache
def even_signs(value: int) -> Words:
    """As `signs` for 7 bits, with an eighth that makes the number of set bits even: (128,)."""
    odd = np.array([i.bit_count() % 2 for i in range(128)])
    rows: Words = signs(value)[np.arange(128) + 128 * odd]
    return rows


@functools.cache
def even_signs_in_fours(value: int) -> Words:
    """The first four bytes of each of `even_signs`, then the last four of each: (256,)."""
    rows = even_signs(value)
    return np.concatenate([rows & np.uint64(0xFFFFFFFF), rows >> np.uint64(32)])
