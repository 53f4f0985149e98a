"""`ExLlamaV2DynamicJob`: one sequence of the dynamic generator, and what `iterate` reports of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from engine.compat.exllamav2.attributes import Declared, constructor_ignores_others
from engine.compat.exllamav2.generator.base import check_settings, output_settings
from engine.compat.exllamav2.generator.filters.followed import engine_filters
from engine.compat.exllamav2.settings import Settings
from engine.compat.exllamav2.step_by_step import prompt_rows
from engine.compat.exllamav2.vision import checked_embeddings
from engine.core import PAGE_TOKENS, Done, Prefill, Text
from engine.generator.job import Failed, Job, JobEvent, Started
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.token_buffer import WrittenToken
from engine.lazy_dataclass import dataclass
from engine.settings import ConstraintSettings, SpeculationSettings
from engine.text.stops.conditions import StopRules

if TYPE_CHECKING:
    from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

_REASONS = {"max_tokens": "max_new_tokens"}


class _Ids:
    """Ids as `SeqTensor` gives them."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)

    def torch(self) -> Any:
        """(1, n) int64."""
        import torch

        return torch.tensor([self._ids], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self._ids)


class _Sequence:
    """The prompt (`input_ids`) of a job or its negative prompt, and with the reply (`sequence_ids`)."""

    def __init__(self, prompt: Sequence[int], reply: Sequence[int]) -> None:
        self.input_ids, self.sequence_ids = _Ids(prompt), _Ids([*prompt, *reply])


@constructor_ignores_others
@dataclass(eq=False, repr=False)
class ExLlamaV2DynamicJob(Declared):
    """One sequence to generate: `input_ids` (1, n), or with guidance two of these, a prompt and a negative
    one.

    Without `stop_conditions` only `max_new_tokens` ends it. `embeddings` are the pictures whose tokens are
    among the ids. Raises ValueError for ids of another shape.
    """

    missing: ClassVar[Any] = dict.fromkeys(
        ("held_text", "held_tokens", "held_probs", "held_k_tokens", "held_k_probs", "held_logits",
         "checkpoint", "all_unique_hashes", "generator", "rng", "prefix_token", "current_new_page",
         "max_cached_pages", "non_sequential_pages", "total_pages", "allocated_pages", "skips", "ngrams",
         "ngram_position", "alt_rope_embed", "alt_rope_offset", "stop_tokens_list", "stop_strings_list",
         "stop_strings_utf32_buffer", "stop_strings_utf32_offsets", "banned_strings_utf32_buffer",
         "banned_strings_utf32_offsets", "Sequence", "is_prefill_done", "get_max_seq_len",
         "get_input_ids_list", "receive_logits", "receive_sample", "prepare_for_queue",
         "current_new_pages_required", "prefill", "get_block_index", "allocate_pages", "deallocate_pages"),
        "it is the inner state of ExLlamaV2's loop",
    ) | dict.fromkeys(
        ("time_enqueue", "time_first_prefill", "time_first_token", "time_last_token", "cached_pages",
         "cached_tokens", "accepted_draft_tokens", "rejected_draft_tokens"),
        "the last dict of the job has times and counts",
    ) | dict.fromkeys(("stop_tokens", "stop_strings"), "stop_conditions has them")  # fmt: skip
    input_ids: Any
    max_new_tokens: int
    min_new_tokens: int = 0
    max_skips: int | None = 4
    gen_settings: Settings | None = None
    seed: int | None = None
    stop_conditions: Sequence[Any] | None = None
    decode_special_tokens: bool = False
    return_top_tokens: int = 0
    return_logits: bool = False
    return_probs: bool = False
    filters: Sequence[Any] | None = None
    filter_prefer_eos: bool = False
    token_healing: bool = False
    identifier: Any = None
    banned_strings: Sequence[str] | None = None
    embeddings: Any = None
    full_completion: str = field(default="", init=False)
    new_tokens: int = field(default=0, init=False)
    is_finished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.embeddings = checked_embeddings(self.embeddings)
        self.max_new_tokens = _whole("max_new_tokens", self.max_new_tokens)
        self._settings = self.gen_settings if self.gen_settings is not None else Settings()
        check_settings(self._settings)
        scale = self._settings.cfg_scale
        self._prompts = _prompts(self.input_ids, scale)
        rules = StopRules.from_conditions([one for one in self.stop_conditions or () if one is not None])
        banned = tuple(self.banned_strings or ())
        self._request = GenerationRequest(
            self._prompts[0], stops=rules, output=output_settings(self.decode_special_tokens), seed=self.seed,
            guidance=None if scale is None else Guidance(tuple(self._prompts[1]), float(scale)),
            constraint=ConstraintSettings(banned_strings=banned, ban_ignore_case=True),
            prefer_end=bool(self.filter_prefer_eos or self._settings.filter_prefer_eos),
            top_tokens=self.return_top_tokens, logits=self.return_logits,
            heal=self.token_healing and len(self._prompts[0]) > 1,
        )  # fmt: skip
        self._job: Job | None = None
        self._enqueued = self._started = 0.0
        self._last: Text | None = None

    @property
    def serial_number(self) -> int | None:
        """Its number, once it is enqueued."""
        return self._job.serial if self._job is not None else None

    @property
    def own_filters(self) -> Sequence[Any]:
        """Its filters, else those of its settings."""
        return self.filters or self._settings.filters

    @property
    def sequences(self) -> list[Any]:
        """The prompt and, with guidance, the negative one: `input_ids.torch()`, `sequence_ids.torch()`."""
        reply: list[int] = self._job.ids[len(self._prompts[0]) :] if self._job is not None else []
        return [_Sequence(prompt, reply) for prompt in self._prompts]

    def engine_job(
        self, tokenizer: ExLlamaV2Tokenizer, speculation: SpeculationSettings, longest: int
    ) -> Job:
        """The engine's job for this one, at most `longest` tokens with its prompt."""
        room = max(1, longest - len(self._prompts[0]))
        rules = self._request.stops
        assert isinstance(rules, StopRules)
        request = replace(
            self._request, sampler=self._settings.frozen(), speculation=speculation,
            tables=self._settings.tables(tokenizer.engine_tokenizer),
            filters=engine_filters(self.own_filters, tokenizer.engine_tokenizer),
            stops=replace(
                rules, max_tokens=max(1, min(self.max_new_tokens, room)), min_tokens=self.min_new_tokens
            ),
        )  # fmt: skip
        self._job = Job(
            request, identifier=self, max_skips=1 << 30 if self.max_skips is None else self.max_skips
        )
        self._enqueued = self._started = time.perf_counter()
        return self._job

    def results(self, event: JobEvent, tokenizer: ExLlamaV2Tokenizer) -> Iterator[dict[str, Any]]:
        """The dicts that report an event. Raises a job's error.

        Every dict has `job`, `stage`, `serial` and `eos`, and `identifier` if there is one. With eos, `held`
        is what ended the reply and is not part of it: a stop token (`token_ids`, and `text` if that would be
        shown), or the `text` of a stop string.
        """
        what, step = event.event, event.step
        if isinstance(what, Failed):
            raise what.error
        if isinstance(what, Started):
            self._started = time.perf_counter()
            yield self._result("started")
        elif isinstance(what, Prefill):
            yield self._result("prefill", curr_progress=what.done, max_progress=what.total)
        elif isinstance(what, Text):
            self.full_completion += what.text
            self.new_tokens += len(what.tokens)
            if step is not None and step.reason:
                self._last = what  # the dict of its end has it
            else:
                yield self._streamed(what, step.tokens if step is not None else (), tokenizer)
        elif isinstance(what, Done):
            tokens = step.tokens if step is not None else ()
            self.is_finished = True
            result = self._streamed(self._last or Text(""), tokens if self._last else (), tokenizer)
            yield result | {"eos": True} | self._summary(what, tokenizer)

    def _result(self, stage: str, **more: Any) -> dict[str, Any]:
        found = {"job": self, "stage": stage, "eos": False, "serial": self.serial_number}
        return found | ({} if self.identifier is None else {"identifier": self.identifier}) | more

    def _streamed(
        self, what: Text, tokens: Sequence[WrittenToken], tokenizer: ExLlamaV2Tokenizer
    ) -> dict[str, Any]:
        import torch

        result = self._result("streaming")
        if what.text:
            result["text"] = what.text
        if what.suppressed:
            ids = tokenizer.encode(what.suppressed)
            result |= {"suppressed_text": what.suppressed, "suppressed_tokens": ids}
        infos = [token.info for token in tokens]
        if not infos:
            return result
        result["token_ids"] = torch.tensor([[info.id for info in infos]], dtype=torch.int64)
        if self.return_probs:
            result["token_probs"] = torch.tensor([[info.probability for info in infos]])
        if top := self.return_top_tokens:
            pairs = [(*info.top, *((0, 0.0),) * (top - len(info.top))) for info in infos]
            result["top_k_tokens"] = torch.tensor([[[id for id, _ in row] for row in pairs]])
            result["top_k_probs"] = torch.tensor([[[share for _, share in row] for row in pairs]])
        if self.return_logits:
            rows = [torch.from_numpy(token.logits.copy()) for token in tokens if token.logits is not None]
            if rows:
                result["logits"] = torch.stack(rows)[None]
        return result

    def _summary(self, done: Done, tokenizer: ExLlamaV2Tokenizer) -> dict[str, Any]:
        stats = done.stats
        waited = self._started - self._enqueued
        found: dict[str, Any] = {
            "eos_reason": _REASONS.get(done.reason, done.reason),
            "full_completion": self.full_completion,
            "new_tokens": stats.new_tokens,
            "prompt_tokens": stats.prompt_tokens,
            "time_enqueued": waited,
            "time_prefill": max(stats.prefill_seconds, stats.first_token_seconds - waited),
            "time_generate": stats.decode_seconds,
            "cached_pages": stats.cached_tokens // PAGE_TOKENS,
            "cached_tokens": stats.cached_tokens,
        }
        if self._job is not None and self._job.request.speculation.method != "none":
            found["accepted_draft_tokens"] = stats.accepted_tokens
            found["rejected_draft_tokens"] = stats.drafted_tokens - stats.accepted_tokens
        if done.reason == "stop_token" and self._job is not None:
            token = self._job.ids[-1]
            found |= {"eos_triggering_token_id": token, "eos_triggering_token_str": done.trigger}
            found["held"] = {"token_ids": _Ids([token]).torch()}
            if self.decode_special_tokens or token not in tokenizer.extended_id_to_piece:
                found["held"]["text"] = done.trigger
        elif done.reason == "stop_string":
            found |= {"eos_triggering_string": done.trigger, "held": {"text": done.trigger}}
        return found


def _whole(name: str, given: Any) -> int:
    """A number of tokens. Raises TypeError, as for a list: each job has a number of its own."""
    try:
        whole = int(given)
    except (TypeError, ValueError):
        whole = None
    if whole is None or whole != given:
        raise TypeError(f"{name} is {given!r}, but a whole number was expected; it counts for all prompts.")
    return whole


def _prompts(ids: Any, scale: float | None) -> list[list[int]]:
    """The prompt, and with guidance the negative one. Raises ValueError for another number of them."""
    several = isinstance(ids, list | tuple) and not all(isinstance(one, int) for one in ids)
    rows = [prompt_rows(row, None, None, None)[0] for row in (ids if several else [ids])]
    if len(rows) != (1 if scale is None else 2):
        raise ValueError(
            f"the job has {len(rows)} prompts, but cfg_scale is {scale}: guidance needs two prompts "
            "and a scale"
        )
    return rows
