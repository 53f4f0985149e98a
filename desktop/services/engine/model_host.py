"""The loaded model, on the engine's thread. The GUI thread reads only `info` and `lost`, which are frozen."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from engine.core import ChatEvent, ChatRequest, ChatSource, Loading, ModelInfo
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from engine.settings import CacheSettings, LoadSettings
from engine.words import _

__all__ = ["AskModel", "Describe", "ModelHost", "OpenChat", "describe", "open_chat"]

OpenChat = Callable[
    [Path, LoadSettings, CacheSettings, threading.Event, "Leaving"], Generator[Loading, None, ChatSource]
]
"""Loads a model: yields progress and returns the chat source; as `engine.chat.open_chat`."""
AskModel = Callable[[ChatSource, threading.Event], Generator[Any, None, Any]]
"""A task with the loaded model other than a reply, on the engine's thread."""
Describe = Callable[[Path], ModelInfo]
"""Reads a model's headers; as `engine.vision.describe`."""


def open_chat(
    path: Path, load: LoadSettings, cache: CacheSettings, stop: threading.Event, leaving: Leaving
) -> Generator[Loading, None, ChatSource]:
    """`engine.chat.open_chat`, imported on the engine's thread: the window does not wait for it."""
    yield Loading(_("Starting the engine"), 0, 1)
    from engine.chat import open_chat as open_local

    return (yield from open_local(path, load, cache, stop, leaving))


def describe(path: Path) -> ModelInfo:
    """`engine.vision.describe`, imported when first needed."""
    from engine.vision.describe import describe as describe_local

    return describe_local(path)


def known_title(path: Path) -> str:
    """`engine.hub.local.scan.known_title`, imported when first needed."""
    from engine.hub.local.scan import known_title as title

    return title(path)


class Leaving:
    """The loaded model, closed as late as possible while another one is opened; `info` is None for none."""

    def __init__(self, info: ModelInfo | None, close: Callable[[], None]) -> None:
        self.info = info
        self.close = close
        """Releases its memory."""


class ModelHost:
    """Holds at most one chat source. `info` is None while there is none.

    `needs_reload`: the last load or reply failed because of too little memory, a lost device or a bug.
    Loading the model again may help then; a request or a file that is refused stays so.
    """

    def __init__(self, open_chat: OpenChat = open_chat, describe: Describe = describe) -> None:
        self._open_chat = open_chat
        self._describe = describe
        self._source: ChatSource | None = None
        self._streams: weakref.WeakSet[Generator[ChatEvent, None, None]] = weakref.WeakSet()
        self.lost = ("", "")
        """After a `DeviceLost`, until a model is loaded again: its sentence and its report."""
        self.info: ModelInfo | None = None
        self.needs_reload = False

    @property
    def source(self) -> ChatSource | None:
        """The loaded model; on the engine's thread."""
        return self._source

    def load(
        self, path: Path, load: LoadSettings, cache: CacheSettings, stop: threading.Event
    ) -> Generator[Loading, None, ModelInfo | None]:
        """Replace the model by the one at `path`, which may be that of a server (`engine.remote`); returns
        its facts, or None if `stop` was set.

        Headers, tokenizer and template are read first, so that a file that cannot be loaded does not cost the
        loaded model. There is memory for one model only: the old one is released before the new weights.
        """
        self.needs_reload = False
        yield Loading(_("Reading the model's headers"), 0, 1)
        self._describe(path)
        if stop.is_set():
            return None
        try:
            source = yield from self._open_chat(path, load, cache, stop, Leaving(self.info, self._release))
        except EngineError:
            if stop.is_set():
                return None
            raise
        if stop.is_set():
            source.close()
            return None
        self._release()
        title = "" if source.info.host else known_title(path)
        self._source, self.lost = source, ("", "")
        self.info = dataclasses.replace(source.info, name=title) if title else source.info
        return self.info

    def answer(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply; several may be open. They end without `Done` when another one has lost the
        device. Raises `EngineError` if no model is loaded.
        """
        if self._source is None:
            raise EngineError(_("No model is loaded. Open one, then send again."))
        self.needs_reload = False
        events = self._source.stream(request, stop)
        if isinstance(events, Generator):
            self._streams.add(events)
        return events

    def ask(self, work: AskModel, stop: threading.Event) -> Generator[Any, None, Any]:
        """What `work` does with the loaded model. Raises `EngineError` if none is loaded."""
        if self._source is None:
            raise EngineError(_("No model is loaded. Open one first."))
        return work(self._source, stop)

    def unload(self, stop: threading.Event) -> Generator[Loading, None, None]:
        """Release the model's memory, whatever `stop` says."""
        yield Loading(_("Unloading the model"), 0, 1)
        self._release()

    def failed(self, error: BaseException) -> None:
        """Take note of what a job raised. After a `DeviceLost` no model is loaded any more."""
        self.needs_reload = not isinstance(error, EngineError) or isinstance(
            error, DeviceLost | NotEnoughMemory
        )
        if isinstance(error, DeviceLost):
            self.lost = (str(error), error.report)
            self._release()

    def _release(self) -> None:
        source, self._source, self.info = self._source, None, None
        for events in tuple(self._streams):
            events.close()
        if source is not None:
            source.close()
