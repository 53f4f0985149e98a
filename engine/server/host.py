"""The border between the server's thread and the thread that owns the model.

The server hands over `Work`: a function that makes a generator, which runs on the model's thread, one event
at a time and in turns with others. Its events go into an `Outlet`, from which the server takes them. Frozen
values cross; no tensor and no live exception does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Protocol

from engine.chat import LocalChat
from engine.core import ModelInfo, Waiting
from engine.lazy_dataclass import dataclass
from engine.server.failure import CLOSING, Failure, failure_of

Work = Callable[[LocalChat, threading.Event], Generator[Any, None, None]]
"""Called on the model's thread with the model and the event that ends the work. `Waiting` does not cross."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that clients may name. `context_length` is 0 unless it is `loaded`; `created` is in seconds
    since 1970. `thinking` is as in `ModelInfo`; `defaults` are the sampler settings of requests that do not
    say otherwise, `adapters` the (path, strength) of the LoRA adapters of all of them.
    `architecture`, `format`, `quantisation`, `reads_pictures`, `parameters` and `file_bytes` are as in
    `ModelInfo`, `capabilities` as in `capabilities_of`; all of them are empty until it is loaded.
    """

    id: str
    loaded: bool = False
    context_length: int = 0
    created: int = 0
    thinking: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, float], ...] = ()
    adapters: tuple[tuple[str, float], ...] = ()
    architecture: str = ""
    format: str = ""
    quantisation: str = ""
    reads_pictures: bool = False
    parameters: int = 0
    file_bytes: int = 0
    capabilities: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        info: ModelInfo,
        id: str,
        context_length: int,
        created: int,
        thinking: tuple[tuple[str, str], ...],
        adapters: tuple[tuple[str, float], ...] = (),
    ) -> ServedModel:
        """A loaded model."""
        return cls(
            id, True, context_length, created, thinking, info.defaults, adapters, info.architecture,
            info.format, info.quantisation, info.reads_pictures, info.parameters, info.file_bytes,
            capabilities_of(info),
        )  # fmt: skip

    @property
    def parameter_size(self) -> str:
        """The number of parameters as Ollama and LM Studio write it, such as "134.52M" or "8.0B"."""
        for unit, digits, letter in ((10**9, 1, "B"), (10**6, 2, "M"), (10**3, 0, "K")):
            if self.parameters >= unit:
                return f"{self.parameters / unit:.{digits}f}{letter}"
        return str(self.parameters or "")


def capabilities_of(info: ModelInfo) -> tuple[str, ...]:
    """What a loaded model can do, in Ollama's words: "completion" and "tools", or "embedding", and "vision"
    and "thinking".
    """
    able = ["embedding"] if info.why_no_text else ["completion", "tools"]
    able += ["vision"] if info.reads_pictures else []
    return (*able, "thinking") if info.thinking_levels else tuple(able)


class Outlet(Protocol):
    """Where the events of some work go. Used on the model's thread; no method waits."""

    def put(self, event: Any) -> None:
        """One event."""
        ...

    def end(self, failure: Failure | None) -> None:
        """There are no further events. Called once."""
        ...


class Ticket(Protocol):
    """Work that was handed over."""

    def cancel(self) -> None:
        """End it within one step of the model; `Outlet.end` follows. Any thread may call this."""
        ...


class EngineHost(Protocol):
    """The thread that owns the model. Any thread may call these methods; none waits for the model."""

    def models(self) -> Sequence[ServedModel]:
        """The models that can be named; the loaded one first."""
        ...

    def absence(self) -> Failure:
        """What a client is told while no model of `models` is loaded."""
        ...

    def submit(self, work: Work, outlet: Outlet) -> Ticket:
        """Run some work with the loaded model, beside others. It fails without a model, and if another one is
        loaded before it begins.
        """
        ...

    def load(self, model: str, outlet: Outlet) -> Ticket:
        """Load a model instead of the present one, once all work before it has ended. Its events are
        `Loading`.
        """
        ...

    def unload(self, outlet: Outlet) -> Ticket:
        """Release the loaded model, once all work before it has ended."""
        ...


def pumped(
    make_events: Callable[[], Generator[Any, None, None]],
    stop: threading.Event,
    outlet: Outlet,
    stopped: Callable[[], Failure | None] = lambda: None,
) -> Generator[Waiting, None, None]:
    """Run a generator on the model's thread: each event goes to `outlet`, whatever ends it too. Yields after
    each event, so that others get their turn. Closing it, or setting `stop`, ends the work; `stopped` says
    then what the client is told, None for nothing.
    """
    failure: Failure | None = None
    try:
        if stop.is_set():
            failure = stopped()
            return
        with closing(make_events()) as events:
            for event in events:
                if stop.is_set():
                    failure = stopped()
                    return
                if not isinstance(event, Waiting):
                    outlet.put(event)
                yield _WAITING
    except GeneratorExit:
        failure = CLOSING
        raise
    except BaseException as error:  # noqa: BLE001 - the thread's other work goes on, whatever this one raised
        failure = failure_of(error)
    finally:
        outlet.end(failure)


_WAITING = Waiting()
