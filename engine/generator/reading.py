"""How the prompt of one row is divided into passes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from engine.core import FIRST_PICTURE_ID
from engine.kv_cache.readings import Passes, again, pass_end, planned
from engine.models.paged import PagedCache


class Reading:
    """The passes over texts that begin with `prompt`. The tokens of pictures are read apart from the text
    around them, and in one pass if they attend to each other. Of a `prefix`, this many tokens, all attend to
    each other: they are read in one pass, the last one included.
    """

    def __init__(self, cache: PagedCache, prompt: Sequence[int]) -> None:
        self._cache, self._borders = cache, cache.borders(prompt)
        self.prefix = len(prompt) if self._borders and cache.reads_prefixes else 0
        windows = cache.model.config.windows if self.prefix else ()
        self._alone = all(not window or window >= self.prefix for window in windows)
        """Whether the last token of a prefix sees all of it where it is read alone, too."""
        digest = sha256(np.asarray(prompt, np.int32).tobytes()).hexdigest() if self.prefix else ""
        self.key = f" prefix {digest}" if digest else ""
        """What keys and values depend on besides the ids before them: those of a prefix on all of it."""

    def whole(self, ids: Sequence[int], at: int) -> tuple[int, int] | None:
        """The beginning and the end of the positions that are read in one pass with `at`; None if any pass
        may read it.
        """
        if self.prefix:
            return (0, self.prefix) if at < self.prefix - self._alone else None
        if at >= len(ids) or ids[at] < FIRST_PICTURE_ID or not self._cache.bidirectional_pictures:
            return None
        after = bisect_right(self._borders, at)
        return self._borders[after - 1], self._borders[after]

    def planned(self, start: int, length: int) -> Passes:
        """The passes that read the first `length` tokens from `start` on, the last one alone."""
        cache = self._cache
        if start < self.prefix - 1:
            return [(start, self.prefix - start), *self.planned(self.prefix, length)]
        return planned(
            start, length, cache.rows, cache.recurrent, self._borders, cache.bidirectional_pictures
        )

    def most(self, at: int) -> int:
        """The most rows of a pass that begins at a position."""
        after = bisect_right(self._borders, at)
        if self._cache.bidirectional_pictures and after % 2:
            return max(self._cache.rows, self._borders[after] - at)
        return self._cache.rows

    def size(self, ids: Sequence[int], begun: int, start: int, chunk: int) -> int:
        """Rows of the next pass over a prompt from `begun` on, which is at `start`.

        Passes of `chunk` rows divide those of the cache's rows so that every row gets the same bits: no piece
        of a large batch is a small one. Routed experts that are not quantised to integers are the exception:
        of a shorter pass, an expert's rows may be a small batch.
        """
        if start == (last := len(ids) - 1):
            return 1
        if start < self.prefix:
            return self.prefix - start
        cache, small = self._cache, self._cache.program.batch_rows
        whole = cache.bidirectional_pictures
        left = pass_end(begun, start, last, cache.rows, cache.recurrent, self._borders, whole) - start
        if left <= max(chunk, 2 * small + 1) or self.whole(ids, start):
            return left
        return min(max(chunk, small + 1), left - small - 1)

    def again(self, ids: Sequence[int], passes: Passes, start: int, chunk: int) -> tuple[int, int]:
        """The next pass (first position, end) that reads positions from `start` on as `passes` did."""
        if whole := self.whole(ids, start):
            return whole
        first, end = again(passes, start, len(ids), chunk, self._cache.program.batch_rows)
        after = bisect_right(self._borders, start)
        first = max(first, self._borders[after - 1]) if after else first
        end = min(end, self._borders[after]) if after < len(self._borders) else end
        # a state cannot go back to the middle of a pass
        return start if self._cache.recurrent else first, end
