"""The asynchronous face gives the same replies, and raises in each job what concerns it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.core import Done
from engine.errors import BadSetting, ContextTooLong
from engine.generator.dynamic import Job
from engine.generator.dynamic_async import AsyncDynamicGenerator, AsyncJob
from engine.generator.request import GenerationRequest
from engine.settings import ConstraintSettings
from tests.engine.generator.test_dynamic import Said, alone, dynamic, outcome, request


async def read(job: AsyncJob) -> Said:
    said = Said()
    async for _, event, _ in job:
        said.take(event)
    return said


def test_jobs_run_beside_each_other_and_the_loop_goes_on() -> None:
    async def main() -> None:
        inner, _ = dynamic(pages=60)
        generator = AsyncDynamicGenerator(inner)
        asked = [request(seed, 50, 20) for seed in range(5)]
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        found = await asyncio.gather(*(read(generator.enqueue(Job(each))) for each in asked))
        ticking.cancel()
        assert [outcome(said) for said in found] == [alone(each) for each in asked]
        assert ticks > 20
        turns, iterate = 0, inner.iterate

        def counting() -> Any:
            nonlocal turns
            turns += 1
            return iterate()

        inner.iterate = counting  # type: ignore[method-assign]
        await asyncio.sleep(0.02)
        assert turns <= 1, "it rests when there is nothing to do"
        late = await read(generator.enqueue(Job(asked[0])))
        assert outcome(late) == alone(asked[0])
        await generator.close()

    asyncio.run(main())


def test_errors_are_raised_where_they_belong() -> None:
    async def main() -> None:
        inner, model = dynamic(pages=60, context=512)
        generator = AsyncDynamicGenerator(inner)
        impossible = ConstraintSettings(allowed_tokens=(30,), banned_tokens=(30,))
        good = asyncio.create_task(read(generator.enqueue(Job(request(1, 20, 30)))))
        long = generator.enqueue(Job(request(2, 600, 5)))
        with pytest.raises(ContextTooLong):
            await read(long)
        assert await asyncio.wait_for(anext(long, None), 30) is None, "it has ended"
        with pytest.raises(BadSetting):
            await read(generator.enqueue(Job(GenerationRequest([]))))
        with pytest.raises(Exception, match="token"):
            await read(generator.enqueue(Job(request(3, 20, 5, constraint=impossible))))
        assert outcome(await good) == alone(request(1, 20, 30))

        def broken() -> None:
            raise OSError("the device is gone")

        model.program.before_run = broken
        results = await asyncio.gather(
            *(read(generator.enqueue(Job(request(seed, 20, 30)))) for seed in range(2)),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [OSError, OSError]
        await generator.close()

    asyncio.run(main())


def test_cancelling_and_closing_end_the_iterators() -> None:
    async def main() -> None:
        inner, _ = dynamic(pages=60)
        generator = AsyncDynamicGenerator(inner)
        first, second = (generator.enqueue(Job(request(seed, 20, 5000))) for seed in (1, 2))
        seen: list[Any] = []
        async for event in first:
            seen.append(event)
            if len(seen) == 5:
                await first.cancel()
        assert not any(isinstance(event.event, Done) for event in seen)
        third = generator.enqueue(Job(request(3, 20, 5000)))
        async for _ in third:
            break
        while third._events.qsize() < 3:
            await asyncio.sleep(0.001)
        await third.cancel()
        assert [event async for event in third] == []
        reading = asyncio.create_task(read(second))
        await asyncio.sleep(0.05)
        await generator.close()
        assert (await reading).done is None
        assert not inner.num_remaining_jobs
        assert not any(page.refs for page in inner.cache.table.pool.pages)

    asyncio.run(main())
