"""Loops: a reply whose last tokens are one passage over and over."""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.conditions import Loop

_PROBES = 8


class LoopWatch:
    """Looks for loops after each token. Has no state, so that it is right after tokens have been taken back."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = tuple(loops)

    def find(self, ids: Sequence[int], new_from: int) -> tuple[Loop, list[int]] | None:
        """The first loop that the end of the reply ids[new_from:] fulfils, and the ids of the repeated passage.

        The last `window` tokens are a passage of P tokens repeated, P at most window / repeats; the smallest P counts. The
        last repetition may be cut short. Costs a look at the places in the last window / repeats where the last token
        stands, a whole window only where a few samples agree.
        """
        for loop in self._loops:
            if len(ids) - new_from >= loop.window and (passage := _passage(ids, loop)) is not None:
                return loop, passage
        return None


def _passage(ids: Sequence[int], loop: Loop) -> list[int] | None:
    """The smallest passage of which the last `loop.window` ids are at least `loop.repeats` repetitions."""
    size, longest = loop.window, loop.window // loop.repeats
    recent = list(ids[-longest - 1 :])
    recent.reverse()
    end, period = recent[0], 0
    try:
        while True:
            period = recent.index(end, period + 1)
            if _samples_agree(ids, size, period) and ids[-size + period :] == ids[-size:-period]:
                return list(ids[-size : len(ids) - size + period])
    except ValueError:  # the last token stands nowhere else
        return None


def _samples_agree(ids: Sequence[int], size: int, period: int) -> bool:
    """Whether ids at a few places of the last `size` are the same `period` places further on."""
    last = len(ids) - period - 1
    span = size - period - 1
    return all(ids[last - span * i // _PROBES] == ids[last - span * i // _PROBES + period] for i in range(1, _PROBES + 1))
