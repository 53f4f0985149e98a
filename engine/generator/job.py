"""Job: one sequence of a `DynamicGenerator`, from the queue to its last event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple, final

from engine.core import Done, Loading, Prefill, Priority, Running, Text
from engine.generator.opening import CheckedRequest, OpenSequence, checked
from engine.generator.request import GenerationRequest
from engine.generator.runner import ModelPass
from engine.generator.sequence import StepOutput
from engine.lazy_dataclass import dataclass
from engine.models.paged import PagedCache
from engine.tensors import Floats
from engine.text.tokenizer.tokenizer import Tokenizer

NEW, PENDING, ACTIVE, SUSPENDED, ENDED = "new", "pending", "active", "suspended", "ended"
"""States of a job: not enqueued yet; in the queue; running; in the queue again, because others needed its
pages; over.
"""
_WAIT_SECONDS = 0.005
"""How long a turn waits at a time where all jobs wait for other threads."""


@final
@dataclass(frozen=True, slots=True)
class Started:
    """A job has left the queue: its prompt is about to be read."""


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a job that raised an error."""

    error: BaseException


class JobEvent(NamedTuple):
    """Something that happened to a job. `step` is what a `Text` or `Done` was made of."""

    job: Job
    event: Started | Loading | Prefill | Text | Running | Done | Failed
    step: StepOutput | None = None


class Setup(NamedTuple):
    """What must hold of the model while a job runs, such as its adapters: `holds` tells whether a job may
    start beside others, `run` brings it about before a job that starts alone. `tokenizer` is that of the
    model then (None: as before), and `vocabulary` its size (0: as it is now).
    """

    holds: Callable[[], bool]
    run: Callable[[threading.Event], Generator[Loading, None, None]]
    tokenizer: Tokenizer | None = None
    vocabulary: int = 0


class Job:
    """One sequence to generate.

    `identifier` is the caller's own. Of several jobs, those of higher `priority` come first; below 0 they
    run only while no other job could. A job that does not fit is overtaken by at most `max_skips` others.
    Setting `stop` ends it after the running step, with reason "cancelled".
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        identifier: Any = None,
        priority: int | Priority = 0,
        max_skips: int = 4,
        stop: threading.Event | None = None,
        setup: Setup | None = None,
    ) -> None:
        self.request = request
        self.identifier = identifier
        self._priority = priority if isinstance(priority, Priority) else Priority(priority)
        self.max_skips = max_skips
        self.stop = stop or threading.Event()
        self.setup = setup
        self.serial = 0
        """Its number, from 1, in the order of enqueuing; 0 before."""
        self.state = NEW
        self.checked: CheckedRequest | None = None
        self.opened: OpenSequence | None = None
        self.waits_for: ModelPass | None = None
        """The pass that the sequence waits for, while it runs."""
        self.busy: Future[Any] | None = None
        """What the sequence waits for that runs on another thread."""
        self.resuming: Generator[ModelPass, Floats | None, None] | None = None
        """Reads again what was lost while the job was suspended, until it can do what it then waited for."""
        self.then: ModelPass | None = None
        self.skips = 0
        self.reading: tuple[tuple[tuple[int, int], ...], ...] = ()
        """As `StreamingGenerator.reading`, from its first `Prefill` on."""

    @property
    def priority(self) -> int:
        """Its priority as it is now."""
        return self._priority.value

    def checked_for(self, cache: PagedCache, tokenizer: Tokenizer) -> CheckedRequest:
        """Its request for a model with this `tokenizer`, or that of its setup. Raises as `checked`."""
        if self.setup is None:
            return checked(self.request, cache, tokenizer)
        return checked(self.request, cache, self.setup.tokenizer or tokenizer, self.setup.vocabulary)

    @property
    def queued(self) -> bool:
        """Whether it waits in the queue, for the first time or because others needed its pages."""
        return self.state in (PENDING, SUSPENDED)

    @property
    def ids(self) -> list[int]:
        """The prompt and every token so far."""
        return self.opened.sequence.ids if self.opened is not None else list(self.request.ids)

    @property
    def left(self) -> int:
        """How many tokens of its prompt it still has to read, once it runs."""
        return self.opened.runner.left if self.opened is not None else 0

    @property
    def own_pages(self) -> int:
        """How many pages it alone holds."""
        return self.opened.runner.own_pages if self.opened is not None else 0

    @property
    def reads(self) -> bool:
        """Whether its next pass reads a chunk of a prompt."""
        return self.waits_for is not None and self.waits_for.reads

    @property
    def goes_on(self) -> bool:
        """Whether its next step needs no pass: its decode loop goes on, or what it waited for is done."""
        return self.waits_for is None and (self.busy is None or self.busy.done() or self.stop.is_set())

    def step(self, logits: Floats | None) -> Prefill | StepOutput | ModelPass | Future[Any]:
        """The next step of its sequence, after the logits of its pass; one that was suspended first reads
        again what it lost.
        """
        assert self.opened is not None
        if self.resuming is None:
            return self.opened.loop.send(logits)
        try:
            return self.resuming.send(logits)
        except StopIteration:
            self.resuming, then = None, self.then
            return then if then is not None else self.opened.loop.send(None)


def wait_for(jobs: Sequence[Job]) -> None:
    """Wait a moment for what these jobs need of other threads, unless one of them can go on."""
    if jobs and not any(job.goes_on for job in jobs):
        wait([job.busy for job in jobs if job.busy is not None], _WAIT_SECONDS, FIRST_COMPLETED)
