"""What ends a reply: stop conditions, and the rules they combine to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.settings import StopSettings
from engine.text.stops.regex import Expression
from engine.words import _


@dataclass(frozen=True, slots=True)
class StopTokens:
    """The reply ends at any of these token ids; their text is not shown."""

    ids: frozenset[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozenset(_whole(_("A stop token"), id, 0) for id in self.ids))
        _some("StopTokens", self.ids)


@dataclass(frozen=True, slots=True)
class StopStrings:
    """The reply ends before the first of these strings."""

    strings: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "strings", _texts(self.strings))
        _some("StopStrings", self.strings)
        for string in self.strings:
            if not isinstance(string, str) or not string:
                raise BadSetting(
                    _(
                        "A stop string is {string!r}, but it must be a text of at least one character.",
                        string=string,
                    )
                )


@dataclass(frozen=True, slots=True)
class StopRegex:
    """The reply ends at the first nonempty match of this expression (syntax of the `regex` package)."""

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern:
            raise BadSetting(
                _(
                    "A stop expression is {pattern!r}, but it must be a regular expression.",
                    pattern=self.pattern,
                )
            )
        Expression(self.pattern)


@dataclass(frozen=True, slots=True)
class MaxTokens:
    """The reply ends after this many tokens."""

    count: int

    def __post_init__(self) -> None:
        _whole("MaxTokens", self.count, 1)


@dataclass(frozen=True, slots=True)
class MinTokens:
    """Stop tokens are blocked before this many tokens."""

    count: int

    def __post_init__(self) -> None:
        _whole("MinTokens", self.count, 0)


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The reply ends this many seconds after its first token."""

    seconds: float

    def __post_init__(self) -> None:
        number = isinstance(self.seconds, (int, float)) and not isinstance(self.seconds, bool)
        if not number or not math.isfinite(self.seconds) or self.seconds <= 0:
            raise BadSetting(
                _(
                    "TimeLimit is {seconds!r}, but it must be a number of seconds above 0.",
                    seconds=self.seconds,
                )
            )


@dataclass(frozen=True, slots=True)
class Loop:
    """The reply ends when its last `window` tokens repeat one passage at least `repeats` times."""

    window: int
    repeats: int

    def __post_init__(self) -> None:
        _whole(_("The repeats of a loop"), self.repeats, 2)
        _whole(_("The window of a loop"), self.window, 2)
        if self.window < self.repeats:
            raise BadSetting(
                _(
                    "A loop window of {window} tokens cannot hold {repeats} repeats; set the "
                    "window to at least {repeats}.",
                    window=self.window,
                    repeats=self.repeats,
                )
            )


StopCondition = StopTokens | StopStrings | StopRegex | MaxTokens | MinTokens | TimeLimit | Loop


@dataclass(frozen=True)
class StopRules:
    """Everything that ends a reply except a full context and a filter.

    `token_ids` end it, but are blocked until `min_tokens`. `strings` and `patterns` (regular expressions) are
    searched for in its text and, with `keep_stop`, stay at its end. `time_limit` is in seconds from the first
    token. `max_tokens` and `time_limit` are unlimited at 0.
    """

    token_ids: frozenset[int]
    strings: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    max_tokens: int = 0
    min_tokens: int = 0
    time_limit: float = 0.0
    loops: tuple[Loop, ...] = ()
    keep_stop: bool = False

    @classmethod
    def from_settings(cls, settings: StopSettings, own_ids: Iterable[int]) -> Self:
        """The rules of `settings`; `own_ids` are the model's end-of-turn tokens.

        Raises `BadSetting` for an invalid expression and for a loop window too short for its repeats.
        """
        return cls(
            token_ids=frozenset(own_ids).union(settings.stop_token_ids),
            strings=tuple(string for string in settings.stop_strings if string),
            patterns=(StopRegex(settings.stop_regex).pattern,) if settings.stop_regex else (),
            max_tokens=settings.max_tokens,
            min_tokens=settings.min_tokens,
            time_limit=settings.time_limit,
            loops=(Loop(settings.loop_window, settings.loop_repeats),) if settings.loop_window else (),
            keep_stop=settings.keep_stop,
        )

    @classmethod
    def from_conditions(cls, conditions: Sequence[int | str | StopCondition]) -> Self:
        """The rules that `conditions` combine to: ints are token ids, strings are stop strings.

        Only the given ids end the reply. The strictest of several limits counts. Raises
        ValueError for anything else, including booleans, negative ints and empty strings.
        """
        objects = [_as_object(condition) for condition in conditions]
        counts = [condition.count for condition in objects if isinstance(condition, MaxTokens)]
        seconds = [condition.seconds for condition in objects if isinstance(condition, TimeLimit)]
        return cls(
            token_ids=frozenset[int]().union(
                *(condition.ids for condition in objects if isinstance(condition, StopTokens))
            ),
            strings=tuple(
                string
                for condition in objects
                if isinstance(condition, StopStrings)
                for string in condition.strings
            ),
            patterns=tuple(condition.pattern for condition in objects if isinstance(condition, StopRegex)),
            max_tokens=min(counts, default=0),
            min_tokens=max(
                (condition.count for condition in objects if isinstance(condition, MinTokens)), default=0
            ),
            time_limit=min(seconds, default=0.0),
            loops=tuple(condition for condition in objects if isinstance(condition, Loop)),
        )


def _as_object(condition: object) -> StopCondition:
    if isinstance(condition, StopCondition):
        return condition
    if isinstance(condition, int) and not isinstance(condition, bool) and condition >= 0:
        return StopTokens(frozenset((condition,)))
    if isinstance(condition, str) and condition:
        return StopStrings((condition,))
    raise ValueError(
        f"{condition!r} is not a stop condition; give token ids (whole numbers from 0), texts of at "
        "least one character, or objects such as StopRegex."
    )


def _whole(what: str, value: object, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise BadSetting(
            _(
                "{what} is {value!r}, but it must be a whole number of at least {low}.",
                what=what,
                value=value,
                low=low,
            )
        )
    return value


def _texts(value: Sequence[str] | object) -> tuple[str, ...]:
    """`value` as a tuple; a single string is one text, not its characters."""
    return (
        (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (str(value),)
    )


def _some(what: str, values: Sequence[str] | frozenset[int]) -> None:
    if not values:
        raise BadSetting(_("{what} is empty; name at least one.", what=what))
