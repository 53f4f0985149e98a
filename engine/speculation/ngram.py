"""Drafting from repeats: the tokens that followed earlier occurrences of the last few tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.speculation.ngram_index import NgramIndex

_PLACES = 8
"""How many of the latest positions of a run are compared."""
_LONGEST_MATCH = 24
"""The longest match that is measured."""
_COMPARED = 256
"""If the last this many tokens are unchanged, so is the text before them."""
_ROW_COST = 0.3
"""The assumed cost of one more row, in passes."""
_PRIOR = 6.0
_MEMORY = 0.97
_CLASSES = (1, 2, 3, 4, 5, 6, 9, 13)
_FIRST_RATES = (0.10, 0.25, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90)
"""Prior share of right guesses after a match with at least the length of the class."""


def usual_cost(count: int) -> float:
    """The assumed cost of `count` draft tokens, in passes."""
    return _ROW_COST * count


def _class_of(length: int) -> int:
    return next(i for i in range(len(_CLASSES) - 1, -1, -1) if length >= _CLASSES[i])


class _Rates:
    """How often drafts after matches of each length are right; older drafts count less."""

    def __init__(self) -> None:
        self._right = [rate * _PRIOR for rate in _FIRST_RATES]
        self._tried = [_PRIOR] * len(_FIRST_RATES)

    def rate(self, match: int) -> float:
        """The share of right draft tokens after a match of this length."""
        i = _CLASS[min(match, _LONGEST_MATCH)]
        return self._right[i] / self._tried[i]

    def learn(self, match: int, right: bool) -> None:
        """Record whether a draft token after a match of this length was right."""
        i = _CLASS[min(match, _LONGEST_MATCH)]
        self._right[i] = self._right[i] * _MEMORY + right
        self._tried[i] = self._tried[i] * _MEMORY + 1.0


_CLASS = [0, *(_class_of(length) for length in range(1, _LONGEST_MATCH + 1))]


class NgramDrafter:
    """A `Drafter` that looks up the last `longest` to `shortest` tokens earlier in the text.

    Of several positions, the longest match wins, then the latest. Within a sequence the drafter learns how
    often matches of each length continue in the same way. It proposes the number of tokens with the highest
    value: expected right tokens minus `extra_cost`, the cost of that many in passes. Without `use_prompt`,
    only repeats within the reply count.
    """

    def __init__(
        self,
        shortest: int = 1,
        longest: int = 5,
        use_prompt: bool = True,
        reference: NgramIndex | None = None,
    ) -> None:
        """`reference` is an index of the same lengths, of texts that drafts may come from too; drafters may
        share it. Raises ValueError unless 1 <= shortest <= longest <= 5.
        """
        if not 1 <= shortest <= longest <= 5:
            raise ValueError(
                f"runs of {shortest} to {longest} tokens were asked for; 1 to 5 can be looked up, the "
                "shortest first"
            )
        self.extra_cost: Callable[[int], float] = usual_cost
        self._shortest, self._longest = shortest, longest
        self._use_prompt = use_prompt
        self._reference = reference if reference is not None else NgramIndex(shortest, longest)
        self.close()

    def preload(self, ids: Sequence[int]) -> None:
        """Add a text that drafts in every sequence may come from, until `forget`."""
        self._reference.extend(ids)

    def forget(self) -> None:
        """Drop the preloaded texts."""
        self._reference = NgramIndex(self._shortest, self._longest)

    def begin(self, ids: Sequence[int]) -> None:
        """Start a sequence; nothing of the previous one is kept."""
        self.close()
        self._prompt_tokens = len(ids)
        self._start = 0 if self._use_prompt else len(ids)
        self._own.extend(ids[self._start :])

    def close(self) -> None:
        """Forget the sequence; preloaded texts stay."""
        self._own = NgramIndex(self._shortest, self._longest)
        self._start = self._prompt_tokens = 0
        self._rates = _Rates()
        self._guess: list[int] = []
        self._guess_match = 0

    def suspend(self) -> None:
        """Nothing: it holds no pages."""

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens, each of them likely enough."""
        self._follow(ids if isinstance(ids, list) else list(ids))
        found = self._longest_match()
        if found is None:
            self._guess = []
            return []
        source, place, match = found
        guess = source[place : place + max(count, 1)]
        # a match that runs into the end of the text continues periodically
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
        return guess[:length]

    def _follow(self, ids: list[int]) -> None:
        """Bring the index up to `ids`, and learn from the last draft."""
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
        """How many indexed tokens `ids` still begins with.

        The prompt is compared only if it was truncated.
        """
        text, start = self._own.text, self._start
        end = min(len(text), max(0, len(ids) - start))
        begin = max(0, self._prompt_tokens - start - _LONGEST_MATCH)
        if end <= begin:
            begin = 0
        if text[-_COMPARED:] == ids[start + len(text) - min(_COMPARED, len(text)) : start + len(text)]:
            return end  # the usual case, without comparing all of a long reply
        if text[begin:end] == ids[start + begin : start + end]:
            return end
        return next(i for i in range(begin, end) if text[i] != ids[start + i])

    def _longest_match(self) -> tuple[list[int], int, int] | None:
        """(text, position after the match, length of the match) of the best match, or None."""
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
