"""One sequence while it is being written: from a sampled token to the text, ids and stop reason that may be shown.

Knows no model and no cache. Text passes two gates: the detokenizer holds back half characters, the stop matcher holds back
what may become a stop string. Ids wait with the text they belong to, so that none is lost and none runs ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.backends.base import Floats
from engine.core import TokenInfo
from engine.sampling.sampler import Sampled, Sampler
from engine.text.detokenizer import Detokenizer
from engine.text.stops import StopMatcher
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a sequence besides a full context; `max_new_tokens` 0 means no limit."""

    token_ids: frozenset[int]
    strings: tuple[str, ...] = ()
    max_new_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to report of each token besides its probabilities.

    `top` likeliest tokens, the raw `logits`; `special` shows special tokens as text instead of hiding them.
    """

    top: int = 0
    logits: bool = False
    special: bool = False


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token that may be shown. `logits` (V,) float32 are the model's own, None unless asked for."""

    info: TokenInfo
    logits: Floats | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """What one token made certain: new text and the ids that belong to it; `reason` is empty while the sequence goes on."""

    text: str
    tokens: tuple[WrittenToken, ...]
    reason: str = ""
    trigger: str = ""


class Job:
    """State of one sequence. `ids` are the prompt and every sampled token; `banned` ids are blocked in the next draw."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        sampler: Sampler,
        stops: StopRules,
        *,
        context_length: int,
        wanted: Wanted = Wanted(),
    ) -> None:
        self.ids = list(prompt_ids)
        self.prompt_tokens = len(self.ids)
        self.banned: tuple[int, ...] = ()
        self.context_length = context_length
        self._tokenizer = tokenizer
        self._sampler = sampler
        self._stops = stops
        self._wanted = wanted
        self._detokenizer = Detokenizer(tokenizer, skip_special=not wanted.special, prompt_ids=prompt_ids)
        self._matcher = StopMatcher(stops.strings)
        self._held: deque[WrittenToken] = deque()
        self._credit = 0  # released characters that the tokens still held have not accounted for

    @property
    def new_tokens(self) -> int:
        """Tokens sampled so far, a stop token included."""
        return len(self.ids) - self.prompt_tokens

    def step(self, logits: Floats) -> Emission:
        """Draw the next token from `logits` (V,) float32 and take it in."""
        sampled = self._sampler.sample(logits, self.ids, top=self._wanted.top, banned=self.banned)
        return self.feed(sampled, logits.copy() if self._wanted.logits else None)

    def feed(self, sampled: Sampled, logits: Floats | None = None) -> Emission:
        """Take in a sampled token: what may be shown now, and whether the sequence has ended."""
        self.ids.append(sampled.id)
        if sampled.id in self._stops.token_ids:
            return self.finish("stop_token", self._tokenizer.decode([sampled.id], skip_special=False))
        text = self._detokenizer.add(sampled.id)
        info = TokenInfo(sampled.id, text, sampled.probability, sampled.raw_probability, sampled.top)
        self._held.append(WrittenToken(info, logits))
        released = self._matcher.feed(text)
        if released.matched is not None:
            return self._cut(released.text, released.matched)
        reason = self._limit()
        if reason:
            return self.finish(reason, before=released.text)
        return Emission(released.text, self._release(released.text))

    def finish(self, reason: str, trigger: str = "", *, before: str = "") -> Emission:
        """End the sequence: everything held is let go, unless its last bytes complete a stop string.

        `before` is text that the stop matcher has released already.
        """
        released = self._matcher.feed(self._end_of_characters())
        text = before + released.text + self._matcher.finish()
        if self._matcher.matched is not None:
            return self._cut(text, self._matcher.matched)
        tokens = tuple(self._held)
        self._held.clear()
        return Emission(text, tokens, reason, trigger)

    def _limit(self) -> str:
        if 0 < self._stops.max_new_tokens <= self.new_tokens:
            return "max_tokens"
        # The last token's own keys and values need no room until a further token is wanted.
        return "context_full" if len(self.ids) > self.context_length else ""

    def _end_of_characters(self) -> str:
        """What the detokenizer still holds, counted as text of the last token."""
        text = self._detokenizer.finish()
        if text and self._held:
            last = self._held.pop()
            self._held.append(replace(last, info=replace(last.info, text=last.info.text + text)))
        return text

    def _release(self, text: str) -> tuple[WrittenToken, ...]:
        """The held tokens whose text is out completely; a token without text of its own goes with the next one that has some."""
        self._credit += len(text)
        out: list[WrittenToken] = []
        count = next((i for i, token in enumerate(self._held) if token.info.text), None)
        while count is not None and self._credit >= len(self._held[count].info.text):
            self._credit -= len(self._held[count].info.text)
            out.extend(self._held.popleft() for _ in range(count + 1))
            count = next((i for i, token in enumerate(self._held) if token.info.text), None)
        return tuple(out)

    def _cut(self, text: str, stop_string: str) -> Emission:
        """End before a stop string: a token of which some text is shown stays, shortened; the stop string's own tokens go."""
        tokens = self._release(text)
        if self._credit:
            count = next(i for i, token in enumerate(self._held) if token.info.text)
            part = [self._held.popleft() for _ in range(count + 1)]
            part[-1] = replace(part[-1], info=replace(part[-1].info, text=part[-1].info.text[: self._credit]))
            tokens += tuple(part)
        self._held.clear()
        self._credit = 0
        return Emission(text, tokens, "stop_string", stop_string)
