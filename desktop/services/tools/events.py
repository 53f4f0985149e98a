"""What the thread of the tool servers reports: frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from desktop.services.tools.servers import OfferedTool

__all__ = ["CallEnded", "ServerChanged"]


@dataclass(frozen=True)
class ServerChanged:
    """A server's status, as in `ServerState`; `generation` is the number of its start."""

    name: str
    generation: int
    status: str
    sentence: str = ""
    tools: tuple[OfferedTool, ...] = ()
    log: str = ""


@dataclass(frozen=True)
class CallEnded:
    """The result of a call as text for the model; `failed` if it is an error."""

    number: int
    text: str
    failed: bool
