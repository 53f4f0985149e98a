"""What is known about servers of tools (MCP): frozen values, safe to hand between threads."""

from __future__ import annotations

from urllib.parse import urlsplit

from engine.lazy_dataclass import dataclass
from engine.remote.provider import is_loopback

__all__ = [
    "PERMISSIONS",
    "Offer",
    "OfferedPrompt",
    "OfferedResource",
    "OfferedTool",
    "PromptArgument",
    "ServerConfig",
    "ServerState",
]

PERMISSIONS = ("ask", "always", "never")
"""Whether a tool may run: after asking the user, without asking, or not at all."""


@dataclass(frozen=True)
class ServerConfig:
    """How a server is started or reached: by `command`, or at `url`.

    `environment` and `headers` are pairs that may contain secrets; `folder` is where the command runs.
    `transport` is "sse" for addresses of the form before 2025, otherwise empty. `permissions` are pairs of a
    tool's name and one of `PERMISSIONS`; tools that are not named ask. `signs_in`: the user has signed in to
    the server in the browser.
    """

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    transport: str = ""
    enabled: bool = True
    permissions: tuple[tuple[str, str], ...] = ()
    signs_in: bool = False

    def __repr__(self) -> str:
        return f"ServerConfig({self.name!r})"  # Nothing that may be secret.

    @property
    def is_local(self) -> bool:
        """Whether calls stay on this computer, as far as the address tells."""
        try:
            return not self.url or is_loopback(urlsplit(self.url).hostname or "")
        except ValueError:
            return False


@dataclass(frozen=True)
class OfferedTool:
    """A tool of a server. `parameters` is the JSON schema of its arguments, as a JSON text.

    `title` is for people and never empty; `read_only` is what the server says of it, without a warranty.
    """

    server: str
    tool: str
    title: str
    description: str = ""
    parameters: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class PromptArgument:
    """A value that a prompt is made with; `title` is for people and never empty."""

    name: str
    title: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True)
class OfferedPrompt:
    """A prompt of a server, for the user to choose; `title` is for people and never empty."""

    server: str
    name: str
    title: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True)
class OfferedResource:
    """A text or file of a server, for the user to attach; `title` is for people and never empty."""

    server: str
    uri: str
    title: str
    description: str = ""


Offer = OfferedPrompt | OfferedResource


@dataclass(frozen=True)
class ServerState:
    """A server now: `status` is "off", "starting", "ready" or "failed", `sentence` says why it failed.

    `log` holds the last lines that the server wrote. Prompts and resources come a little later than "ready".
    `wants_sign_in`: it failed because the user is not signed in.
    """

    config: ServerConfig
    status: str = "off"
    sentence: str = ""
    tools: tuple[OfferedTool, ...] = ()
    log: str = ""
    prompts: tuple[OfferedPrompt, ...] = ()
    resources: tuple[OfferedResource, ...] = ()
    wants_sign_in: bool = False
