"""The events of a stream: of a reply, of loading a model, of a download."""

from __future__ import annotations

from typing import NamedTuple

from engine.core.requests import Rendered
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one reply. Times are seconds; `first_token_seconds` counts from the request.

    `passes` of the model follow the prompt; a drafter proposed `drafted_tokens`, of which `accepted_tokens`
    were kept. `speedup` is the measured speed with drafting over that without, 0 while either is unknown.
    """

    prompt_tokens: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    context_tokens: int = 0
    context_length: int = 0
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    seed: int = 0
    passes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    speedup: float = 0.0

    @property
    def acceptance_rate(self) -> float:
        """The share of drafted tokens that were kept; 0 if there were none."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens per pass of the model after the prompt; 1 without drafting, 0 before the first such pass."""
        return (self.new_tokens - 1) / self.passes if self.passes and self.new_tokens > 1 else 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens that were run, per second of prefill; 0 if none were."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first, per second of decoding; 0 if there was at most one."""
        return (
            (self.new_tokens - 1) / self.decode_seconds
            if self.decode_seconds > 0 and self.new_tokens > 1
            else 0.0
        )


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading a model, a draft model with `of_draft`, or of compiling kernels; `stage` is a short
    text to show.
    """

    stage: str
    done: int
    total: int
    of_draft: bool = False


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress of reading the prompt, in tokens. `cached` of the `total` were in the cache already."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing new: other replies went on. A reply has such events only while others are written.

    `queued`: it does not run at all, because it waits for its turn, or for memory that others have.
    """

    queued: bool = False


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The context was full: this many of the oldest messages, or of the first tokens of a plain text, were
    left out of the prompt.
    """

    dropped_messages: int
    dropped_tokens: int = 0


class Alternative(NamedTuple):
    """Another token for the same place: its text, the model's probability and the final one (0 if a sampler
    step dropped it).
    """

    id: int
    text: str
    raw_probability: float
    probability: float


class TokenInfo(NamedTuple):
    """One token of a reply: `raw_probability` is the model's own, `probability` the one after all sampler
    steps.

    On request, `top` holds (id, final probability) pairs, likeliest first, and `alternatives` the model's own
    likeliest tokens. `entropy` is that of the model's own distribution, in nats. `drafted`: a drafter
    proposed it. `healed`: it replaced the prompt's last token, whose text it begins with. `seconds` counts
    from the request.
    """

    id: int
    text: str
    probability: float
    raw_probability: float
    top: tuple[tuple[int, float], ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    entropy: float = 0.0
    drafted: bool = False
    healed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the reply that is certain: never half a character, never part of a stop string or of a
    banned one.

    `suppressed` is text that was taken back unseen, because it contained a banned string; other words
    replace it.
    """

    text: str
    tokens: tuple[TokenInfo, ...] = ()
    suppressed: str = ""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a call that the reply makes, instead of text.

    `index` counts the calls of a reply from 0. The first piece of each has its `id` and its whole `name`,
    which are empty in later ones; the `arguments` of all its pieces together are the JSON text of an object,
    incomplete where the reply was cut off.
    The next call begins after the last piece of this one.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """Statistics of the reply so far, a few times a second."""

    stats: Stats


STOP_REASONS = (
    "stop_token", "stop_string", "stop_regex", "end_filter", "max_tokens", "time_limit", "loop",
    "context_full", "cancelled",
)  # fmt: skip
"""Every value of `Done.reason`; "end_filter": a constraint is satisfied and allows nothing more."""


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a reply. `trigger` is the text that ended it: the stop string, the match of the
    expression, the stop token's text, the repeated part of a loop; empty for limits.
    """

    reason: str
    trigger: str
    stats: Stats


ChatEvent = Loading | Rendered | Waiting | Prefill | Trimmed | Text | CallPiece | Running | Done
"""What a chat source yields: any number of the other events, then one `Done`."""


@dataclass(frozen=True, slots=True)
class Downloading:
    """Progress of a download in bytes; `total` is 0 while unknown. `stage` is a short text to show."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The last event of a download: the finished, checked file."""

    path: str
