"""JobStreams: gives what happens to jobs to those who ask for it, each the events of its own job."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

from engine.core import Done, Loading, Prefill, Running, Text, Waiting
from engine.generator.job import ENDED, Failed, Job, JobEvent, Started
from engine.generator.scheduler import Scheduler

StreamEvent = Loading | Waiting | Prefill | Text | Running | Done
"""What `JobStreams.events` yields."""


class JobStreams:
    """Whoever asks for a next event runs the scheduler's turns; the events of other jobs wait for their own
    streams, or for `iterate`.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.waiting: dict[Job, deque[JobEvent]] = {}
        """The events that wait for the stream of each job that has one."""
        self.unheard: list[JobEvent] = []
        """What happened to jobs without a stream while a stream's next event was asked for."""

    def iterate(self) -> list[JobEvent]:
        """A turn: what happened to the jobs that have no stream."""
        found = self._scheduler.turn()
        self._scheduler.forget_errors()
        others, self.unheard = self.unheard, []
        for event in found:
            self.waiting.get(event.job, others).append(event)
        return others

    def events(self, job: Job) -> Generator[StreamEvent, None, None]:
        """The events of a job, which is added now. Asking for the next one goes on with all jobs.

        Raises as `Scheduler.add`, and what the job raises. Closing it removes the job.
        """
        self._scheduler.add(job)
        self.waiting[job] = deque()
        found = self._events_of(job)
        next(found)  # now it can be closed
        return found

    def _events_of(self, job: Job) -> Generator[StreamEvent, None, None]:
        scheduler, mine, unread = self._scheduler, self.waiting[job], 0
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
                if len(self.waiting) > 1:
                    before, unread = unread, sum(map(len, self.waiting.values()))
                    if unread and not 0 < before <= unread:
                        yield Waiting()
                        continue
                unread = 0
                for happened in scheduler.turn():
                    own = happened.job is job
                    (mine if own else self.waiting.get(happened.job, self.unheard)).append(happened)
                if scheduler.errors:
                    scheduler.forget_errors()
                if not mine and (job.busy is not None or len(scheduler.pending) + len(scheduler.active) > 1):
                    yield Waiting(job.queued)
        finally:
            self.waiting.pop(job, None)
            if job.state != ENDED:
                scheduler.remove(job)
