"""The order of a matrix's tiles in memory: one after another, or several interleaved panel by panel.

A decode product reads its row of activations again for each tile. Where the row does not stay in the
first-level cache beside a tile, that costs up to a third of what the weights cost. So `MOST_INTERLEAVED`
tiles of a wide matrix share it: the first panel of each, then the second of each, and so on, all in the
order of reading.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.layouts.layout import Bytes

PANEL = 256
"""Features of a panel, except the last. Large batches unpack one at once: of 32 columns it is at most 32 KB,
so it stays in the first-level cache.
"""
MOST_INTERLEAVED = 4
_WIDE = 2560
"""Up to this many features a tile of 4-bit codes and its activations stay in 32 KB."""


def interleaved_tiles(columns: int) -> int:
    """How many tiles of a matrix with this many columns are interleaved; the last ones may be fewer."""
    return MOST_INTERLEAVED if columns > _WIDE else 1


def places(
    packed: Bytes, first: int, tiles: int, together: int, panel_bytes: int
) -> Iterator[tuple[int, Bytes, int]]:
    """Where tiles from number `first` on lie in a matrix of `tiles`, each `together` of them interleaved.

    `packed` (tiles, bytes) are whole tiles; a panel is `panel_bytes` long, the last of a tile perhaps less.
    Yields an offset in bytes, (runs, bytes), and how many bytes lie between the beginnings of two runs.
    """
    size = packed.shape[1]
    whole = size // panel_bytes * panel_bytes if together > 1 else 0
    for start in range(first // together * together, first + len(packed), together):
        some = packed[max(0, start - first) : start + together - first]
        beside, before = min(together, tiles - start), max(0, first - start)
        if whole:
            panels = some[:, :whole].reshape(len(some), -1, panel_bytes).swapaxes(0, 1)
            place = start * size + before * panel_bytes
            yield place, panels.reshape(len(panels), -1), beside * panel_bytes
        if size > whole:
            place = start * size + beside * whole + before * (size - whole)
            yield place, some[:, whole:].reshape(1, -1), 0


def tile_places(
    first: int, count: int, tiles: int, together: int, panel_bytes: int, size: int
) -> npt.NDArray[np.int64]:
    """Where `count` tiles of `size` bytes from number `first` on lie in the same matrix, (count, 3): the
    offset of a tile's first panel, how many bytes lie between the beginnings of two panels, and the offset of
    the last panel if it is shorter.
    """
    tile = np.arange(first, first + count)
    if together == 1:
        whole = size // panel_bytes * panel_bytes
        return np.stack([tile * size, np.full(count, panel_bytes), tile * size + whole], axis=1)
    start = tile // together * together
    beside, rest = np.minimum(together, tiles - start), size % panel_bytes
    first_panel = start * size + (tile - start) * panel_bytes
    last = start * size + beside * (size - rest) + (tile - start) * rest
    return np.stack([first_panel, beside * panel_bytes, last], axis=1)
