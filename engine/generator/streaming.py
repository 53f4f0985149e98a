"""StreamingGenerator: one sequence at a time, lowest latency.

Two faces of one loop: frozen events, and dicts step by step.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.constraint import make_filters
from engine.constraint.filter import Filter
from engine.core import Done, Prefill, Running, Text
from engine.errors import BadSetting, ContextTooLong, NotSupportedYet
from engine.generator.adapter_slot import AdapterSlot
from engine.generator.decode import Steps, check_prompt, write
from engine.generator.drafters import Drafters
from engine.generator.drafting import Drafting
from engine.generator.events import events
from engine.generator.params import GenerationParams, ReturnOptions, token_tables
from engine.generator.results import StreamState, prompt_rows
from engine.generator.runner import Guidance, SequenceRunner
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.models.paged import PagedCache
from engine.settings import (
    ConstraintSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.text.stops.conditions import StopCondition, StopRules
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.models.base import Model

TokenEvent = Prefill | Text | Running | Done
"""What `stream` yields."""


def new_seed() -> int:
    """A random seed, short enough to be read aloud."""
    return secrets.randbits(32)


class StreamingGenerator:
    """Writes one sequence at a time with a model, its cache and its tokenizer.

    `stream` is the plain way: an iterator of frozen events. `begin_stream_ex` and `stream_ex` are the
    step-by-step way that ExLlamaV2's streaming generator made known. A sequence's keys and values stay in the
    cache, so that a prompt which begins like an earlier one is only read from where it differs. One thread
    uses a generator; one sequence is open at a time.

    With a draft model every step-by-step sequence drafts `num_speculative_tokens` at a time;
    `speculative_ngram` drafts from the text instead. `stream` follows its own `speculation`.
    """

    def __init__(
        self,
        model: Model,
        cache: PagedCache,
        tokenizer: Tokenizer,
        draft_model: Model | None = None,
        draft_cache: PagedCache | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        """`draft_cache` is made when only `draft_model` is given.

        Raises ValueError for a cache of another model.
        """
        if cache.model is not model:
            raise ValueError("the cache was made for another model")
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self.num_speculative_tokens = num_speculative_tokens
        self.speculative_ngram = False
        self.drafters = Drafters(cache, tokenizer.vocab_size)
        if draft_model is not None:
            self.drafters.set_model(draft_model, draft_cache)
        self._rules = StopRules(frozenset(tokenizer.stop_token_ids))
        self._steps: Steps | None = None
        self._runner: SequenceRunner | None = None
        self._state: StreamState | None = None

    def set_stop_conditions(self, stop_conditions: Sequence[int | str | StopCondition]) -> None:
        """Replace the stop set of `begin_stream_ex`: ints are token ids, strings are stop strings, and the
        objects of `engine.text.stops.conditions`; anything else: ValueError.

        Before the first call the stop set is the tokenizer's own stop tokens. It counts at once, also for an
        open sequence.
        """
        self._rules = StopRules.from_conditions(stop_conditions)
        if self._state is not None and self._state.last is None:
            self._state.sequence.change_rules(self._rules)

    @contextmanager
    def other_stop_conditions(self, stop_conditions: Sequence[int | str | StopCondition]) -> Iterator[None]:
        """Another stop set for the sequences that begin within."""
        before = self._rules
        self._rules = StopRules.from_conditions(stop_conditions)
        try:
            yield
        finally:
            self._rules = before

    @property
    def sequence(self) -> Sequence[int]:
        """The ids of the latest step-by-step sequence, prompt and reply so far, a stop token included;
        none before it and after `close`.
        """
        return self._state.sequence.ids if self._state is not None else ()

    def stream(
        self,
        ids: Sequence[int],
        sampler: SamplerSettings = SamplerSettings(),
        stops: StopSettings = StopSettings(),
        *,
        speculation: SpeculationSettings = SpeculationSettings(),
        constraint: ConstraintSettings = ConstraintSettings(),
        guidance: Guidance | None = None,
        output: OutputSettings = OutputSettings(alternatives=0),
        filters: Sequence[Filter] = (),
        given: int = 0,
        heal: bool = False,
        seed: int | None = None,
        stop_event: threading.Event | None = None,
        started: float | None = None,
        replayed: Sequence[Sequence[tuple[int, int]]] = (),
        gather_seconds: float = 0.0,
    ) -> Generator[TokenEvent, None, None]:
        """Go on from `ids`: `Prefill` progress, then `Text` and now and then `Running`, then one `Done`.

        The model's own stop tokens always end it, besides those of `stops`. `filters` come besides those that
        `constraint` asks for; the last `given` of `ids` are the beginning of the reply, which they look at,
        too. The seed is `seed`, else the sampler's, else a random one; `Done.stats.seed` tells. `started` is
        when the request came (`time.perf_counter`). With `replayed`, what `reading` told of an earlier
        sequence with the same ids, the prompt is read in the same passes. Text that comes within
        `gather_seconds` of the last is handed on with the next. Raises `ContextTooLong` and `BadSetting`
        before anything runs, and `NothingAllowed` from the iterator when constraints leave no token to
        choose.
        """
        fixed = seed if seed is not None else sampler.seed
        params = GenerationParams(
            sampler, new_seed() if fixed is None else fixed,
            StopRules.from_settings(stops, self.tokenizer.stop_token_ids),
            ReturnOptions(alternatives=output.alternatives, special=output.show_special),
            token_tables(self.tokenizer, sampler, constraint),
            (*make_filters(constraint, self.tokenizer), *filters), banned=constraint.banned_strings,
            ban_ignore_case=constraint.ban_ignore_case, given=given, heal=heal,
        )  # fmt: skip
        drafting = self.drafters.drafting(speculation, params, stop_event, fixed=fixed is not None)
        sequence, stats = self._open(ids, params, drafting, guidance, stop_event, started, replayed)
        assert self._steps is not None
        return events(self._steps, sequence, stats, output.stream_interval, gather_seconds)

    def reading(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The passes over the prompt of the latest sequence, and over its negative one: (first position,
        rows) each; 0 rows where it is not known. To be asked at its first event, when nothing of it has run.
        """
        return self._runner.reading() if self._runner is not None else ()

    def begin_stream_ex(
        self,
        input_ids: Any,
        gen_settings: SamplerSettings,
        token_healing: bool = False,
        loras: Sequence[tuple[str, float]] | None = None,
        input_mask: Any = None,
        position_offsets: Any = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: Any = None,
        decode_special_tokens: bool = False,
        banned_strings: Sequence[str] | None = None,
        filters: Sequence[Filter] | None = None,
        filter_prefer_eos: bool = False,
        max_new_tokens: int | None = None,
        seed: int | None = None,
        cfg_scale: float | None = None,
        tables: Any = None,
        speculation: SpeculationSettings | None = None,
    ) -> None:
        """Read the prompt and get ready for `stream_ex`.

        Blocks until the prompt is in the cache or `abort_event` is set.

        `input_ids` is a list, or an array or tensor of shape (n,) or (1, n). With guidance (`cfg_scale`) it
        has two rows, the prompt and the negative prompt, the shorter one padded on the left as `input_mask`
        says. A sequence that was open is closed. `tables` (`engine.sampling.tables.TokenTables`) carries a
        bias over the vocabulary, `speculation` stands in place of what the generator's attributes say of
        drafting; `loras` are the LoRA adapters that count, (folder, strength) each. Raises `NotSupportedYet`
        for what this version cannot do, `ContextTooLong` and `BadSetting` for a prompt it cannot run, and
        what opening an adapter raises.
        """
        _refuse(input_embeddings=input_embeddings)
        self._wear(loras or ())
        ids, guidance = prompt_rows(input_ids, input_mask, position_offsets, cfg_scale)
        fixed = seed if seed is not None else gen_settings.seed
        rules = replace(self._rules, max_tokens=max_new_tokens) if max_new_tokens else self._rules
        wanted = ReturnOptions(return_top_tokens, 0, return_logits, decode_special_tokens)
        params = GenerationParams(
            gen_settings, new_seed() if fixed is None else fixed, rules, wanted,
            tables or token_tables(self.tokenizer, gen_settings), tuple(filters or ()), filter_prefer_eos,
            tuple(banned_strings or ()), True, heal=token_healing,
        )  # fmt: skip
        method = "ngram" if self.speculative_ngram else "model" if self.drafters.has_model else "none"
        drafts = speculation or SpeculationSettings(method=method, draft_tokens=self.num_speculative_tokens)
        drafting = self.drafters.drafting(drafts, params, abort_event, fixed=fixed is not None)
        sequence, stats = self._open(ids, params, drafting, guidance, abort_event, None)
        self._state = state = StreamState(sequence, stats, return_probabilities, self.model.config.vocab_size)
        step = self._next()
        while not isinstance(step, StepOutput) and step.done < step.total:
            step = self._next()
        if isinstance(step, StepOutput):  # aborted while the prompt was read
            state.waiting = step

    def stream_ex(self, ban_tokens: Sequence[int] | None = None) -> dict[str, Any]:
        """Choose one token, with the ids in `ban_tokens` blocked, and return what it made certain.

        Always: `chunk` (str, may be empty while text is held back), `eos` (bool), `chunk_token_ids` ((1, n)
        int64, n >= 0). Asked for: `probs` (1, n), `top_tokens` and `top_probs` (1, n, k) - where fewer than k
        tokens survive the sampler the rest is id 0 with probability 0 - and `logits` (1, n, V), the model's
        own. `healed_token_id` once, when the token that took the place of the prompt's last one is released;
        `suppressed` when a banned string was taken back. With eos: `reason` (one of `core.STOP_REASONS`),
        `trigger` (the text that fired) and `stats` (`core.Stats`). All arrays are NumPy's; `torch.from_numpy`
        shares their memory. Calling on after eos returns an empty last result again.
        """
        state = self._state
        if state is None or self._steps is None:
            raise RuntimeError("no sequence is open: begin_stream_ex comes before stream_ex")
        if state.last is not None:
            return state.ended_already()
        state.sequence.banned = tuple(ban_tokens or ())
        output = state.waiting or self._next()
        assert isinstance(output, StepOutput)
        result = state.result(output)
        if output.reason:
            self._steps.close()
        return result

    def _wear(self, loras: Sequence[tuple[str, float]]) -> None:
        """Have these adapters on the model; the open sequence is closed first."""
        slot = AdapterSlot(self.cache)
        if not slot.wears(loras):
            self.close()
            for _ in slot.wear(loras):
                pass

    def _next(self) -> Prefill | StepOutput:
        """One step of the open sequence, which is closed when that fails."""
        assert self._steps is not None
        try:
            return next(self._steps)
        except BaseException:
            self.close()
            raise

    def get_sd_stats(self) -> tuple[float, float, int, int, int]:
        """Drafting in all step-by-step sequences since `reset_sd_stats`, this one included: accepted / all
        tokens, accepted / drafted, all tokens, drafted, accepted.
        """
        return self.drafters.totals.with_current(self._state)

    def reset_sd_stats(self) -> None:
        """Count anew."""
        self.drafters.totals.reset(self._state)

    def ngram_preload(self, ids: Any) -> None:
        """Let n-gram drafting guess from this text, too: ids as `begin_stream_ex` takes them."""
        self.drafters.preload(prompt_rows(ids, None, None, None)[0])

    def close(self) -> None:
        """End the open sequence, if any, and give its pages back; what was run stays cached."""
        if self._state is not None:
            self.drafters.totals.add(self._state)
        if self._steps is not None:
            self._steps.close()
        self._steps = self._state = None

    def _open(
        self,
        ids: Sequence[int],
        params: GenerationParams,
        drafting: Drafting,
        guidance: Guidance | None,
        stop: threading.Event | None,
        started: float | None,
        replayed: Sequence[Sequence[tuple[int, int]]] = (),
    ) -> tuple[TokenSequence, SequenceStats]:
        """Close the open sequence and get the next one ready to run."""
        length = self.cache.context_length
        check_prompt(ids, self.model.config.vocab_size, length)
        if guidance is not None:
            check_prompt(guidance.negative_ids, self.model.config.vocab_size, length)
            # the longer row fills the context, or both the cache
            growth = self.cache.growth(len(ids), len(guidance.negative_ids))
            if growth < 0:
                raise ContextTooLong(
                    f"The prompt has {len(ids)} tokens and the negative one {len(guidance.negative_ids)}, "
                    "which is more than the cache holds of both; shorten them, or give the cache more "
                    "memory."
                )
            length = len(ids) + growth
        self.close()
        stats = SequenceStats(started or time.perf_counter())
        sequence = TokenSequence(self.tokenizer, ids, params, context_length=length, started=stats.started)
        if guidance is not None and len(sequence.ids) < len(ids):  # the healed token goes from both rows
            if guidance.negative_ids[-1:] != tuple(ids[-1:]) or len(guidance.negative_ids) < 2:
                raise BadSetting(
                    "Token healing with guidance needs a negative prompt that ends in the same token as "
                    "the prompt."
                )
            guidance = Guidance(guidance.negative_ids[:-1], guidance.scale)
        self._runner = SequenceRunner(
            self.cache, sequence.ids, guidance, [list(passes) for passes in replayed]
        )
        self._steps = write(self._runner, sequence, stats, stop, drafting)
        return sequence, stats


def _refuse(**arguments: Any) -> None:
    """Raise `NotSupportedYet` naming the first argument that is given."""
    for name, value in arguments.items():
        if value is not None:
            raise NotSupportedYet(f"This version does not support `{name}` yet; leave it at None.")
