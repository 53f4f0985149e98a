"""DynamicGenerator: many sequences at once, whose passes run together."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.core import Done, Text, Waiting
from engine.drain import drain
from engine.errors import BadSetting
from engine.generator.adapter_slot import AdapterSlot
from engine.generator.drafting.drafters import Drafters
from engine.generator.job import ENDED, NEW, Failed, Job, JobEvent, Setup, Started
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.scheduler import Scheduler, StreamEvent
from engine.lazy_dataclass import dataclass
from engine.models.paged import PagedCache
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

if TYPE_CHECKING:
    from engine.models.base import Model

__all__ = ["DynamicGenerator", "Failed", "Generated", "Job", "JobEvent", "Setup", "Started"]

MOST_JOBS = 256
Prompt = str | tuple[str, str]
"""A prompt, or with guidance a prompt and a negative one."""
Adapters = Sequence[tuple[str, float]]
"""LoRA adapters: (path, strength) of each."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One whole reply of `DynamicGenerator.generate`: its text, after the prompt unless only the completion
    was asked for, its new ids, and its last event.
    """

    text: str
    ids: tuple[int, ...]
    done: Done


class DynamicGenerator:
    """Generates many sequences at once with a model, its cache and its tokenizer.

    `enqueue` jobs, then call `iterate` until `num_remaining_jobs` is 0: each call runs what is next and
    returns what happened. Pages of the cache are taken when they are needed, full ones shared between jobs
    with equal beginnings. Up to `max_batch_size` jobs run at a time; a prompt is read in chunks of at most
    `max_chunk_size` tokens (0: as suits the device and what else runs). `drafters` may be those of another
    generator with the same cache. One thread uses a generator.
    """

    def __init__(
        self,
        model: Model,
        cache: PagedCache,
        tokenizer: Tokenizer,
        drafters: Drafters | None = None,
        *,
        max_batch_size: int = MOST_JOBS,
        max_chunk_size: int = 0,
    ) -> None:
        """Raises ValueError for a cache of another model, and `BadSetting` for sizes out of range."""
        if cache.model is not model:
            raise ValueError("the cache was made for another model")
        if max_batch_size < 1 or max_chunk_size < 0:
            raise BadSetting(
                _(
                    "max_batch_size is {max_batch_size} and max_chunk_size {max_chunk_size}; the "
                    "first must be at least 1, the second at least 0.",
                    max_batch_size=max_batch_size,
                    max_chunk_size=max_chunk_size,
                )
            )
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self.drafters = drafters or Drafters(cache, tokenizer.vocab_size)
        self._scheduler = Scheduler(
            cache, tokenizer, self.drafters, max_batch_size, min(max_chunk_size, cache.rows)
        )

    # -- jobs

    def enqueue(self, jobs: Job | Iterable[Job]) -> int | list[int]:
        """Put a job, or several, into the queue; returns its serial number, or theirs.

        Raises `BadSetting` and `ContextTooLong` for a request that cannot be run, and ValueError for a job
        that was enqueued before; none of the jobs is in the queue then.
        """
        if isinstance(jobs, Job):
            return self._enqueue([jobs])[0]
        return self._enqueue(list(jobs))

    def _enqueue(self, jobs: list[Job]) -> list[int]:
        try:
            for job in jobs:
                if job.state != NEW:
                    raise ValueError("this job was enqueued before; make a new one")
                self._scheduler.add(job)
        except BaseException:
            for job in jobs:
                if job.state != NEW:
                    self._scheduler.remove(job)
            raise
        return [job.serial for job in jobs]

    def iterate(self) -> list[JobEvent]:
        """Run what is next: a chunk of a prompt, or one pass for every reply. Returns what happened, in
        order; nothing if there is no job.

        An error of a job is its last event, `Failed`; the others go on.
        """
        return self._scheduler.iterate()

    def cancel(self, job: Job) -> None:
        """End a job, which has no further events; what it has read stays cached."""
        if job.state != ENDED:
            self._scheduler.remove(job)
        self._scheduler.unheard = [event for event in self._scheduler.unheard if event.job is not job]

    def clear_queue(self) -> None:
        """Cancel all jobs."""
        for job in [*self._scheduler.pending, *self._scheduler.active]:
            self.cancel(job)

    @property
    def pending(self) -> Sequence[Job]:
        """The jobs in the queue."""
        return tuple(self._scheduler.pending)

    @property
    def active(self) -> Sequence[Job]:
        """The jobs that run."""
        return tuple(self._scheduler.active)

    @property
    def num_remaining_jobs(self) -> int:
        """How many jobs have not ended, or have events that `iterate` has not returned."""
        ended = sum(isinstance(event, Done | Failed) for _job, event, _place in self._scheduler.unheard)
        return len(self._scheduler.pending) + len(self._scheduler.active) + ended

    def set_loras(self, adapters: Adapters) -> None:
        """Put exactly these adapters on the model, for all jobs without a setup.

        Raises RuntimeError while jobs are in the queue or run, and as `AdapterSlot.apply`.
        """
        if self.num_remaining_jobs:
            raise RuntimeError("Adapters can be changed only while there are no jobs; end the jobs first.")
        drain(AdapterSlot(self.cache).apply(adapters))

    def close(self) -> None:
        """Cancel all jobs; what they have read stays cached."""
        self.clear_queue()

    def with_adapters(self, adapters: Adapters) -> Setup:
        """The setup of a job that needs exactly these adapters on the model."""
        slot = AdapterSlot(self.cache)
        return Setup(lambda: slot.holds(adapters), lambda stop: slot.apply(adapters, stop))

    def borrow(self, setup: Setup) -> AbstractContextManager[Generator[Waiting, None, None]]:
        """Passes beside the jobs, on leases of the caller's: the model is as `setup` has it once the iterator
        has come to its end, and stays so until the context's. The iterator raises what the setup raises.
        """
        return self._scheduler.borrowers.borrow(setup)

    # -- one reply among others

    def stream(
        self, request: GenerationRequest, stop: threading.Event | None = None
    ) -> Generator[StreamEvent, None, None]:
        """The events of one sequence, as `StreamingGenerator.stream`; any number of them may be open.

        Asking one of them for its next event goes on with all: the events of the others wait for their own
        iterators, and `Waiting` comes where it has nothing new itself. Closing it cancels its job. Raises
        `BadSetting` and `ContextTooLong` before anything runs.
        """
        return self.events(Job(request, stop=stop))

    def events(self, job: Job) -> Generator[StreamEvent, None, None]:
        """The events of a job, which is enqueued now, as `stream`; ValueError for one that was before."""
        if job.state != NEW:
            raise ValueError("this job was enqueued before; make a new one")
        return self._scheduler.events(job)

    # -- whole replies

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        request: GenerationRequest | Sequence[GenerationRequest],
        *,
        encode_special_tokens: bool = False,
        add_bos: bool = False,
        completion_only: bool = False,
        abort_event: threading.Event | None = None,
        guidance_scale: float = 1.0,
        adapters: Sequence[Adapters] | None = None,
    ) -> Any:
        """Whole replies to a prompt, or to a list of them: a `Generated`, or a list.

        `request` is for all prompts or one for each; its ids are the prompt's. Prompt i has the seed of its
        request plus i if one request with a seed is for all. A pair is a prompt and its negative prompt, with
        the guidance scale of the request or `guidance_scale`. `adapters` has those of each prompt; prompts
        with equal ones run together. Setting `abort_event` cancels all jobs and returns None. What a job
        raises cancels the others and is raised. Raises ValueError for one request with filters for several
        prompts.
        """
        one = isinstance(prompt, str | tuple)
        prompts: list[Prompt] = [prompt] if isinstance(prompt, str | tuple) else list(prompt)
        requests = [request] * len(prompts) if isinstance(request, GenerationRequest) else list(request)
        if len(requests) != len(prompts):
            raise BadSetting(
                _(
                    "There are {prompts} prompts and {requests} requests; give one for all "
                    "prompts, or one for each.",
                    prompts=len(prompts),
                    requests=len(requests),
                )
            )
        if len(prompts) > 1 and isinstance(request, GenerationRequest) and request.filters:
            raise ValueError("filters belong to one reply: give one request for each prompt")
        setups = [None] * len(prompts) if adapters is None else [*map(self.with_adapters, adapters)]
        if len(setups) != len(prompts):
            raise BadSetting(
                _(
                    "There are {prompts} prompts and adapters for {setups} of them.",
                    prompts=len(prompts),
                    setups=len(setups),
                )
            )
        jobs = []
        for number, (text, asked) in enumerate(zip(prompts, requests, strict=True)):
            texts = (text,) if isinstance(text, str) else text
            ids = [self.tokenizer.encode(t, special=encode_special_tokens, add_bos=add_bos) for t in texts]
            scale = asked.guidance.scale if asked.guidance is not None else guidance_scale
            seed = asked.fixed_seed
            if seed is not None and isinstance(request, GenerationRequest):
                seed += number
            guidance = Guidance(tuple(ids[1]), scale) if len(ids) > 1 else None
            asked = replace(asked, ids=ids[0], guidance=guidance, seed=seed)
            jobs.append(Job(asked, identifier=number, setup=setups[number]))
        self._enqueue(jobs)
        found = self._whole(jobs, abort_event)
        if found is None:
            return None
        results = [
            each if completion_only else replace(each, text=(p if isinstance(p, str) else p[0]) + each.text)
            for p, each in zip(prompts, found, strict=True)
        ]
        return results[0] if one else results

    def _whole(self, jobs: Sequence[Job], abort: threading.Event | None) -> list[Generated] | None:
        """Run jobs to their ends; None if `abort` was set."""
        texts, ends = dict.fromkeys(jobs, ""), dict[Job, Done]()
        ids: dict[Job, list[int]] = {job: [] for job in jobs}
        try:
            while len(ends) < len(jobs):
                if abort is not None and abort.is_set():
                    return None
                for job, event, _unused in self.iterate():
                    if job not in texts:
                        continue
                    if isinstance(event, Failed):
                        try:
                            raise event.error
                        finally:
                            del event  # or the error would hold itself
                    if isinstance(event, Text):
                        texts[job] += event.text
                        ids[job] += [token.id for token in event.tokens]
                    elif isinstance(event, Done):
                        ends[job] = event
        finally:
            for job in jobs:
                self.cancel(job)
        return [Generated(texts[job], tuple(ids[job]), ends[job]) for job in jobs]
