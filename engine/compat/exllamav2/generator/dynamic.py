"""`ExLlamaV2DynamicGenerator`: many sequences at once, under ExLlamaV2's names."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

from engine.compat.exllamav2.attributes import Declared, constructor_ignores_others, ignores_others
from engine.compat.exllamav2.cache import ExLlamaV2CacheBase
from engine.compat.exllamav2.generator.dynamic_job import ExLlamaV2DynamicJob
from engine.compat.exllamav2.lora import adapters_of
from engine.compat.exllamav2.model import ExLlamaV2
from engine.compat.exllamav2.settings import Settings
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer
from engine.compat.exllamav2.vision import ExLlamaV2MMEmbedding, checked_embeddings
from engine.core import PAGE_TOKENS
from engine.errors import BadSetting
from engine.generator.dynamic import MOST_JOBS, DynamicGenerator
from engine.generator.job import JobEvent
from engine.lazy_dataclass import dataclass
from engine.settings import SpeculationSettings
from engine.speculation.compatible import draft_problem

__all__ = ["ExLlamaV2DynamicGenerator", "ExLlamaV2DynamicJob"]

_MOST_DRAFTS = 7


@constructor_ignores_others
@dataclass(eq=False, repr=False)
class ExLlamaV2DynamicGenerator(Declared):
    """Runs many jobs at once over one cache, whose `max_seq_len` is the room of all jobs together.

    `max_seq_len` bounds a job with its prompt (None: the cache's context), `max_chunk_size` the tokens of a
    prompt that one pass reads. At most `num_draft_tokens` (up to 7, and below `max_q_size`) are drafted at a
    time. With `paged` False one job runs at a time. The threads of sampling and filters are the engine's own
    affair: `max_sampling_threads`, `min_sampling_threads` and `filter_background_eval` change no result.
    Raises `BadSetting` for a draft model whose vocabulary does not match.
    """

    missing: ClassVar[Any] = dict.fromkeys(
        ("all_pages", "unreferenced_pages", "referenced_pages", "job_serial", "access_serial", "ngram",
         "sampling_pool", "filter_pool", "filter_queue", "paged_params", "get_paged_params",
         "validate_cache", "iterate_start_jobs", "iterate_gen", "iterate_draftmodel_gen",
         "iterate_ngram_gen", "defrag_buffers", "last_defrag_serial", "padded_vocab_size", "logits_pinned",
         "draft_ids_pinned", "draft_input_ids_pinned"),
        "the page table and the queue are the engine's",
    )  # fmt: skip
    model: ExLlamaV2
    cache: ExLlamaV2CacheBase
    tokenizer: ExLlamaV2Tokenizer
    max_batch_size: int | None = None
    max_seq_len: int | None = None
    max_chunk_size: int | None = None
    max_q_size: int = 8
    draft_model: ExLlamaV2 | None = None
    draft_cache: ExLlamaV2CacheBase | None = None
    num_draft_tokens: int = 4
    use_ngram_draft: bool = False
    max_ngram: int = 4
    max_sampling_threads: int = 16
    min_sampling_threads: int = 3
    paged: bool = True
    filter_background_eval: bool = True
    page_size: int = field(init=False)
    max_pages: int = field(init=False)
    max_total_tokens: int = field(init=False)
    current_loras: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        cache, tokenizer = self.cache, self.tokenizer
        self.max_batch_size = (self.max_batch_size or MOST_JOBS) if self.paged else 1
        self._engine = DynamicGenerator(
            self.model.model, cache.paged, tokenizer.engine_tokenizer,
            max_batch_size=self.max_batch_size, max_chunk_size=self.max_chunk_size or 0,
        )  # fmt: skip
        self._longest = min(self.max_seq_len or cache.paged.context_length, cache.paged.context_length)
        self.max_seq_len, self.max_chunk_size = self._longest, self.max_chunk_size or cache.paged.rows
        self.page_size, self.max_pages = PAGE_TOKENS, cache.paged.table.page_count
        self.max_total_tokens, self.current_loras = cache.max_seq_len, []
        self._speculation = self._drafting()
        self._late: list[JobEvent] = []

    @property
    def engine_generator(self) -> DynamicGenerator:
        """The engine's generator."""
        return self._engine

    def _drafting(self) -> SpeculationSettings:
        """The drafting of all jobs; prepares the draft model, if any."""
        model, drafts = self.draft_model, min(self.num_draft_tokens, self.max_q_size - 1, _MOST_DRAFTS)
        if model is not None:
            own = ExLlamaV2Tokenizer(model.config).engine_tokenizer
            problem = draft_problem(self.tokenizer.engine_tokenizer, own)
            if problem:
                raise BadSetting(f"This model cannot draft: {problem}")
            cache = self.draft_cache.paged if self.draft_cache is not None else None
            self.engine_generator.drafters.set_model(model.model, cache)
        if drafts < 1 or not (model is not None or self.use_ngram_draft):
            return SpeculationSettings()
        return SpeculationSettings(
            method="model" if model is not None else "ngram", draft_tokens=drafts,
            ngram_min=1, ngram_max=self.max_ngram,
        )  # fmt: skip

    # -- jobs

    def enqueue(self, job: ExLlamaV2DynamicJob | Sequence[ExLlamaV2DynamicJob]) -> Any:
        """Put a job, or several, into the queue; returns its serial number, or theirs.

        Raises as `DynamicGenerator.enqueue`, and `BadSetting` for a prompt longer than `max_seq_len` and for
        jobs that share a filter.
        """
        jobs = [job] if isinstance(job, ExLlamaV2DynamicJob) else list(job)
        filters = [id(one) for each in jobs for one in each.own_filters]
        if len(set(filters)) < len(filters):
            raise BadSetting("Several prompts share a filter; give each prompt a list of its own filters.")
        self.cache.taken_by(self)
        serials = self.engine_generator.enqueue([self.engine_job(each) for each in jobs])
        return serials[0] if isinstance(job, ExLlamaV2DynamicJob) else serials  # type: ignore[index]

    def engine_job(self, job: ExLlamaV2DynamicJob) -> Any:
        """The engine's job for one of ExLlamaV2's."""
        for prompt in job.sequences:
            if len(prompt.input_ids) >= self._longest:
                raise BadSetting(
                    f"The prompt has {len(prompt.input_ids)} tokens, but max_seq_len is {self._longest}; "
                    "shorten it, or choose a larger max_seq_len."
                )
        for one in job.embeddings or ():
            if self.cache.paged.pictures not in (None, one.store):
                raise BadSetting("The pictures of a generator's jobs must be those of one vision tower.")
            self.cache.paged.pictures = one.store
        return job.engine_job(self.tokenizer, self._speculation, self._longest)

    def iterate(self) -> list[dict[str, Any]]:
        """Run what is next and return what happened, as dicts.

        The error of a job is raised; what happened to the others comes with the next call.
        """
        events = [*self._late, *self.engine_generator.iterate()]
        self._late = []
        results: list[dict[str, Any]] = []
        for place, event in enumerate(events):
            try:
                results += self.results(event)
            except BaseException:
                self._late = [
                    *[each for each in events[:place] if each.job is not event.job],
                    *events[place + 1 :],
                ]
                raise
        return results

    def results(self, event: JobEvent) -> list[dict[str, Any]]:
        """The dicts that report an event of one of the jobs. Raises a job's error."""
        job = event.job.identifier
        return list(job.results(event, self.tokenizer)) if isinstance(job, ExLlamaV2DynamicJob) else []

    def cancel(self, job: ExLlamaV2DynamicJob) -> None:
        """End a job, which has no further results."""
        if job._job is not None:
            self._late = [event for event in self._late if event.job is not job._job]
            self.engine_generator.cancel(job._job)

    def clear_queue(self) -> None:
        """End all jobs."""
        self._late = []
        self.engine_generator.clear_queue()

    def num_remaining_jobs(self) -> int:
        """How many jobs have not ended."""
        return self.engine_generator.num_remaining_jobs + bool(self._late)

    @property
    def pending_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """The jobs in the queue."""
        return [job.identifier for job in self.engine_generator.pending]

    @property
    def active_jobs(self) -> list[ExLlamaV2DynamicJob]:
        """The jobs that run."""
        return [job.identifier for job in self.engine_generator.active]

    def set_loras(self, loras: Any) -> None:
        """Apply these adapters to all jobs from now on. Raises RuntimeError while there are jobs."""
        self.cache.taken_by(self)
        self.engine_generator.set_loras(adapters_of(loras))
        several = isinstance(loras, list | tuple)
        self.current_loras = list(loras) if several else [] if loras is None else [loras]

    # -- whole replies

    @ignores_others
    def generate(
        self,
        prompt: Any,
        max_new_tokens: int,
        min_new_tokens: int = 0,
        seed: int | None = None,
        gen_settings: Settings | Sequence[Settings] | None = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        stop_conditions: Sequence[Any] | None = None,
        add_bos: bool = False,
        abort_event: threading.Event | None = None,
        completion_only: bool = False,
        filters: Any = None,
        filter_prefer_eos: bool = False,
        return_last_results: bool = False,
        embeddings: Any = None,
        banned_strings: Sequence[str] | None = None,
    ) -> Any:
        """Whole replies to a prompt or a list of them, each a text, or a pair of texts for guidance.

        Prompt i has the seed plus i. With `return_last_results` also the last dict of each. None once
        `abort_event` is set. What a job raises ends the others and is raised.
        """
        shown = checked_embeddings(embeddings)
        several = isinstance(prompt, list)
        prompts = list(prompt) if several else [prompt]
        settings, own = _for_each(prompts, gen_settings, filters if several else [filters])
        jobs = [
            ExLlamaV2DynamicJob(
                self._ids(text, encode_special_tokens, add_bos, shown), max_new_tokens, min_new_tokens,
                gen_settings=settings[place], seed=None if seed is None else seed + place,
                stop_conditions=stop_conditions, decode_special_tokens=decode_special_tokens,
                filters=own[place], filter_prefer_eos=filter_prefer_eos, token_healing=token_healing,
                banned_strings=banned_strings, embeddings=shown,
            )
            for place, text in enumerate(prompts)
        ]  # fmt: skip
        last = self._finished(jobs, abort_event)
        if last is None:
            return None
        found = [
            job.full_completion
            if completion_only
            else (text if isinstance(text, str) else text[0]) + job.full_completion
            for text, job in zip(prompts, jobs, strict=True)
        ]
        ends = [last[job] for job in jobs]
        replies, results = (found, ends) if several else (found[0], ends[0])
        return (replies, results) if return_last_results else replies

    def _ids(
        self,
        text: str | Sequence[str],
        encode_special_tokens: bool,
        add_bos: bool,
        embeddings: Sequence[ExLlamaV2MMEmbedding],
    ) -> Any:
        """The ids of a prompt (1, T), or a list of them for a pair."""
        ids = [
            self.tokenizer.encode(
                each, encode_special_tokens=encode_special_tokens, add_bos=add_bos, embeddings=embeddings
            )
            for each in ((text,) if isinstance(text, str) else text)
        ]
        return ids if len(ids) > 1 else ids[0]

    def _finished(
        self, jobs: Sequence[ExLlamaV2DynamicJob], abort: threading.Event | None
    ) -> dict[ExLlamaV2DynamicJob, dict[str, Any]] | None:
        """The last dict of each job; None if `abort` was set."""
        last: dict[ExLlamaV2DynamicJob, dict[str, Any]] = {}
        self.enqueue(jobs)
        try:
            while len(last) < len(jobs):
                last |= {result["job"]: result for result in self.iterate() if result["eos"]}
                if abort is not None and abort.is_set():
                    self.clear_queue()
                    return None
        finally:
            for job in jobs:
                if job not in last:
                    self.cancel(job)
        return last

    # -- the cache

    @property
    def cached_length(self) -> int:
        """0: the jobs' sequences are not rows of the cache."""
        return 0

    def warmup(self) -> None:
        """Run one token, so that the first reply does not wait for initialisation."""
        self.generate("a", 1)

    def reset_page_table(self) -> None:
        """Forget all that is cached. Raises RuntimeError while there are jobs."""
        if self.num_remaining_jobs():
            raise RuntimeError("The page table can be reset only while there are no jobs: end them first.")
        self.cache.paged.table.forget()

    def defrag_cache(self) -> None:
        """Does nothing: pages need not lie in order."""

    def print_page_list(self, short: bool = True) -> None:
        """Print how many pages are free, cached and in use."""
        table = self.cache.paged.table
        used = table.page_count - table.free - table.idle
        print(f"{table.page_count} pages: {table.free} free, {table.idle} cached, {used} in use")

    def close(self) -> None:
        """End all jobs and drop the draft model."""
        self.clear_queue()
        self.engine_generator.drafters.drop_model()


def _for_each(
    prompts: Sequence[Any], gen_settings: Settings | Sequence[Settings] | None, filters: Any
) -> tuple[list[Any], list[Any]]:
    """The settings and the filters of each prompt. Raises `BadSetting` if there are not as many of them."""
    several = isinstance(gen_settings, list | tuple)
    settings = list(gen_settings) if several else [gen_settings] * len(prompts)  # type: ignore[arg-type]
    own = filters or [None] * len(prompts)
    if len(own) != len(prompts) or len(settings) != len(prompts):
        raise BadSetting(
            f"There are {len(prompts)} prompts, {len(own)} lists of filters and {len(settings)} "
            "settings, but one of each is needed for every prompt."
        )
    return settings, own
