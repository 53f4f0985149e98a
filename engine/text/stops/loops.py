"""Loop detection: replies whose last tokens repeat one passage."""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.stops.conditions import Loop

_TRIES = 8


class LoopWatch:
    """Checks for loops after each token. It has no state, so tokens can be taken back."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = tuple(loops)

    def find(self, ids: Sequence[int], new_from: int) -> tuple[Loop, list[int]] | None:
        """The first loop at the end of the reply ids[new_from:], and the ids of the repeated passage.

        The last `window` tokens are a passage of P tokens repeated, with P at most window / repeats; the
        smallest P wins. The last repetition may be incomplete.
        """
        for loop in self._loops:
            if len(ids) - new_from >= loop.window and (passage := _passage(ids, loop)) is not None:
                return loop, passage
        return None


def _passage(ids: Sequence[int], loop: Loop) -> list[int] | None:
    """The shortest passage that the last `loop.window` ids repeat at least `loop.repeats` times, or None."""
    size, longest = loop.window, loop.window // loop.repeats
    if not _likely(ids, size, longest):
        return None
    # With ids as characters, one native search suffices: the text after the longest possible first passage
    # must also occur `period` characters earlier; its last earlier occurrence gives the smallest period.
    text = "".join(map(chr, ids[-size:]))
    period = longest - text.rfind(text[longest:], 0, size - 1)
    if period > longest or text[period:] != text[:-period]:
        return None
    return list(ids[-size : len(ids) - size + period])


def _likely(ids: Sequence[int], size: int, longest: int) -> bool:
    """A cheap check by samples at the nearest earlier occurrences of the last id; True if there are many."""
    recent = list(ids[-longest - 1 :])
    recent.reverse()
    period, samples = 0, (size // 2, size // 4 or 1)
    for _ in range(_TRIES):
        try:
            period = recent.index(recent[0], period + 1)
        except ValueError:
            return False
        if ids[-size] == ids[period - size] and all(ids[-i] == ids[-i - period] for i in samples):
            return True
    return True
