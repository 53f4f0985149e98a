"""The log of a tool server: what is kept of it, and when the window hears of more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from desktop.services.tools.server_log import MOST_KEPT, ServerLog

WAIT_S = 30.0


def logged(work: Callable[[ServerLog, list[str]], Awaitable[None]]) -> None:
    """Run `work` with a log and the texts that it had whenever it told of more."""

    async def run() -> None:
        told: list[str] = []
        log = ServerLog(asyncio.get_running_loop(), lambda: told.append(log.text))
        async with asyncio.timeout(WAIT_S):
            await work(log, told)

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_lines_are_told_as_they_come_and_together_where_they_come_together() -> None:
    async def work(log: ServerLog, told: list[str]) -> None:
        log.add("one")
        log.add("two")
        assert not told
        await until(lambda: bool(told))
        log.add("three")
        await until(lambda: len(told) > 1)
        assert told == ["one\ntwo\n", "one\ntwo\nthree\n"]

    logged(work)


def test_a_process_writes_to_its_pipe_until_it_ends() -> None:
    async def work(log: ServerLog, told: list[str]) -> None:
        end = log.pipe()
        os.write(end, "Grüße\n".encode())
        await until(lambda: told == ["Grüße\n"])
        os.write(end, b"half \xff")
        os.close(end)
        await until(lambda: len(told) > 1)
        assert log.text == "Grüße\nhalf \ufffd"

    logged(work)


def test_the_last_lines_are_kept() -> None:
    async def work(log: ServerLog, told: list[str]) -> None:
        assert (log.text, log.last_line) == ("", "")
        log.add("first")
        log.add("x" * (MOST_KEPT - 3))
        assert log.text == "t\n" + "x" * (MOST_KEPT - 3) + "\n"
        log.add(" the end ")
        log.add("  ")
        assert log.last_line == "the end"
        assert len(log.text) == MOST_KEPT

    logged(work)


def test_nothing_is_told_once_it_is_closed() -> None:
    async def work(log: ServerLog, told: list[str]) -> None:
        log.add("told by the one that closes")
        log.close()
        log.add("and this")
        await asyncio.sleep(0.5)
        assert told == []
        assert log.last_line == "and this"

    logged(work)
