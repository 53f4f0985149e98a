"""Why a tool server failed, in one sentence for the user."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.exceptions import MCPError

from desktop.services.tools.servers import ServerConfig
from desktop.services.tools.transports import Opened
from desktop.services.tools.unusable import UnusableConfig
from engine.words import _

__all__ = ["sentence_for"]


def sentence_for(error: BaseException, config: ServerConfig, opened: Opened, last_line: str) -> str:
    """A sentence about an exception, which may be a group; it quotes neither headers nor environment."""
    causes = tuple(_leaves(error))
    for cause in causes:
        if isinstance(cause, OAuthFlowError):
            return _("Signing in to the tool server failed: {problem}", problem=str(cause)[:300])
    for cause in causes:
        if isinstance(cause, UnusableConfig):
            return str(cause)
    if config.url:
        return _of_address(causes, opened)
    for cause in causes:
        if isinstance(cause, OSError) and not isinstance(cause, ConnectionError):
            return _(
                "{program} cannot be started ({problem}). Check the command of this server.",
                program=config.command,
                problem=cause.strerror or type(cause).__name__,
            )
    if last_line:
        return _("The tool server ended. The last line it wrote: {line}", line=last_line[:300])
    return _("The tool server ended without a message. Check its command and arguments, and restart it.")


def _of_address(causes: tuple[BaseException, ...], opened: Opened) -> str:
    if opened.refused in (401, 403):
        return _(
            "The tool server refused the connection ({status}). Sign in, or if it wants a key, add a header "
            "such as “Authorization: Bearer …”.",
            status=opened.refused,
        )
    if opened.refused:
        return _(
            "The tool server answered with status {status}. Check its address, and whether it uses the "
            "older form (SSE).",
            status=opened.refused,
        )
    if any(isinstance(cause, httpx2.TransportError) for cause in causes) or not opened.answered:
        return _("The tool server cannot be reached. Check its address and whether it runs.")
    for cause in causes:
        if isinstance(cause, MCPError):
            return _("The tool server refused to begin: {problem}", problem=str(cause)[:300])
    return _("The connection to the tool server ended. Restart it here when it runs again.")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
