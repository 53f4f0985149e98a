"""How many tokens to draft next, from the acceptance rate, the cost of passes and whether drafting pays."""

from __future__ import annotations

from collections import deque
from statistics import median, median_low

_TIMES = 9
"""Times kept for each length; their median counts because single passes vary on a busy machine."""
_SURE = 3
"""Passes after which a median is trusted; with fewer, the cost is estimated from other lengths."""
_TRY_EVERY = 8
"""Every this many drafted passes, a length with too few measurements is tried."""
_OLD = 100
_WINDOW = 32
"""Drafted passes over which the speed is measured."""
_MEMORY = 0.95
_FIRST_RATE, _FIRST_WEIGHT = 0.7, 4.0
GUESS_COST = 0.25
"""Cost of one drafted token in plain passes, until it is measured."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 128, 2048
_PATIENCE, _MOST_PATIENCE, _RISK = 3.0, 24.0, 0.1
"""Drafting pauses after losing the time of this many plain passes (least, most), or this share of gains."""

_MIN_COST = 0.05
"""The least cost of a drafted token, so that hopeless ones are not proposed."""

_START = (True, False) * 3 + (True,) * 12
"""Whether to draft in the first passes; the plain ones between them are measured."""
_START_FREE = (True,) * 18
"""Here passes without a draft count as plain ones."""
_PROBE = (True,) * 16
_GOING = (True,) * 24 + (False,)
_ALWAYS = (True,) * 63 + (False,)


class DraftLengthController:
    """Decides the length of each draft for one drafter, over any number of sequences.

    Call `next_length` before each pass and `record` after it. With `adaptive`, the length maximises expected
    tokens per measured time, and drafting pauses while it is slower than plain passes, to be retried after
    ever longer pauses. Otherwise the length is always `longest`, except in a few plain passes for measuring.

    `free`: proposing nothing costs nothing, as with n-grams; such a drafter shortens its drafts itself, by
    `extra_cost`. `guess_cost` is the cost of a drafted token in plain passes until it is measured.
    """

    def __init__(
        self, longest: int, adaptive: bool = True, *, free: bool = False, guess_cost: float = GUESS_COST
    ) -> None:
        if longest < 1:
            raise ValueError(f"the longest guess has at least 1 token, not {longest}")
        self.longest = longest
        self.adaptive = adaptive
        self.free = free
        self._guess_cost = guess_cost
        self._plain: deque[float] = deque(maxlen=_TIMES)
        # by drafted tokens, of the passes for which a draft was requested
        self._times: dict[int, deque[float]] = {}
        self._medians: dict[int, float] | None = {}  # of the above; None until computed
        self._used: dict[int, int] = {}  # the last pass of each of these
        self._count = 0
        self._window: deque[tuple[int, int]] = deque(maxlen=_WINDOW)  # (drafted, new tokens) of these passes
        self._right, self._tested = _FIRST_RATE * _FIRST_WEIGHT, _FIRST_WEIGHT
        start = _START_FREE if free else _START
        self._params = deque(start if adaptive else (True, False, True, False))
        self._state = "trying"  # then "going" or "pausing"
        self._pause = _SHORTEST_PAUSE
        self._won = 0.0  # by drafting so far, in plain passes
        self._lost = 0.0  # since drafting was last tried, or since it last led
        self._asked = 0

    @property
    def on(self) -> bool:
        """False while drafting pauses because it was slower than plain passes."""
        return self._state != "pausing"

    @property
    def acceptance(self) -> float:
        """The running probability that a drafted token is accepted, given that those before it were."""
        return self._right / self._tested

    @property
    def speedup(self) -> float:
        """Tokens/s of the latest drafted passes relative to plain passes; 0 until both are measured."""
        known = len(self._plain) > 1 and any(guessed for guessed, _ in self._window)
        return self._ratio(self._measured()) if known else 0.0

    def extra_cost(self, guessed: int) -> float:
        """What `guessed` drafted tokens add to a pass, in plain passes: measured if known, else assumed."""
        costs = {count: cost for count, cost in self._measured().items() if len(self._times[count]) >= _SURE}
        return max(_MIN_COST * guessed, self._cost(costs, guessed) - 1.0)

    def next_length(self) -> int:
        """How many tokens to draft before the next pass; 0 for a plain pass."""
        if not self._params:
            self._plan_on()
        if not self._params[0]:
            self._asked = 0
        else:
            self._asked = self._length_to_try() if self.adaptive and not self.free else self.longest
        return self._asked

    def record(self, drafted: int, accepted: int, new_tokens: int, seconds: float) -> None:
        """Record a pass of `seconds`: `drafted` tokens proposed, `accepted` kept, `new_tokens` generated."""
        if self._params:
            self._params.popleft()
        self._medians = None
        if not self._asked or (self.free and not drafted):
            self._plain.append(seconds)
        else:
            self._times.setdefault(drafted, deque(maxlen=_TIMES)).append(seconds)
            self._used[drafted] = self._count = self._count + 1
            self._forget_old()
        if not self._asked:
            return
        tested = min(accepted + 1, drafted)
        fade = _MEMORY**tested
        self._right, self._tested = self._right * fade + accepted, self._tested * fade + tested
        self._window.append((drafted, new_tokens))
        loss = self._cost(self._measured(), drafted) - new_tokens
        self._won = max(0.0, self._won - loss)
        self._lost = self._lost + loss if self._state == "trying" else max(0.0, self._lost + loss)
        if self.adaptive and self._lost > self._patience() and len(self._plain) > 1:
            self._begin_pause()

    def _forget_old(self) -> None:
        """Drop times of lengths not used lately: a wrong time would keep its length from being tried."""
        for guessed in [guessed for guessed, last in self._used.items() if self._count - last > _OLD]:
            del self._times[guessed], self._used[guessed]

    def _patience(self) -> float:
        return max(_PATIENCE, min(_MOST_PATIENCE, _RISK * self._won)) if self._state == "going" else _PATIENCE

    def _plan_on(self) -> None:
        """Plan the next passes."""
        if not self.adaptive:
            self._params.extend(_ALWAYS)
        elif self._state == "pausing":
            self._state, self._lost = "trying", 0.0
            self._window.clear()
            self._params.extend(_PROBE)
        elif self._state == "trying" and self._lost > 0.0:
            self._begin_pause()
        else:
            if self._state == "trying":
                self._state, self._pause, self._lost = "going", _SHORTEST_PAUSE, 0.0
            self._params.extend(_GOING)

    def _begin_pause(self) -> None:
        self._state = "pausing"
        self._params = deque((False,) * self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _length_to_try(self) -> int:
        """The best length, or now and then a neighbour whose cost is only estimated, to measure it."""
        best = self._best_length()
        if self._count % _TRY_EVERY:
            return best
        beside = (length for length in (best + 1, best - 1) if 1 <= length <= self.longest)
        return next((length for length in beside if len(self._times.get(length, ())) < _SURE), best)

    def _best_length(self) -> int:
        """The length with the most expected tokens for its cost."""
        rate, costs = self.acceptance, self._measured()
        best, best_gain, tokens = 1, 0.0, 1.0
        for length in range(1, self.longest + 1):
            tokens += rate**length
            gain = tokens / self._cost(costs, length)
            if gain > best_gain:
                best, best_gain = length, gain
        return best

    def _ratio(self, costs: dict[int, float]) -> float:
        """Tokens of the window divided by the time they took in plain passes."""
        spent = sum(self._cost(costs, guessed) for guessed, _ in self._window)
        return sum(tokens for _, tokens in self._window) / spent if spent else 1.0

    def _measured(self) -> dict[int, float]:
        """Median times in plain passes, by drafted tokens; empty until plain passes are measured."""
        if self._medians is None:
            plain = median(self._plain) if len(self._plain) > 1 else 0.0
            sure = {
                guessed: times for guessed, times in self._times.items() if len(times) >= _SURE
            } or self._times
            self._medians = (
                {guessed: median_low(times) / plain for guessed, times in sure.items()} if plain > 0 else {}
            )
        return self._medians

    def _cost(self, costs: dict[int, float], guessed: int) -> float:
        """The cost of a pass with `guessed` drafted tokens: known, or interpolated from known ones."""
        if guessed in costs:
            return costs[guessed]
        if not guessed:
            return 1.0
        below = max((k for k in costs if k < guessed), default=0)
        above = min((k for k in costs if k > guessed), default=0)
        low = costs.get(below, 1.0)
        if above:
            return low + (costs[above] - low) * (guessed - below) / (above - below)
        slope = (low - 1.0) / below if below else self._guess_cost
        return low + max(0.0, slope) * (guessed - below)
