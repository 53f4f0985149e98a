"""Runs network work on a separate thread, so that no wait for a server delays a stop."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from engine.errors import DownloadError
from engine.hub.client.http import Web
from engine.hub.client.offline import check_switch
from engine.lazy_dataclass import dataclass
from engine.words import _

T = TypeVar("T")
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the work, with its error if it failed."""

    error: DownloadError | OSError | None = None


def in_background(
    web: Web, work: Callable[[], Iterator[T]], stop: threading.Event | None = None
) -> Generator[T, None, None]:
    """Run `work` on a thread and yield what it yields.

    Closing this generator, or setting `stop`, closes the connections of `web`. Raises the `DownloadError` or
    `OSError` of the work, and `DownloadError` when it was stopped or the program went offline.
    """
    events: queue.Queue[T | _End] = queue.Queue(maxsize=64)

    def put(event: T | _End) -> None:
        while not web.stopped.is_set():
            with contextlib.suppress(queue.Full):
                events.put(event, timeout=0.1)
                break

    def run() -> None:
        try:
            for event in work():
                put(event)
                if web.stopped.is_set():
                    return
            put(_End())
        except (DownloadError, OSError) as error:
            put(_End(error))

    thread = threading.Thread(target=run, name="download", daemon=True)
    thread.start()
    try:
        while stop is None or not stop.is_set():
            check_switch()
            alive = thread.is_alive()
            try:
                event = events.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if not alive:
                    raise RuntimeError("the download thread ended without a result") from None
                continue
            if not isinstance(event, _End):
                yield event
            elif event.error is not None:
                raise event.error
            else:
                return
        raise DownloadError(_("it was stopped (the next attempt continues from there)"))
    finally:
        web.abort()
        thread.join(1.0)


def result(web: Web, work: Callable[[], T], stop: threading.Event | None = None) -> T:
    """Run `work` on a thread and return its result, under the same rules."""

    def once() -> Iterator[T]:
        yield work()

    with contextlib.closing(in_background(web, once, stop)) as events:
        return next(events)
