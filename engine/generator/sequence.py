"""One sequence while it is written: from a row of logits to the text, ids and stop reason that may be shown.

It knows neither model nor cache. Text passes three gates: the detokenizer holds back half characters, the
ban gate what may become a banned string, the stop matcher what may become a stop string. Ids wait with their
text. When a banned string is complete, the sequence goes back to before the token in which it began: ids,
text, sampler and filters alike.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from engine.constraint.filter_set import FilterSet
from engine.core import TokenInfo
from engine.core.tuples import maker
from engine.errors import BadSetting, NothingAllowed
from engine.generator.checkpoints import Checkpoint, Checkpoints, Late
from engine.generator.choice import Where, check_budget, choose_token, drawable_tokens, only_stops
from engine.generator.params import GenerationParams
from engine.generator.token_buffer import (
    TokenBuffer,
    WrittenToken,
    alternatives_of,
    token_info,
    written_token,
)
from engine.sampling.sampler import Sampled, Sampler
from engine.tensors import Floats
from engine.text.stops.bans import BannedStrings
from engine.text.stops.conditions import StopRules
from engine.text.stops.loops import LoopWatch
from engine.text.stops.matcher import Released, StopMatcher
from engine.text.tokenizer.detokenizer import Detokenizer
from engine.text.tokenizer.healing import TokenPrefixes
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

_NONE = frozenset[int]()


class StepOutput(NamedTuple):
    """What one token made certain: new text and its ids. `reason` is empty while the sequence continues.

    After a banned string, `suppressed` is the text taken back, and `retry` the logits (V,) from which the
    next token is chosen without a pass of the model.
    """

    text: str
    tokens: tuple[WrittenToken, ...]
    reason: str = ""
    trigger: str = ""
    suppressed: str = ""
    retry: Floats | None = None


_output = maker(StepOutput)


class TokenSequence:
    """State of one sequence: `ids` are the prompt and every token so far; `banned` ids are blocked next.

    With token healing, `ids` begins without the prompt's last token, which the first new token replaces.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        params: GenerationParams,
        *,
        context_length: int,
        started: float = 0.0,
    ) -> None:
        self.params = params
        self.ids = list(prompt_ids)
        self.prompt_tokens = len(self.ids)
        self.banned: tuple[int, ...] = ()
        self.context_length = context_length
        self.accepted_drafts = 0
        self._tokenizer = tokenizer
        self._started = started or time.perf_counter()
        self.first_token = self.last_token = 0.0
        """When the first and the newest token came, in `time.perf_counter` seconds; 0 without any."""
        healed = self._healed_bytes() if params.heal else b""
        self._healing = TokenPrefixes(tokenizer).starting_with(healed) if healed else None
        if healed:
            del self.ids[-1]
        self._begin = len(self.ids)
        self._sampler = Sampler(params.sampler, params.seed, params.tables, races=params.races)
        self._detokenizer = Detokenizer(
            tokenizer, skip_special=not params.returns.special, prompt_ids=self.ids, healed_prefix=healed,
            shown=params.returns.shown, channel_calls=params.returns.channel_calls,
        )  # fmt: skip
        self._unmatched = ""  # text that was held for rules that have changed since
        self._bans = BannedStrings(params.banned, params.ban_ignore_case) if params.banned else None
        self._held = TokenBuffer()
        parts = (self._detokenizer, self._bans, self._sampler)  # what follows the bans is never restored
        self._checkpoints = Checkpoints([part for part in parts if part is not None])
        self._accepted = 0  # tokens the filters have taken in
        drawable = drawable_tokens(params.tables, tokenizer) if params.filters else None
        self._filters: FilterSet | None = None
        self.constrained = bool(params.filters)
        """Whether filters say which tokens may follow."""
        if params.filters:
            self._filters = FilterSet(params.filters, prefer_end=params.prefer_end, drawable=drawable)
        self._healed = healed
        self._follow(params.rules)

    @property
    def new_tokens(self) -> int:
        """Tokens taken in so far, a stop token included."""
        return len(self.ids) - self._begin

    def change_rules(self, rules: StopRules) -> None:
        """Use other stop rules from the next token on. The old token limit stays unless they set one."""
        rules = replace(rules, max_tokens=rules.max_tokens or self.params.rules.max_tokens)
        self.params = replace(self.params, rules=rules)
        self._unmatched += self._matcher.held
        self._follow(self.params.rules)

    def _follow(self, rules: StopRules) -> None:
        """Get ready for these rules. What none of them needs is not checked for each token."""
        self._matcher = StopMatcher(rules.strings, rules.patterns, keep=rules.keep_stop)
        self._searches = bool(rules.strings or rules.patterns or self._unmatched)
        self._loops = LoopWatch(rules.loops) if rules.loops else None
        self._stop_ids = rules.token_ids
        self._watches = self._filters is not None or self._loops is not None or rules.time_limit > 0
        self._shows_at_once = self._bans is None and not (self._searches or self._watches)
        # The length of prompt and reply from which stop tokens are allowed, and up to which no limit applies.
        self._welcome = self._begin + rules.min_tokens
        self.room = self.context_length
        """The length up to which no limit can end the text."""
        if rules.max_tokens:
            self.room = min(self._begin + rules.max_tokens - 1, self.context_length)

    def begin(self, patience: float | None = None) -> None:
        """Start the filters, which compute their first mask while the prompt is read.

        Raises `BadSetting` when they do not allow the reply so far. With a `patience`, this and `decide`
        raise `Busy` when the filters need longer than this many seconds, and are then called again.
        """
        if self._filters is None:
            return
        self._filters.patience = patience
        count = self.params.given
        given = self.ids[len(self.ids) - count + bool(self._healed) :] if count else []
        if not self._filters.begin(b"" if self.params.given else self._healed, given):
            raise BadSetting(
                _(
                    "The reply so far ({decode!r}) does not match the format; edit it, or set "
                    "the format to free text.",
                    decode=self._tokenizer.decode(given)[:40],
                )
            )
        room = self.context_length + 1 - len(self.ids)
        limit, may_cut = self.params.rules.max_tokens, self.params.may_cut
        self._cut_short = check_budget(self._filters, limit, room, len(given), may_cut=may_cut)
        self._prepare_mask()

    def close(self) -> None:
        """End the filters' thread."""
        if self._filters is not None:
            self._filters.close()

    def decide(self, logits: Floats, proposal: int | None = None) -> StepOutput:
        """Choose the next token from `logits` (V,) float32, whatever the proposal, and take it in.

        Raises `NothingAllowed` when bans, filters and allowed tokens leave nothing to choose.
        """
        place, returns = len(self.ids), self.params.returns
        mark = self._mark(logits) if self._bans is not None else None
        mask = self._filters.mask() if self._filters is not None else None
        if self._filters is not None and self._filters.ended and self._filters.may_end:
            return self.finish("end_filter")
        only = self._healing if place == self._begin else None
        rejected = self._checkpoints.blocked.get(place, _NONE) if self._checkpoints.blocked else _NONE
        try:
            blocked = (
                self._blocked_now(rejected) if rejected or self.banned or place < self._welcome else _NONE
            )
            if self._filters is None:  # as nearly always
                sampled = self._sampler.sample(
                    logits, self.ids, only=only, blocked=blocked, attempt=len(rejected) if rejected else 0,
                    top=returns.top, alternatives=returns.alternatives,
                )  # fmt: skip
            else:
                where = Where(logits, self.ids, only, blocked, len(rejected))
                sampled = choose_token(self._sampler, where, returns, mask, self._filters)
        except NothingAllowed as error:
            if len(self._checkpoints) and (
                rejected or self._stuck
            ):  # nothing can follow here: go back further
                return self._rewind(len(self._checkpoints) - 1)
            if self._stuck:
                raise NothingAllowed(
                    _(
                        "The constraints contradict each other: no token that they all allow can follow "
                        "the reply so far; relax one of them."
                    )
                ) from error
            if (
                self._filters is not None
                and self._filters.may_end
                and only_stops(mask, self.params.rules.token_ids)
            ):
                # fewer than the minimum number of tokens, but no further one is possible
                return self.finish("end_filter")
            raise
        accepted = sampled.id == proposal
        self.accepted_drafts += accepted
        return self.feed(sampled, logits.copy() if returns.logits else None, drafted=accepted, mark=mark)

    # -- overlapped decode (`engine.generator.overlap`)

    @property
    def needs_host(self) -> bool:
        """Whether the host must choose every token: because of filters, or because logits are reported."""
        return self._filters is not None or self.params.returns.logits

    @property
    def usual(self) -> bool:
        """Whether the sampler's settings alone decide the next token, and no other rule."""
        place = len(self.ids)
        healing = self._healing is not None and place == self._begin
        blocked = self._checkpoints.blocked
        return not (self.banned or place < self._welcome or healing or (blocked and blocked.get(place)))

    def uniform(self, place: int) -> float:
        """The random number that chooses the token at a place."""
        return self._sampler.uniform(place)

    def accept_drawn(self, sampled: Sampled, logits: Late) -> StepOutput:
        """Take in a token that the device sampled; `logits` fetches those it was sampled from."""
        return self.feed(sampled, mark=self._mark(logits) if self._bans is not None else None)

    def keep_logits(self) -> None:
        """The device is about to lose the logits that checkpoints rely on: fetch them."""
        self._checkpoints.keep_logits()

    def feed(
        self,
        sampled: Sampled,
        logits: Floats | None = None,
        *,
        drafted: bool = False,
        mark: Checkpoint | None = None,
    ) -> StepOutput:
        """Take in a token: what may be shown now, and whether the sequence has ended."""
        self.last_token = time.perf_counter()
        if not self.first_token:
            self.first_token = self.last_token
        healed = self._healing is not None and len(self.ids) == self._begin
        self.ids.append(sampled.id)
        if sampled.id in self._stop_ids:
            return self._stopped(sampled, logits, drafted)
        text = self._detokenizer.add(sampled.id)
        token = written_token((self._info(sampled, text, drafted, healed), logits))
        waits = self._held.queue or self._detokenizer.held or not text
        if self._shows_at_once and not waits and len(self.ids) <= self.room:
            return _output((text, (token,), "", "", "", None))  # what the rest comes to where nothing waits
        self._held.add(token)
        if self._filters is not None:
            self._filters.accept(sampled.id)
            self._accepted += 1
        if self._bans is not None:
            cleared = self._bans.feed(text)
            self._checkpoints.fed += len(text)
            if mark is not None:
                self._checkpoints.add(mark, sampled.id, text)
                if cleared.hit is not None:
                    return self._rewind(self._checkpoints.at(cleared.hit.start))
                self._checkpoints.forget(len(self._bans.held), len(self.ids))
            text = cleared.text
        return self._show(text)

    def finish(
        self, reason: str, trigger: str = "", *, before: str = "", last: WrittenToken | None = None
    ) -> StepOutput:
        """End the sequence: everything held is released, unless its last bytes complete a stop string.

        `before` is text that the stop matcher has already released; `last` a stop token to show at the end.
        """
        end = self._detokenizer.finish()
        self._held.lengthen_last(end)
        banned = False
        if self._bans is not None:
            cleared = self._bans.feed(end)
            banned = cleared.hit is not None
            end = cleared.text + self._bans.finish()
        text = before + self._match(end).text + self._matcher.finish()
        if self._matcher.matched is not None:
            return self._cut(text)
        tokens = self._held.cut(text) if banned else self._held.all()
        if last is not None:
            text, tokens = text + last.info.text, (*tokens, last)
        return StepOutput(text, tokens, reason, trigger)

    def _stopped(self, sampled: Sampled, logits: Floats | None, drafted: bool) -> StepOutput:
        """A stop token was chosen."""
        name = self._tokenizer.decode([sampled.id], skip_special=False)
        kept = (
            WrittenToken(self._info(sampled, name, drafted, False), logits)
            if self.params.rules.keep_stop
            else None
        )
        return self.finish("stop_token", name, last=kept)

    def _show(self, text: str) -> StepOutput:
        """Pass cleared text to the stop matcher, and check everything else that could end the sequence."""
        if self._searches:
            released = self._match(text)
            if released.matched is not None:
                return self._cut(released.text)
            text = released.text
        if self._watches or len(self.ids) > self.room:
            reason, trigger = self._limit()
            if reason:
                return self.finish(reason, trigger, before=text)
            self._prepare_mask()
        return StepOutput(text, self._held.release(text, keep_last=self._detokenizer.held != b""))

    def _match(self, text: str) -> Released:
        """Pass text to the stop matcher."""
        if self._unmatched:
            text, self._unmatched = self._unmatched + text, ""
        return self._matcher.feed(text)

    def _prepare_mask(self) -> None:
        """Have the filters compute the next mask while the model runs."""
        if self._filters is not None:
            limit, room = self.params.rules.max_tokens, self.context_length + 1 - len(self.ids)
            remaining = min(limit - self.new_tokens, room) if limit else room
            self._filters.remaining = None if self._cut_short else remaining
            self._filters.prepare()

    def _cut(self, text: str) -> StepOutput:
        """End at a stop string; text before it in the same token stays."""
        matched = self._matcher.matched
        assert matched is not None
        return StepOutput(text, self._held.cut(text), matched.reason, matched.text)

    def _limit(self) -> tuple[str, str]:
        """Reason and trigger if the sequence must end here, else two empty strings."""
        rules = self.params.rules
        if self._filters is not None and self._filters.ended and self._filters.may_end:
            return "end_filter", ""
        if 0 < rules.max_tokens <= self.new_tokens:
            return "max_tokens", ""
        if self._loops is not None and (loop := self._loops.find(self.ids, self._begin)) is not None:
            return "loop", self._tokenizer.decode(loop[1])
        if rules.time_limit and self.last_token - self.first_token >= rules.time_limit:
            return "time_limit", ""
        # The last token's keys and values need no room until a further token is to follow.
        return ("context_full", "") if len(self.ids) > self.context_length else ("", "")

    def _blocked_now(self, rejected: Set[int]) -> Set[int]:
        """Ids that are blocked at this place: the caller's, those that led to a banned string, and stop
        tokens that come too early.
        """
        early = self._stop_ids if len(self.ids) < self._welcome else _NONE
        return early.union(rejected, self.banned)

    @property
    def _stuck(self) -> bool:
        return self._filters is not None and self._filters.stuck

    def _info(self, sampled: Sampled, text: str, drafted: bool, healed: bool) -> TokenInfo:
        others = alternatives_of(sampled, self._tokenizer) if sampled.alternatives else ()
        return token_info((
            sampled.id, text, sampled.probability, sampled.raw_probability, sampled.top, others,
            sampled.entropy, drafted, healed, self.last_token - self._started,
        ))  # fmt: skip

    def _healed_bytes(self) -> bytes:
        """The bytes of the prompt's last token if it can be healed: it is text, and not the only token."""
        last = self.ids[-1]
        if len(self.ids) == 1 or last in self._tokenizer.special_ids:
            return b""
        return self._tokenizer.token_bytes(last)

    # -- going back

    def _mark(self, logits: Floats | Late) -> Checkpoint:
        return self._checkpoints.take(len(self.ids), self._accepted, logits)

    def _rewind(self, index: int) -> StepOutput:
        """Back to the state before a checkpoint's token, which is blocked there from now on."""
        mark, taken_back = self._checkpoints.back_to(index)
        self._held.drop_last(len(self.ids) - mark.place)
        del self.ids[mark.place :]
        if self._filters is not None:
            self._filters.rollback(self._accepted - mark.accepted)
            self._accepted = mark.accepted
            self._prepare_mask()
        retry = mark.logits() if callable(mark.logits) else mark.logits
        return StepOutput("", (), suppressed=taken_back, retry=retry)
