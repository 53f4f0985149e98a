"""EngineThread: lets the server's requests run on the window's own engine thread, beside the chats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from desktop.services.engine.engine_controller import EngineController
from engine.chat import LocalChat
from engine.server.failure import CLOSING, ApiError, Failure
from engine.server.host import Outlet, ServedModel, Work, pumped

__all__ = ["EngineThread"]

_NO_MODEL = Failure(
    503, "No model is loaded; open one in Inglenook's window.", "server_error", code="model_not_loaded"
)
_CHOSEN_BY_USER = Failure(
    403, "The model is chosen in Inglenook's window; other programs cannot change it.", code="not_allowed"
)


class _Ticket:
    """Work that was handed over."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def cancel(self) -> None:
        """As in `engine.server.host.Ticket`."""
        self._stop.set()


class EngineThread:
    """An `engine.server.host.EngineHost` over the window's model."""

    def __init__(self, engine: EngineController) -> None:
        self._engine = engine
        self._created = int(time.time())

    def models(self) -> Sequence[ServedModel]:
        """The loaded model, if there is one and it runs on this computer."""
        source, info = self._engine.host.source, self._engine.host.info
        if info is None or not isinstance(source, LocalChat):
            return ()
        return (
            ServedModel(
                info.name, True, source.context_length, self._created, info.thinking, info.opens_thought,
                info.defaults,
            ),
        )  # fmt: skip

    def submit(self, work: Work, outlet: Outlet) -> _Ticket:
        """As in `EngineHost`."""

        def begin(stop: threading.Event) -> Generator[Any, None, None]:
            source = self._engine.host.source
            if not isinstance(source, LocalChat):
                raise ApiError(_NO_MODEL)
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
        try:
            return _Ticket(self._engine.lend(lambda stop: pumped(lambda: begin(stop), stop, outlet)))
        except RuntimeError:  # the window is being closed
            outlet.end(CLOSING)
            return _Ticket(threading.Event())


def _refused(stop: threading.Event) -> Generator[Any, None, None]:
    yield from ()
    raise ApiError(_CHOSEN_BY_USER)
