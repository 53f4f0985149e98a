"""What the thread of the tool servers reports: frozen values."""

from __future__ import annotations

from desktop.services.tools.servers import OfferedPrompt, OfferedResource, OfferedTool
from engine.lazy_dataclass import dataclass

__all__ = ["CallEnded", "Event", "Fetched", "PageOffered", "Part", "ServerChanged"]


@dataclass(frozen=True)
class ServerChanged:
    """A server's status, as in `ServerState`; `generation` is the number of its start."""

    name: str
    generation: int
    status: str
    sentence: str = ""
    tools: tuple[OfferedTool, ...] = ()
    log: str = ""
    prompts: tuple[OfferedPrompt, ...] = ()
    resources: tuple[OfferedResource, ...] = ()
    wants_sign_in: bool = False


@dataclass(frozen=True)
class CallEnded:
    """The result of a call as text for the model; `failed` if it is an error."""

    number: int
    text: str
    failed: bool


@dataclass(frozen=True)
class Part:
    """A part of a resource, whose `name` is like that of a file, or the text of a prompt."""

    name: str
    data: bytes

    @property
    def text(self) -> str:
        """The data as text."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Fetched:
    """What a prompt or resource consists of; `trouble` is a sentence for the user if it cannot be had."""

    number: int
    parts: tuple[Part, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class PageOffered:
    """The address of a page where the user signs in to a server; `generation` as in `ServerChanged`."""

    name: str
    generation: int
    page: str


Event = ServerChanged | CallEnded | Fetched | PageOffered
