"""How the tokens in a cache were run: the passes that their keys and values come from.

A row's last bits depend on whether it went through the model with many others or with few. So that a reply
can be written again bit for bit, its prompt has to be read in the passes it was read in, those of earlier
replies included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

Passes = list[tuple[int, int]]
"""(first position, rows) of each pass, in order.

Each counts up to where the next one begins; 0 rows say that it is not known.
"""
_KEPT = 128


def planned(start: int, length: int, most: int) -> Passes:
    """The passes that read the positions from `start` on: up to `most` rows each, the last position alone."""
    last = length - 1
    starts = [*range(start, last, most), last] if start < length else []
    return [(at, min(most, last - at) if at < last else 1) for at in starts]


def cut(passes: Passes, length: int) -> None:
    """Forget the passes over positions from `length` on."""
    del passes[bisect_left(passes, (length, 0)) :]


class Readings:
    """Remembers the passes of the latest sequences, under their ids and what else their keys and values
    depend on.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bytes], Passes] = OrderedDict()

    def of(self, key: str, ids: Sequence[int], length: int) -> Passes:
        """The passes that the first `length` of `ids`, found in the cache, come from; unknown where no
        latest sequence had them.
        """
        if not length:
            return []
        wanted = _packed(ids[:length])
        for (known_key, known), passes in reversed(self._known.items()):
            if known_key == key and known.startswith(wanted):
                found = passes.copy()
                cut(found, length)
                return found
        return [(0, 0)]

    def remember(self, key: str, ids: Sequence[int], passes: Passes) -> None:
        """A sequence was run so; `ids` are those whose keys and values are in the cache."""
        if not ids:
            return
        self._known[key, _packed(ids)] = passes
        self._known.move_to_end((key, _packed(ids)))
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def _packed(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.int32).tobytes()
