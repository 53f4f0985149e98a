"""EngineThread: lets the server's requests run on the window's own engine thread, beside the chats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from desktop.services.engine.engine_controller import EngineController
from engine.chat import LocalChat
from engine.core import ModelInfo
from engine.server.failure import CHANGED, CLOSING, LOADING, ApiError, Failure
from engine.server.host import Outlet, ServedModel, Work, pumped

__all__ = ["EngineThread"]

_NO_MODEL = Failure(
    503, "No model is loaded; open one in Inglenook's window.", "server_error", code="model_not_loaded"
)
_ENDED = Failure(
    503, "The reply was ended, because the model was changed or closed in Inglenook's window.",
    "server_error", code="model_changed",
)  # fmt: skip
_CHOSEN_BY_USER = Failure(
    403, "The model is chosen in Inglenook's window; other programs cannot change it.", code="not_allowed"
)


class _Ticket:
    """Work that was handed over."""

    def __init__(self) -> None:
        self.stop: threading.Event | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """As in `engine.server.host.Ticket`."""
        self._cancelled = True
        if self.stop is not None:
            self.stop.set()

    def stopped(self) -> Failure | None:
        """What a client is told of the end: nothing, if it has asked for that itself."""
        return None if self._cancelled else _ENDED


class EngineThread:
    """An `engine.server.host.EngineHost` over the window's model."""

    def __init__(self, engine: EngineController) -> None:
        self._engine = engine
        self._created = int(time.time())

    def models(self) -> Sequence[ServedModel]:
        """The loaded model, if there is one and it runs on this computer."""
        source, info = self._engine.host.source, self._engine.host.info
        if info is None or not isinstance(source, LocalChat) or self._engine.loads:
            return ()
        return (ServedModel.of(info, info.name, source.context_length, self._created, info.thinking),)

    def absence(self) -> Failure:
        info = self._engine.host.info
        if self._engine.loads:
            return LOADING
        return _NO_MODEL if info is None or not info.host else _elsewhere(info)

    def submit(self, work: Work, outlet: Outlet) -> _Ticket:
        asked = self._engine.host.info

        def begin(stop: threading.Event) -> Generator[Any, None, None]:
            source = self._engine.host.source
            if not isinstance(source, LocalChat):
                raise ApiError(self.absence())
            if self._engine.host.info is not asked:
                raise ApiError(CHANGED)
            try:
                yield from work(source, stop)
            except GeneratorExit:
                raise
            except BaseException as error:
                if not isinstance(error, ApiError):
                    self._engine.host.failed(error)
                raise

        return self._lend(begin, outlet)

    def load(self, model: str, outlet: Outlet) -> _Ticket:
        """Refused: the user chooses the model."""
        return self._lend(_refused, outlet)

    def unload(self, outlet: Outlet) -> _Ticket:
        """Refused: the user chooses the model."""
        return self._lend(_refused, outlet)

    def _lend(
        self, begin: Callable[[threading.Event], Generator[Any, None, None]], outlet: Outlet
    ) -> _Ticket:
        ticket = _Ticket()
        try:
            ticket.stop = self._engine.lend(
                lambda stop: pumped(lambda: begin(stop), stop, outlet, ticket.stopped)
            )
        except RuntimeError:  # the window is being closed
            outlet.end(CLOSING)
        return ticket


def _elsewhere(info: ModelInfo) -> Failure:
    """What a client is told while the window's model is one of another server."""
    return Failure(
        503,
        f"The model {info.name!r} in Inglenook's window runs on {info.host}, not on this computer, and only "
        "models on this computer are served; choose one in the window, or ask that server itself.",
        "server_error",
        code="model_not_local",
    )


def _refused(stop: threading.Event) -> Generator[Any, None, None]:
    yield from ()
    raise ApiError(_CHOSEN_BY_USER)
