"""How often and how recently each token occurred in the last part of a text, updated as the text grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.core import FIRST_PICTURE_ID
from engine.errors import EngineError
from engine.words import _

_FIRST_CAPACITY = 256


def _as_list(part: Sequence[int]) -> list[int]:
    """A slice as a list of its own; a slice of a list is returned as it is."""
    return part if isinstance(part, list) else [int(token) for token in part]


class History:
    """Unique ids and counts within the last `reach` tokens (-1: all; 0: none) plus the `fade` tokens before.

    `update` compares the new text with the previous one: each token that enters or leaves the window costs a
    few operations; any other change (rewind, edit) recounts the window.
    """

    def __init__(self, reach: int, vocabulary: int, fade: int = 0) -> None:
        self._sustained = reach
        self._fade = fade if reach > 0 else 0
        self._reach = reach + self._fade
        self._vocabulary = vocabulary
        self._window: list[int] = []
        self._end = 0  # end of the window in the text
        self._place: dict[int, int] = {}  # id -> index in the arrays
        self._ids = np.zeros(_FIRST_CAPACITY, np.int64)
        self._counts = np.zeros(_FIRST_CAPACITY, np.int64)
        self._strengths: tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64]] | None = None

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """(n,) each id that occurs, once, in no particular order."""
        return self._ids[: len(self._place)]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(n,) how often each of `ids` occurs, >= 1."""
        return self._counts[: len(self._place)]

    def strengths(self) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64]]:
        """(n,) the strength of the latest occurrence of each id (None: all 1), and (n,) its sum over all.

        An occurrence has strength 1 within the last `reach` tokens. Over the `fade` tokens before them the
        strength falls linearly; it would reach 0 at the first token outside the window.
        """
        if self._strengths is None:
            self._strengths = self._weigh()
        return self._strengths

    def _weigh(self) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64]]:
        counts = self.counts.astype(np.float64)
        faded = self._window[: max(0, len(self._window) - self._sustained)] if self._fade else []
        if not faded:
            return None, counts
        places = np.fromiter(map(self._place.__getitem__, faded), np.int64, len(faded))
        # Oldest first: the token `fade` + `reach` positions back has strength 1 / (fade + 1).
        strengths = np.arange(self._fade - len(faded) + 1, self._fade + 1) / (self._fade + 1)
        whole = counts - np.bincount(places, minlength=counts.shape[0])
        latest = np.zeros_like(counts)
        latest[places] = strengths  # of repeated places the last assignment wins: the latest occurrence
        return np.where(whole > 0, 1.0, latest), whole + np.bincount(places, strengths, counts.shape[0])

    def update(self, text: Sequence[int]) -> None:
        """Follow `text`, the whole text so far. Raises EngineError for an id outside the vocabulary."""
        self._strengths = None
        end = len(text)
        start = 0 if self._reach < 0 else max(0, end - self._reach)
        old_start = self._end - len(self._window)
        grown = (
            old_start <= start <= self._end <= end and _as_list(text[old_start : self._end]) == self._window
        )
        if not grown or end - self._end > _FIRST_CAPACITY:
            self._count(_as_list(text[start:]))
        else:
            new = _as_list(text[self._end :])
            self._check(new)
            for token in self._window[: start - old_start]:
                self._remove(token)
            for token in new:
                self._add(token)
            del self._window[: start - old_start]
            self._window.extend(new)
        self._end = end

    def _check(self, ids: list[int]) -> None:
        if ids and (min(ids) < 0 or max(ids) >= self._vocabulary):
            known = (id for id in ids if id < FIRST_PICTURE_ID)  # tokens of pictures are never candidates
            wrong = next((token for token in known if not 0 <= token < self._vocabulary), None)
            if wrong is None:
                return
            raise EngineError(
                _(
                    "The text contains token id {wrong}, but the model's ids go from 0 to "
                    "{vocabulary}; the model and the tokenizer do not match. Load the model from "
                    "its own files.",
                    wrong=wrong,
                    vocabulary=self._vocabulary - 1,
                )
            )

    def _count(self, window: list[int]) -> None:
        self._check(window)
        ids, counts = np.unique(np.asarray(window, np.int64), return_counts=True)
        capacity = max(_FIRST_CAPACITY, 2 * len(ids))
        self._ids, self._counts = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        self._ids[: len(ids)], self._counts[: len(ids)] = ids, counts
        self._place = {int(token): index for index, token in enumerate(ids)}
        self._window = window

    def _add(self, token: int) -> None:
        place = self._place.get(token)
        if place is None:
            place = self._place[token] = len(self._place)
            if place == len(self._ids):
                self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
                self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
            self._ids[place], self._counts[place] = token, 0
        self._counts[place] += 1

    def _remove(self, token: int) -> None:
        place = self._place[token]
        self._counts[place] -= 1
        if not self._counts[place]:
            last = len(self._place) - 1
            moved = int(self._ids[last])
            self._ids[place], self._counts[place] = moved, self._counts[last]
            self._place[moved] = place
            del self._place[token]
