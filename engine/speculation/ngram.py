"""Guessing from repeats: the tokens that followed earlier occurrences of the last few tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.speculation.drafter import Proposal
from engine.speculation.ngram_index import NgramIndex

_PLACES = 8
"""The number of latest places of a run that are compared."""
_LONGEST_MATCH = 24
"""A match is not followed further back than this."""
_COMPARED = 256
"""If the last this many tokens are unchanged, the text before them is too."""
_ROW_COST = 0.3
"""The assumed cost of one more row, in passes."""
_PRIOR = 6.0
_MEMORY = 0.97
_CLASSES = (1, 2, 3, 4, 5, 6, 9, 13)
_FIRST_RATES = (0.10, 0.25, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90)
"""Prior share of right guesses after a match of at least as many tokens as the class says."""


def usual_cost(count: int) -> float:
    """The assumed cost of this many guesses, in passes."""
    return _ROW_COST * count


def _class_of(length: int) -> int:
    return next(i for i in range(len(_CLASSES) - 1, -1, -1) if length >= _CLASSES[i])


class _Rates:
    """How often guesses after matches of each length were right; older guesses count less."""

    def __init__(self) -> None:
        self._right = [rate * _PRIOR for rate in _FIRST_RATES]
        self._tried = [_PRIOR] * len(_FIRST_RATES)

    def rate(self, match: int) -> float:
        """The share of right guesses after a match of this many tokens."""
        i = _CLASS[min(match, _LONGEST_MATCH)]
        return self._right[i] / self._tried[i]

    def learn(self, match: int, right: bool) -> None:
        """A guess after a match of this many tokens was right or wrong."""
        i = _CLASS[min(match, _LONGEST_MATCH)]
        self._right[i] = self._right[i] * _MEMORY + right
        self._tried[i] = self._tried[i] * _MEMORY + 1.0


_CLASS = [0, *(_class_of(length) for length in range(1, _LONGEST_MATCH + 1))]


class NgramDrafter:
    """A `Drafter` that looks up the last `longest` to `shortest` tokens earlier in the text.

    Of several places, the longest match counts, then the latest. Within a sequence it learns how often
    matches of each length continue alike, and proposes as many tokens as are worth the most: the expected
    number of right ones less `extra_cost`, which gives the cost of a number of guesses in passes. Without
    `use_prompt`, only the reply's own repeats are guessed.
    """

    def __init__(self, shortest: int = 1, longest: int = 5, use_prompt: bool = True) -> None:
        """1 <= shortest <= longest <= 5, else ValueError."""
        if not 1 <= shortest <= longest <= 5:
            raise ValueError(
                f"runs of {shortest} to {longest} tokens were asked for; 1 to 5 can be looked up, the "
                "shortest first"
            )
        self.extra_cost: Callable[[int], float] = usual_cost
        self._shortest, self._longest = shortest, longest
        self._use_prompt = use_prompt
        self._reference = NgramIndex(shortest, longest)
        self.close()

    def preload(self, ids: Sequence[int]) -> None:
        """Add a text whose repeats are guessed in every sequence, until `forget`."""
        self._reference.extend(ids)

    def forget(self) -> None:
        """Drop what was preloaded."""
        self._reference = NgramIndex(self._shortest, self._longest)

    def begin(self, ids: Sequence[int]) -> None:
        """Start a sequence; nothing of the one before is kept."""
        self.close()
        self._prompt_tokens = len(ids)
        self._start = 0 if self._use_prompt else len(ids)
        self._own.extend(ids[self._start :])

    def close(self) -> None:
        """Forget the sequence; what was preloaded stays."""
        self._own = NgramIndex(self._shortest, self._longest)
        self._start = self._prompt_tokens = 0
        self._rates = _Rates()
        self._guess: list[int] = []
        self._guess_match = 0

    def propose(self, ids: Sequence[int], count: int) -> list[Proposal]:
        """At most `count` guesses, each of them likely enough; see `Drafter.propose`."""
        self._follow(ids if isinstance(ids, list) else list(ids))
        found = self._longest_match()
        if found is None:
            self._guess = []
            return []
        source, place, match = found
        guess = source[place : place + max(count, 1)]
        # the text repeats itself up to its end, and so does the guess
        while source is self._own.text and len(guess) < count:
            guess.append(guess[place + len(guess) - len(source)])
        self._guess, self._guess_match = guess, match
        likely, length, expected, most = 1.0, 0, 0.0, 0.0
        for number in range(1, min(count, len(guess)) + 1):
            likely *= self._rates.rate(match + number - 1)
            expected += likely
            gain = expected - self.extra_cost(number)
            if gain >= most:
                most, length = gain, number
        return [Proposal(token) for token in guess[:length]]

    def _follow(self, ids: list[int]) -> None:
        """Bring the index up to `ids`, and learn from the last guess."""
        own = self._own
        known = self._known(ids)
        if known < len(own.text):
            own.cut(known)
            self._guess = []
        new = ids[self._start + known :]
        for offset, (token, guess) in enumerate(zip(new, self._guess, strict=False)):
            self._rates.learn(self._guess_match + offset, token == guess)
            if token != guess:
                break
        own.extend(new)

    def _known(self, ids: list[int]) -> int:
        """How much of the indexed text `ids` still begins with.

        The prompt is only looked at where it was cut.
        """
        text, start = self._own.text, self._start
        end = min(len(text), max(0, len(ids) - start))
        begin = max(0, self._prompt_tokens - start - _LONGEST_MATCH)
        if end <= begin:
            begin = 0
        if text[-_COMPARED:] == ids[start + len(text) - min(_COMPARED, len(text)) : start + len(text)]:
            return end  # the usual case, which does not compare all of a long reply
        if text[begin:end] == ids[start + begin : start + end]:
            return end
        return next(i for i in range(begin, end) if text[i] != ids[start + i])

    def _longest_match(self) -> tuple[list[int], int, int] | None:
        """(text, place of what followed, length of the match) of the best match, or None."""
        own, best = self._own, None
        tail = own.text[-_LONGEST_MATCH:]
        best_match = 0
        keys = list(enumerate(own.keys(tail), self._shortest))
        for index in (own, self._reference):
            for k, key in reversed(keys):
                if k < best_match:
                    break
                places = index.places(k, key, _PLACES)
                for place in places:
                    match = _matching(index.text, place, tail)
                    if match > best_match:
                        best, best_match = (index.text, place), match
                if places:
                    break
        return None if best is None or best_match < self._shortest else (*best, best_match)


def _matching(text: list[int], place: int, tail: list[int]) -> int:
    """How many tokens before `place` equal those at the end of `tail`."""
    count, most = 0, min(place, len(tail))
    while count < most and text[place - 1 - count] == tail[-1 - count]:
        count += 1
    return count
