"""The asynchronous face of `DynamicGenerator`: its turns run on a thread, while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from engine.core import Done
from engine.generator.dynamic import DynamicGenerator
from engine.generator.job import Failed, Job, JobEvent

T = TypeVar("T")


class AsyncJob:
    """A job that has been given to an `AsyncDynamicGenerator`: iterate over its events.

    The iterator ends after `Done`, or when the job is cancelled; it raises what the job raised.
    """

    def __init__(self, generator: AsyncDynamicGenerator, job: Job) -> None:
        self.job = job
        self._generator = generator
        self._events: asyncio.Queue[JobEvent | BaseException | None] = asyncio.Queue()
        self._over = False
        generator._add(self)

    def __aiter__(self) -> AsyncIterator[JobEvent]:
        return self

    async def __anext__(self) -> JobEvent:
        if self._over:
            raise StopAsyncIteration
        event = await self._events.get()
        if event is None or isinstance(event, BaseException):
            self._over = True
            raise event or StopAsyncIteration
        self._over = isinstance(event.event, Done)
        return event

    async def cancel(self) -> None:
        """End the job; its iterator ends too, and gives nothing that it has not given yet."""
        await self._generator._cancel(self)

    def _take(self, event: JobEvent | BaseException | None) -> None:
        while event is None and not self._events.empty():
            self._events.get_nowait()
        failed = isinstance(event, JobEvent) and isinstance(event.event, Failed)
        self._events.put_nowait(event.event.error if failed else event)  # type: ignore[union-attr]


class AsyncDynamicGenerator:
    """Runs the jobs of a `DynamicGenerator`, which nobody else uses meanwhile, for one event loop.

    An error of a job is raised by its iterator, one of the generator itself by all of them.
    """

    def __init__(self, generator: DynamicGenerator) -> None:
        self.generator = generator
        self._thread = ThreadPoolExecutor(1, "generator")
        self._jobs: dict[Job, AsyncJob] = {}
        self._new: list[AsyncJob] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def jobs(self) -> list[Job]:
        """The jobs that have not ended."""
        return [*self._jobs, *(each.job for each in self._new)]

    def enqueue(self, job: Job) -> AsyncJob:
        """Give it a job. What makes it impossible is raised by the iterator."""
        return AsyncJob(self, job)

    async def close(self) -> None:
        """Cancel all jobs and end the thread; iterators end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._there(self.generator.close)
        for job in (*self._jobs.values(), *self._new):
            job._take(None)
        self._jobs, self._new = {}, []
        self._thread.shutdown()

    def _add(self, job: AsyncJob) -> None:
        self._new.append(job)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _cancel(self, job: AsyncJob) -> None:
        if job in self._new:
            self._new.remove(job)
        elif self._jobs.pop(job.job, None) is not None:
            await self._there(lambda: self.generator.cancel(job.job))
        job._take(None)

    async def _there(self, work: Callable[[], T]) -> T:
        """Do something on the generator's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            for job in self._new:
                self._jobs[job.job] = job
            new, self._new = self._new, []
            try:
                events, refused = await self._there(lambda jobs=new: self._turn(jobs))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - raised by every iterator instead
                events, refused = [], dict.fromkeys(self._jobs, error)
            for event in events:
                if event.job in self._jobs:
                    job = self._jobs[event.job]
                    if isinstance(event.event, Done | Failed):
                        del self._jobs[event.job]
                    job._take(event)
            for broken, reason in refused.items():
                if broken in self._jobs:
                    self._jobs.pop(broken)._take(reason)
            if not self._jobs and not self._new:
                self._wake.clear()

    def _turn(self, new: list[AsyncJob]) -> tuple[list[JobEvent], dict[Job, Exception]]:
        """Enqueue what is new and run what is next; also returns the jobs that were refused."""
        refused: dict[Job, Exception] = {}
        for each in new:
            try:
                self.generator.enqueue(each.job)
            except Exception as error:  # noqa: BLE001 - raised by its iterator
                refused[each.job] = error
        return self.generator.iterate(), refused
