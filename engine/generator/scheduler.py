"""Continuous batching: which jobs run, and whose passes run together.

Each turn of `Scheduler.turn` runs one chunk of a prompt, or one pass for every reply. The passes of up to
`Program.batch_rows` rows are joined into one, in which every row gets the bits that it would get alone, so a
reply does not depend on what runs beside it. Chunks of prompts and passes of replies alternate. Pages are
taken when they are needed: where they are short, the youngest job of the lowest priority gives its pages
back, and later reads again what was lost of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future

from engine.core import Done, Loading, Prefill, Running, Stats, Text, Waiting
from engine.errors import ContextTooLong, forget_frames
from engine.generator.admission import first, fits, waits_for_a_reader
from engine.generator.borrowers import Borrowers
from engine.generator.drafting.drafters import Drafters
from engine.generator.job import ACTIVE, ENDED, PENDING, SUSPENDED, Failed, Job, JobEvent, Started, wait_for
from engine.generator.runner import ModelPass
from engine.generator.sequence import StepOutput
from engine.models.paged import PagedCache, SequencePart
from engine.tensors import Floats
from engine.text.tokenizer.tokenizer import Tokenizer

_LEAST_CHUNK, _CHUNKS = 64, 8
"""While replies are written, a chunk has the cache's rows divided by this, and at least this many rows."""
Share = tuple[Job, list[SequencePart], int]
"""A job of a pass, what it runs of it, and the number of its rows."""
StreamEvent = Loading | Waiting | Prefill | Text | Running | Done
"""What `Scheduler.events` yields."""


class Scheduler:
    """The jobs of one cache, used by one thread.

    Up to `most_jobs` run at a time. A chunk of a prompt has at most `chunk` rows (0: as many as suit).
    """

    def __init__(
        self, cache: PagedCache, tokenizer: Tokenizer, drafters: Drafters, most_jobs: int, chunk: int = 0
    ) -> None:
        self.pending: list[Job] = []
        self.active: list[Job] = []
        self._cache, self._tokenizer, self._drafters = cache, tokenizer, drafters
        self._most_jobs, self._chunk = most_jobs, chunk
        self.borrowers = Borrowers(self)
        self._serial = 0
        self.setting_up: tuple[Job, Generator[Loading, None, None]] | None = None
        """The job whose setup is being brought about."""
        self._read_last = False
        self._events: list[JobEvent] = []
        self._errors: list[BaseException] = []
        self._streams: dict[Job, deque[JobEvent]] = {}
        self.unheard: list[JobEvent] = []
        """What happened to other jobs while a stream's next event was asked for."""

    def add(self, job: Job) -> None:
        """Put a job into the queue. Raises `BadSetting` and `ContextTooLong` if it cannot be run."""
        job.checked = job.checked_for(self._cache, self._tokenizer)
        self._serial += 1
        job.serial, job.state = self._serial, PENDING
        self.pending.append(job)

    def remove(self, job: Job) -> None:
        """End a job without further events; its pages are returned, what was run stays cached."""
        if self.setting_up is not None and self.setting_up[0] is job:
            self.setting_up[1].close()
            self.setting_up = None
        if job.opened is not None:
            job.opened.loop.close()
        for jobs in (self.pending, self.active):
            if job in jobs:
                jobs.remove(job)
        job.state, job.waits_for, job.busy, job.resuming = ENDED, None, None, None

    def iterate(self) -> list[JobEvent]:
        """A turn: what happened to the jobs whose events nobody iterates over."""
        found = self.turn()
        self._forget_frames()
        others, self.unheard = self.unheard, []
        for event in found:
            self._streams.get(event.job, others).append(event)
        return others

    def events(self, job: Job) -> Generator[StreamEvent, None, None]:
        """The events of a job, which is added now. Asking for the next one goes on with all jobs.

        Raises as `add`, and what the job raises. Closing it removes the job.
        """
        self.add(job)
        self._streams[job] = deque()
        found = self._events_of(job)
        next(found)  # now it can be closed
        return found

    def _events_of(self, job: Job) -> Generator[StreamEvent, None, None]:
        mine, unread = self._streams[job], 0
        try:
            yield Waiting()
            while True:
                while mine:
                    event = mine.popleft().event
                    if type(event) is Failed:
                        try:
                            raise event.error
                        finally:
                            del event  # or the error would hold itself, and with it the model's memory
                    if type(event) is not Started:
                        yield event
                if job.state == ENDED:
                    return
                # While the others' events are being read, no more are made: drafts may give several at once.
                if len(self._streams) > 1:
                    before, unread = unread, sum(map(len, self._streams.values()))
                    if unread and not 0 < before <= unread:
                        yield Waiting()
                        continue
                unread = 0
                for happened in self.turn():
                    own = happened.job is job
                    (mine if own else self._streams.get(happened.job, self.unheard)).append(happened)
                if self._errors:
                    self._forget_frames()
                if not mine and (job.busy is not None or len(self.pending) + len(self.active) > 1):
                    yield Waiting(job.queued)
        finally:
            self._streams.pop(job, None)
            if job.state != ENDED:
                self.remove(job)

    def _forget_frames(self) -> None:
        """After a turn: let go of what its errors' tracebacks hold, which may be a device's memory."""
        while self._errors:
            forget_frames(self._errors.pop())

    def turn(self) -> list[JobEvent]:
        """Run a prompt's chunk or a pass for all replies, whose errors end their jobs; what happened."""
        self._events = []
        if self.pending or self.setting_up is not None:
            self._end_stopped()
            self._admit()
        if len(self.active) != 1 or self.borrowers.using:
            self._go_on_together()
        elif (model_pass := self._pass_alone(job := self.active[0])) is not None:
            try:  # here, in as few steps as possible: a model on the CPU waits for them
                program, step = self._cache.pass_of(model_pass.parts())
                started = time.perf_counter() if model_pass.timed else 0.0
                logits = program.run(step)
                model_pass.seconds = time.perf_counter() - started if model_pass.timed else 0.0
            except BaseException as error:  # noqa: BLE001 - further jobs may come
                self._fail(job, error)
            else:
                self._advance(job, logits, once=True)
        events, self._events = self._events, []
        return events

    def _pass_alone(self, job: Job) -> ModelPass | None:
        """What the only active job waits for; None if its turn is over without a pass."""
        opened = job.opened
        assert opened is not None
        opened.runner.sharing = 0
        if job.waits_for is None:
            if job.busy is not None:
                wait_for([job])
            if job.busy is None or job.goes_on:
                self._advance(job, None, once=True)
        elif job.stop.is_set():
            self._end_stopped()
        if (needed := job.waits_for) is None or (needed.reads and self._events and job in self._streams):
            return None  # whoever listens hears that the prompt will be read before that takes its time
        self._read_last = needed.reads
        opened.runner.chunk, opened.runner.first_row = self._chunk or self._cache.rows, 0
        return needed

    def _go_on_together(self) -> None:
        """The turn of several active jobs, or of none."""
        self._end_stopped()
        running = self._running()
        for job in self.active:
            assert job.opened is not None
            job.opened.runner.sharing = len(running)
        if not any(job.waits_for is not None for job in running):
            wait_for(running)
        for job in [job for job in self.active if job.goes_on]:
            self._advance(job, None)  # its decode loop ends
        for batch in self._batches([job for job in running if job.waits_for is not None]):
            parts = [part for _, found, _ in batch for part in found]
            try:
                started = time.perf_counter()
                program, step = self._cache.pass_of(parts)
                logits = program.run(step)
                seconds = time.perf_counter() - started
            except BaseException as error:  # noqa: BLE001 - the other jobs go on
                for job, _, _ in batch:
                    self._fail(job, error)
                continue
            row = 0
            for job, _, rows in batch:
                assert job.waits_for is not None
                assert job.opened is not None
                job.waits_for.seconds, job.opened.runner.first_row = seconds, row
                self._advance(job, logits if len(parts) == 1 else logits[row : row + rows])
                row += rows

    def _running(self) -> list[Job]:
        """The jobs whose turn it is, those of the highest priority first; background jobs only alone."""
        jobs = sorted(self.active, key=lambda job: (-job.priority, job.serial))
        return [job for job in jobs if job.priority >= 0] or jobs

    def _batches(self, running: Sequence[Job]) -> Sequence[Sequence[Share]]:
        """What the next passes are for: a chunk of one prompt, or every reply, joined as far as they fit."""
        readers = [job for job in running if job.reads]
        writers = [job for job in running if job not in readers] if readers else running
        self._read_last = bool(readers) and not (writers and self._read_last)
        if self._read_last:
            reader = min(readers, key=lambda job: (-job.priority, job.left, job.serial))
            return self._chunk_of(reader, beside=bool(writers))
        collected: dict[Job, Share] = {}
        for job in writers:
            if job.state == ACTIVE and (share := self._share(job, collected)) is not None:
                collected[job] = share
        batches: list[list[Share]] = []
        room = 0
        for share in collected.values():
            rows = share[2]
            if rows > room:
                batches.append([])
                room = self._cache.program.batch_rows
            batches[-1].append(share)
            room -= rows
        return batches

    def _chunk_of(self, job: Job, *, beside: bool) -> Sequence[Sequence[Share]]:
        """The next chunk of a prompt: a short one beside replies."""
        assert job.opened is not None
        rows = self._cache.rows
        job.opened.runner.chunk = self._chunk or (max(_LEAST_CHUNK, rows // _CHUNKS) if beside else rows)
        share = self._share(job, {})
        return [[share]] if share is not None else []

    def _share(self, job: Job, collected: dict[Job, Share]) -> Share | None:
        """What a job's pass runs, with its pages reserved. If there are none, the last of all jobs, in the
        order of `_running`, is suspended and leaves `collected`, where it is only if a priority has changed
        meanwhile; None if it is this one.
        """
        while True:
            assert job.waits_for is not None
            try:
                parts, rows = job.waits_for.parts(), 0
                for part in parts:
                    count = len(part.ids)
                    self._cache.reserve(part.lease, len(part.lease.ids) + count)
                    rows += count
                return job, parts, rows
            except ContextTooLong as error:
                victim = max(self.active, key=lambda other: (-other.priority, other.serial))
                if len(self.active) == 1 and not self.borrowers.using:
                    self._fail(job, error)
                    return None
                collected.pop(victim, None)
                self._suspend(victim)
                if victim is job:
                    return None

    # -- one job

    def _advance(self, job: Job, logits: Floats | None, *, once: bool = False) -> None:
        """Go on with a job until it waits for a pass or another thread, or with `once` until it has given an
        output.
        """
        job.waits_for = job.busy = None
        try:
            while job.waits_for is None:
                assert job.opened is not None
                # without a further call for each token
                made = job.opened.loop.send(logits) if job.resuming is None else job.step(logits)
                logits = None
                if type(made) is ModelPass:
                    job.waits_for = made
                    if made.reads and not job.reading:
                        job.reading = job.opened.runner.reading()
                    return
                output = None
                if type(made) is StepOutput:
                    output = made
                elif isinstance(made, Future):
                    job.busy = made
                    return
                for event in job.opened.writer.events(made):
                    self._events.append(JobEvent(job, event, output))
                if output is not None and output.reason:
                    self.remove(job)
                if output is not None and (output.reason or once):
                    return
        except BaseException as error:  # noqa: BLE001 - the other jobs go on
            self._fail(job, error)

    def _fail(self, job: Job, error: BaseException) -> None:
        """End a job by an error, which may also be a panic of a Rust library."""
        self.remove(job)
        self._errors.append(error)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        self._events.append(JobEvent(job, Failed(error)))

    def _suspend(self, job: Job) -> None:
        """Take a job's pages; it goes to the front of its priority in the queue."""
        assert job.opened is not None
        if job.resuming is None:
            job.then = job.waits_for
        else:
            job.resuming.close()
        job.resuming = job.waits_for = job.busy = None
        job.opened.suspend()
        self.active.remove(job)
        job.state = SUSPENDED
        self.pending.append(job)

    # -- the queue

    def _end_stopped(self) -> None:
        """End the jobs whose stop event is set and that wait: in the queue, or for a pass, often for long."""
        waiting = [*self.pending, *(job for job in self.active if job.waits_for is not None)]
        for job in [job for job in waiting if job.stop.is_set()]:
            if job.opened is not None:
                output = job.opened.sequence.finish("cancelled")
                self._events += [JobEvent(job, event, output) for event in job.opened.writer.events(output)]
            else:
                stats = Stats(prompt_tokens=len(job.request.ids), context_length=self._cache.context_length)
                self._events.append(JobEvent(job, Done("cancelled", "", stats)))
            self.remove(job)

    def _admit(self) -> None:
        """Start the jobs whose turn has come: those of higher priority first, then suspended ones."""
        if self.setting_up is not None:
            self._set_up(*self.setting_up)
        if self.setting_up is not None or self.borrowers.setting_up:
            return
        borrowed, behind = self.borrowers.using, list[Job]()  # those that do not fit may be overtaken
        for job in first(self.suspended if self.borrowers.come_first else self.pending):
            if len(self.active) >= self._most_jobs or self.setting_up is not None:
                return
            if not fits(job, self.active, self.suspended, self._cache, borrowed=borrowed):
                if job.skips >= job.max_skips and (self.active or borrowed):
                    return  # else it is a suspended one that it waits for
                behind.append(job)
                continue
            if waits_for_a_reader(job, self.active, self._cache):
                continue
            for other in behind:
                other.skips += 1
            self._start(job)

    @property
    def suspended(self) -> list[Job]:
        """The jobs of the queue that have begun."""
        return [job for job in self.pending if job.state == SUSPENDED]

    def _start(self, job: Job) -> None:
        """Take a job out of the queue: its setup is brought about, or its sequence begins."""
        if job.setup is not None and not (self.active or self.suspended or self.borrowers.using):
            self.setting_up = job, job.setup.run(job.stop)
            self._set_up(*self.setting_up)
        else:
            self._begin(job)

    def _begin(self, job: Job) -> None:
        """Begin the sequence of a job, or go on with it where it was suspended."""
        self.pending.remove(job)
        try:
            if job.opened is None:
                assert job.checked is not None
                self._events.append(JobEvent(job, Started()))
                job.opened = job.checked.open(self._cache, self._drafters, job.stop)
            else:
                job.resuming = job.opened.runner.resume()
        except BaseException as error:  # noqa: BLE001 - the other jobs go on
            self._fail(job, error)
            return
        job.state = ACTIVE
        self.borrowers.overtaken()
        self.active.append(job)
        self._advance(job, None)

    def _set_up(self, job: Job, steps: Generator[Loading, None, None]) -> None:
        """One step of a job's setup; when it is done, the job starts."""
        try:
            self._events.append(JobEvent(job, next(steps)))
            return
        except StopIteration:
            self.setting_up = None
        except BaseException as error:  # noqa: BLE001 - the other jobs go on
            self.setting_up = None
            self._fail(job, error)
            return
        self._begin(job)
