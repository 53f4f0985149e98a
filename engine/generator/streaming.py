"""StreamingGenerator: one sequence at a time, lowest latency. Two faces of one loop: frozen events, and dicts step by step."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core import Done, Prefill, Text
from engine.errors import NotSupportedYet
from engine.generator.job import Emission, Job, StopRules, Wanted, WrittenToken
from engine.generator.loop import Clock, Steps, check_prompt, write
from engine.models.paged import PagedCache
from engine.sampling.sampler import Sampler
from engine.settings import SamplerSettings, StopSettings
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.models.base import Model


def new_seed() -> int:
    """A random seed, short enough to be read aloud."""
    return secrets.randbits(32)


class StreamingGenerator:
    """Writes one sequence at a time with a model, its cache and its tokenizer.

    `stream` is the plain way: an iterator of frozen events. `begin_stream_ex` and `stream_ex` are the step-by-step way that
    ExLlamaV2's streaming generator made known. A sequence's keys and values stay in the cache, so that a prompt which
    begins like an earlier one is only read from where it differs. One thread uses a generator; one sequence is open at a time.
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
        _refuse_unless_default(
            draft_model=(draft_model, None), draft_cache=(draft_cache, None), num_speculative_tokens=(num_speculative_tokens, 5)
        )
        if cache.model is not model:
            raise ValueError("the cache was made for another model")
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self._stop_ids: frozenset[int] = frozenset(tokenizer.stop_token_ids)
        self._stop_strings: tuple[str, ...] = ()
        self._steps: Steps | None = None
        self._begun: _Begun | None = None

    def set_stop_conditions(self, stop_conditions: Sequence[int | str]) -> None:
        """Replace the stop set of `begin_stream_ex`: ints are token ids, strings are stop strings; anything else: ValueError.

        Before the first call the stop set is the tokenizer's own stop tokens.
        """
        ids = [item for item in stop_conditions if isinstance(item, int) and not isinstance(item, bool)]
        strings = [item for item in stop_conditions if isinstance(item, str)]
        if len(ids) + len(strings) != len(stop_conditions) or "" in strings:
            wrong = next(item for item in stop_conditions if item == "" or isinstance(item, bool) or not isinstance(item, (int, str)))
            raise ValueError(f"a stop condition must be a token id or a non-empty string, not {wrong!r}")
        self._stop_ids, self._stop_strings = frozenset(ids), tuple(strings)

    def stream(
        self,
        ids: Sequence[int],
        sampler: SamplerSettings = SamplerSettings(),
        stops: StopSettings = StopSettings(),
        *,
        seed: int | None = None,
        stop_event: threading.Event | None = None,
        top: int = 0,
        started: float | None = None,
    ) -> Generator[Prefill | Text | Done, None, None]:
        """Go on from `ids`: `Prefill` progress, then `Text`, then one `Done`.

        The model's own stop tokens always end it, besides those of `stops`. The seed is `seed`, else the sampler's, else a
        random one; `Done.stats.seed` tells. `top` asks for that many alternatives of each token; `started` is when the
        request came (`time.perf_counter`). Raises `ContextTooLong` and `BadSetting` before anything runs.
        """
        own = frozenset(self.tokenizer.stop_token_ids)
        rules = StopRules(own | frozenset(stops.stop_token_ids), stops.stop_strings, stops.max_tokens)
        seed = _chosen_seed(seed, sampler.seed)
        job, clock = self._job(ids, sampler, seed, rules, Wanted(top=top)), Clock(started or time.perf_counter())
        self.close()
        self._steps = write(self.cache, job, clock, stop_event)
        return _events(self._steps, job, clock, seed)

    def begin_stream_ex(
        self,
        input_ids: Any,
        gen_settings: SamplerSettings,
        token_healing: bool = False,
        loras: Any = None,
        input_mask: Any = None,
        position_offsets: Any = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: Any = None,
        decode_special_tokens: bool = False,
        banned_strings: Any = None,
        filters: Any = None,
        filter_prefer_eos: bool = False,
        max_new_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Read the prompt and get ready for `stream_ex`. Blocks until the prompt is in the cache or `abort_event` is set.

        `input_ids` is a list, or an array or tensor of shape (n,) or (1, n). A sequence that was open is closed.
        Raises `NotSupportedYet` for what this version cannot do, `ContextTooLong` and `BadSetting` for a prompt it cannot run.
        """
        _refuse_unless_default(
            token_healing=(token_healing, False), loras=(loras, None), input_mask=(input_mask, None),
            position_offsets=(position_offsets, None), input_embeddings=(input_embeddings, None),
            banned_strings=(banned_strings, None), filters=(filters, None), filter_prefer_eos=(filter_prefer_eos, False),
        )
        wanted = Wanted(return_top_tokens, return_logits, decode_special_tokens)
        seed, clock = _chosen_seed(seed, gen_settings.seed), Clock(time.perf_counter())
        rules = StopRules(self._stop_ids, self._stop_strings, max_new_tokens or 0)
        job = self._job(_as_list(input_ids), gen_settings, seed, rules, wanted)
        self.close()
        self._steps = write(self.cache, job, clock, abort_event)
        self._begun = _Begun(job, clock, seed, wanted, return_probabilities)
        for step in self._steps:
            if isinstance(step, Emission):  # aborted while the prompt was read
                self._begun.waiting = step
                break
            if step.done == step.total:
                break

    def stream_ex(self, ban_tokens: Sequence[int] | None = None) -> dict[str, Any]:
        """Draw one token, with the ids in `ban_tokens` blocked, and return what it made certain.

        Always: `chunk` (str, may be empty while text is held back), `eos` (bool), `chunk_token_ids` ((1, n) int64, n >= 0).
        Asked for: `probs` (1, n), `top_tokens` and `top_probs` (1, n, k) - where fewer than k tokens survive the sampler the
        rest is id 0 with probability 0 - and `logits` (1, n, V), the model's own. With eos: `reason` (one of
        `core.STOP_REASONS`), `trigger` (stop string or text of the stop token) and `stats` (`core.Stats`). All arrays are
        NumPy's; `torch.from_numpy` shares their memory. Calling on after eos returns an empty last result again.
        """
        begun = self._begun
        if begun is None or self._steps is None:
            raise RuntimeError("begin_stream_ex comes before stream_ex")
        if begun.last is not None:
            return begun.last | begun.arrays((), self.model.config.vocab_size) | {"chunk": ""}
        begun.job.banned = tuple(ban_tokens or ())
        emission = begun.waiting or next(self._steps)
        assert isinstance(emission, Emission)
        result: dict[str, Any] = {"chunk": emission.text, "eos": bool(emission.reason)}
        result |= begun.arrays(emission.tokens, self.model.config.vocab_size)
        if emission.reason:
            stats = begun.clock.stats(begun.job, begun.seed)
            result |= {"reason": emission.reason, "trigger": emission.trigger, "stats": stats}
            begun.last = result
            self._steps.close()
        return result

    def close(self) -> None:
        """End the open sequence, if any, and give its pages back; what was run stays cached."""
        if self._steps is not None:
            self._steps.close()
        self._steps = self._begun = None

    def _job(self, ids: Sequence[int], sampler: SamplerSettings, seed: int, rules: StopRules, wanted: Wanted) -> Job:
        check_prompt(ids, self.model.config.vocab_size, self.cache.context_length)
        return Job(self.tokenizer, ids, Sampler(sampler, seed), rules, context_length=self.cache.context_length, wanted=wanted)


@dataclass
class _Begun:
    """What `begin_stream_ex` leaves for `stream_ex`."""

    job: Job
    clock: Clock
    seed: int
    wanted: Wanted
    probabilities: bool
    waiting: Emission | None = None
    last: dict[str, Any] | None = None

    def arrays(self, tokens: Sequence[WrittenToken], vocab_size: int) -> dict[str, npt.NDArray[Any]]:
        """The array-valued part of a result."""
        infos, k = [token.info for token in tokens], self.wanted.top
        out: dict[str, npt.NDArray[Any]] = {"chunk_token_ids": np.array([[info.id for info in infos]], dtype=np.int64)}
        if self.probabilities:
            out["probs"] = np.array([[info.probability for info in infos]], dtype=np.float32)
        if k:
            padded = [info.top + ((0, 0.0),) * (k - len(info.top)) for info in infos]
            out["top_tokens"] = np.array([token for row in padded for token, _ in row], dtype=np.int64).reshape(1, len(infos), k)
            out["top_probs"] = np.array([share for row in padded for _, share in row], dtype=np.float32).reshape(1, len(infos), k)
        if self.wanted.logits:
            rows = [token.logits for token in tokens if token.logits is not None]
            out["logits"] = np.array(rows, dtype=np.float32).reshape(1, len(rows), vocab_size)
        return out


def _events(steps: Steps, job: Job, clock: Clock, seed: int) -> Generator[Prefill | Text | Done, None, None]:
    try:
        for step in steps:
            if isinstance(step, Prefill):
                yield step
                continue
            if step.text or step.tokens:
                yield Text(step.text, tuple(token.info for token in step.tokens))
            if step.reason:
                yield Done(step.reason, step.trigger, clock.stats(job, seed))
    finally:
        steps.close()


def _chosen_seed(*seeds: int | None) -> int:
    """The first seed that is set, or a new one."""
    return next((seed for seed in seeds if seed is not None), new_seed())


def _as_list(ids: Any) -> list[int]:
    """Ids from a list, or from anything array-like of shape (n,) or (1, n); raises ValueError for other shapes."""
    array = np.asarray(ids)
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"input_ids must be whole numbers of shape (n,) or (1, n), not {array.dtype} {array.shape}")
    return [int(token) for token in array]


def _refuse_unless_default(**arguments: tuple[Any, Any]) -> None:
    """Raise `NotSupportedYet` naming the first argument whose value is not its default."""
    for name, (value, default) in arguments.items():
        if value is default or (isinstance(default, (bool, int)) and value == default):
            continue
        raise NotSupportedYet(f"This version does not support `{name}` yet; leave it at {default!r}.")
