"""What the server listens on, whom it lets in, and its bounds."""

from __future__ import annotations

import secrets

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one client, and all of them together, may take. Times are seconds, sizes bytes."""

    body: int = 64 << 20
    """The body of a request: a dozen photos."""
    memory: int = 512 << 20
    """The bodies of all requests, and what is collected for answers, together."""
    head: int = 32 << 10
    """The request line and the headers."""
    connections: int = 512
    """Connections at a time; others are closed at once."""
    replies: int = 128
    """Replies that are written or wait at a time; others are refused with status 503."""
    choices: int = 16
    """Replies of one request that are written at a time: its choices, or some of its many prompts."""
    prompts: int = 2048
    """Prompts or texts of one request, each as often as it has choices."""
    unread: int = 4 << 20
    """What waits for one client to read it; more ends its request."""
    head_seconds: float = 15.0
    """From the connection, or the last answer, to the end of a request's headers."""
    body_seconds: float = 60.0
    """From there to the end of its body."""
    write_seconds: float = 120.0
    """How long a client may read nothing of an answer that waits for it."""
    ping_seconds: float = 15.0
    """How long a stream may be silent before its client gets a sign of life."""
    idle_seconds: float = 60.0
    """How long a connection stays open for a further request."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """`host` is "localhost", both 127.0.0.1 and ::1, or an address of this machine; "0.0.0.0" and "::" open
    it to the network. Port 0 takes a free one. An empty `token` lets everybody in.

    `hosts` are names of this machine, besides localhost and its addresses, that requests may name as their
    host; `origins` are the web pages that may use the server from a browser, such as "https://example.org".
    Raises `BadSetting`.
    """

    host: str = "localhost"
    port: int = 0
    token: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    bounds: Bounds = Bounds()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise BadSetting(
                f"Port {self.port} does not exist; ports go from 0 to 65535, and 0 uses any free one."
            )
        if self.token and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise BadSetting("The token must consist of printable ASCII characters without spaces.")
        for origin in self.origins:
            scheme, found, rest = origin.partition("://")
            if not (scheme and found and rest) or "/" in rest or "*" in origin:
                raise BadSetting(
                    f"{origin!r} is not an origin; write the scheme, host and, if needed, port of a "
                    'page, such as "https://example.org".'
                )


def new_token() -> str:
    """A token that cannot be guessed."""
    return "ink-" + secrets.token_urlsafe(24)
