"""Which bit of a file's rows each bit of their packed form is, found out by packing a few patterns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]

_PROOFS = 32
"""Random tiles that must be packed as the layout packs them."""


def bit_sources(packed: Callable[[Bytes], Bytes], bits: int) -> tuple[Words, Bytes]:
    """The number of each packed bit's source, -1 for none; and whether it is inverted, or set without one.

    `packed` maps tiles of `bits` bits, uint8 (tiles, bits / 8), to their packed form, uint8 (tiles, bytes).
    The answer is right if each packed bit is one of the tile's bits, as it is or inverted, or always the
    same. Whether it is, `same_by_moves` shows.
    """
    numbers = np.arange(1, bits + 1)
    patterns = [numbers >> p & 1 for p in range(bits.bit_length())]
    raw = np.packbits(np.array([0 * numbers, *patterns], np.uint8), axis=1, bitorder="little")
    made = np.unpackbits(_silently(packed, raw), axis=1, bitorder="little")
    sources = np.zeros(made.shape[1], np.int64)
    for p, bit in enumerate(made[1:] ^ made[0]):
        sources |= bit.astype(np.int64) << p
    return sources - 1, made[0]


def same_by_moves(packed: Callable[[Bytes], Bytes], moved: Callable[[Bytes], Bytes], bits: int) -> bool:
    """Whether random tiles of this many bits are packed by `moved` as by `packed`."""
    tiles = np.random.default_rng(1).integers(0, 256, (_PROOFS, bits // 8), np.uint8)
    return bool(np.array_equal(moved(tiles).reshape(-1), _silently(packed, tiles).reshape(-1)))


def _silently(packed: Callable[[Bytes], Bytes], tiles: Bytes) -> Bytes:
    with np.errstate(all="ignore"):  # patterns may be no numbers
        return packed(tiles)


def word_offsets(size: int) -> list[int]:
    """Where the words of 4 bytes begin with which a stretch of `size` bytes, at least 4, is read whole."""
    return [*range(0, size - 3, 4), *([size - 4] if size % 4 else [])]


def terms(sources: Sequence[int], size: int) -> list[tuple[int, int, int]]:
    """How a lane is made of the words of stretches, `word_offsets` of `size` bytes for each.

    `sources` are the numbers of its bits' sources in the stretches, one after another; -1 for none. A term is
    the number of a word, how far it is rotated to the right, and a mask.
    """
    words, masks = len(word_offsets(size)), defaultdict[tuple[int, int], int](int)
    for bit, source in enumerate(sources):
        if source >= 0:
            stretch, inside = divmod(source, 8 * size)
            word = inside // 32
            place = inside - 32 * word if 4 * word + 4 <= size else inside - 8 * (size - 4)
            masks[stretch * words + word, (place - bit) % 32] |= 1 << bit
    return [(*key, mask) for key, mask in masks.items()]
