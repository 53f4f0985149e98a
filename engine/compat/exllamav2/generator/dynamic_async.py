"""The asynchronous dynamic generator under ExLlamaV2's names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from engine.compat.exllamav2.generator.dynamic import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob
from engine.generator.dynamic_async import AsyncDynamicGenerator, AsyncJob


class ExLlamaV2DynamicGeneratorAsync:
    """The arguments are those of `ExLlamaV2DynamicGenerator`. Its passes run on a thread of their own."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.generator = ExLlamaV2DynamicGenerator(*arguments, **more)
        self._running = AsyncDynamicGenerator(self.generator.engine_generator)
        self._begun: dict[ExLlamaV2DynamicJob, ExLlamaV2DynamicJobAsync] = {}

    @property
    def jobs(self) -> dict[ExLlamaV2DynamicJob, ExLlamaV2DynamicJobAsync]:
        """The jobs that have not ended, whether or not their results have been taken."""
        running = {job.identifier for job in self._running.jobs}
        self._begun = {job: one for job, one in self._begun.items() if job in running}
        return dict(self._begun)

    def enqueue(self, job: ExLlamaV2DynamicJobAsync) -> None:
        """Does nothing: a job is enqueued when it is made."""

    def begin(self, job: ExLlamaV2DynamicJobAsync) -> AsyncJob:
        """Give a job to the engine."""
        self.generator.cache.taken_by(self.generator)
        events = self._running.enqueue(self.generator.engine_job(job.job))
        self._begun[job.job] = job
        return events

    async def cancel(self, job: ExLlamaV2DynamicJobAsync) -> None:
        """End a job; its iterator ends too."""
        await job.cancel()

    async def close(self) -> None:
        """End all jobs and the thread."""
        await self._running.close()


class ExLlamaV2DynamicJobAsync:
    """A job, enqueued at once: iterate over its dicts. The arguments after `generator` are those of
    `ExLlamaV2DynamicJob`. The iterator raises what the job raised.
    """

    def __init__(self, generator: ExLlamaV2DynamicGeneratorAsync, *arguments: Any, **more: Any) -> None:
        self.generator = generator
        self.job = ExLlamaV2DynamicJob(*arguments, **more)
        self.cancelled = False
        self._events = generator.begin(self)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for event in self._events:
            for result in self.generator.generator.results(event):
                yield result

    async def cancel(self) -> None:
        """End the job; its iterator ends too."""
        self.cancelled = True
        await self._events.cancel()
