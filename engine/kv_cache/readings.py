"""How the tokens in a cache were run: the passes that their keys and values come from.

A row's last bits depend on how many rows went through the model with it. To write a reply again bit for bit,
its prompt must be read in the same passes, including those of earlier replies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from engine.core import PAGE_TOKENS

Passes = list[tuple[int, int]]
"""(first position, rows) of each pass, in order. A pass counts up to where the next one begins; 0 rows:
unknown.
"""
_KEPT = 128


def pass_end(
    begun: int, start: int, last: int, most: int, at_pages: bool, borders: Sequence[int] = (),
    whole: bool = False,
) -> int:  # fmt: skip
    """Where the pass ends that holds position `start`, when the positions from `begun` to before `last` are
    read: after up to `most` rows and, if `at_pages`, at the end of a page, where states are kept.

    What lies between two of the ascending `borders` is read apart; if it is `whole`, what lies between each
    second one and the next is so in one pass.
    """
    at = bisect_right(borders, start)
    begun = max(begun, borders[at - 1]) if at else begun
    last = min(last, borders[at]) if at < len(borders) else last
    if whole and at % 2:
        return last
    if not at_pages:
        return min(last, begun + ((start - begun) // most + 1) * most)
    end, border = min(last, (start // most + 1) * most), last // PAGE_TOKENS * PAGE_TOKENS
    return border if start < border < end else end


def planned(
    start: int, length: int, most: int, at_pages: bool = False, borders: Sequence[int] = (),
    whole: bool = False,
) -> Passes:  # fmt: skip
    """The passes that read the positions from `start` on, as `pass_end` has them, the last position alone."""
    last, at, found = length - 1, start, Passes()
    while at < last:
        end = pass_end(start, at, last, most, at_pages, borders, whole)
        found.append((at, end - at))
        at = end
    return [*found, (last, 1)] if start < length else []


def cut(passes: Passes, length: int) -> None:
    """Forget the passes over positions from `length` on."""
    del passes[bisect_left(passes, (length, 0)) :]


def again(passes: Passes, start: int, length: int, most: int, small: int) -> tuple[int, int]:
    """The next pass (first position, end) that reads positions from `start` to `length` as `passes` did, bit
    for bit: passes of up to `small` rows do not depend on each other and are joined, larger ones only have to
    stay larger, so that one may begin before `start`. Passes of up to `most` rows.
    """
    at = max(0, bisect_left(passes, (start + 1, 0)) - 1)
    begun, rows = passes[at]
    end = passes[at + 1][0] if at + 1 < len(passes) else length
    if 0 < rows <= small:
        while at + 1 < len(passes) and 0 < passes[at + 1][1] <= small and end < start + small:
            at += 1
            end = passes[at + 1][0] if at + 1 < len(passes) else length
        return start, min(end, length, start + small)
    if min(end, length) - start <= small:
        start = max(begun, min(end, length) - small - 1)
    end = min(end, length)
    cut = min(end, start + max(most, small + 1))
    return start, max(start + small + 1, end - small - 1) if 0 < end - cut <= small else cut


def smallest(passes: Passes, start: int, small: int) -> bool:
    """Whether the positions from `start` on were run in passes of up to `small` rows."""
    return all(0 < rows <= small for _, rows in passes[max(0, bisect_left(passes, (start + 1, 0)) - 1) :])


class Readings:
    """The passes of the latest sequences, by their ids and what else their keys and values depend on."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bytes], Passes] = OrderedDict()

    def of(self, key: str, ids: Sequence[int], length: int) -> Passes:
        """The passes that ran the first `length` of `ids`, which are in the cache; [(0, 0)] if not known."""
        if not length:
            return []
        prefix = _packed(ids[:length])
        for (known_key, known), passes in reversed(self._known.items()):
            if known_key == key and known.startswith(prefix):
                found = passes.copy()
                cut(found, length)
                return found
        return [(0, 0)]

    def remember(self, key: str, ids: Sequence[int], passes: Passes) -> None:
        """Remember how a sequence was run; `ids` are those whose keys and values are in the cache."""
        if not ids:
            return
        self._known[key, _packed(ids)] = passes
        self._known.move_to_end((key, _packed(ids)))
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def _packed(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.int32).tobytes()
