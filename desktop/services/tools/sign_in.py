"""Signing in to a tool server in the browser: OAuth 2.1 with PKCE and dynamic registration, as the protocol's
page "Authorization" asks for. Imports the library `mcp`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from desktop.services.tools import tokens
from desktop.services.tools.servers import ServerConfig
from desktop.services.tools.unusable import UnusableConfig
from engine.remote.provider import is_loopback
from engine.words import _

__all__ = ["SIGN_IN_S", "Redirect", "SignIn", "SignInNeeded", "sign_in_for"]

SIGN_IN_S = 300.0
"""The longest that the user may take in the browser."""
_READ_S = 10.0
_LONGEST_LINE = 16 << 10
_PATH = "/callback"


class SignInNeeded(UnusableConfig):
    """The server wants the user to sign in, and the user has not asked to."""


class Redirect:
    """A port of this computer to which the browser comes back (RFC 8252, section 7.3)."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def open(self) -> str:
        """Begin to listen; returns the address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST_LINE)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def expect(self, page: str) -> None:
        """Take only the answer to this page: other programs can reach the port, too."""
        self._state = _query(page).get("state", "")

    async def answer(self) -> dict[str, str]:
        """The values that the browser brings."""
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                line = await reader.readline()
                while (await reader.readline()).strip():  # the headers
                    pass
                target = (line.decode("latin-1").split(" ") + ["", ""])[1]
                values = _query(target)
                known = urlsplit(target).path == _PATH and self._state and values.get("state") == self._state
                writer.write(_page() if known else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                if known and not self._answer.done():
                    self._answer.set_result(values)
        except (OSError, ValueError, TimeoutError):
            pass  # it was not the browser
        finally:
            writer.close()


def _query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _page() -> bytes:
    words = escape(_("You can close this page and go back to Inglenook."))
    body = f'<!doctype html><meta charset="utf-8"><title>Inglenook</title><p>{words}</p>'.encode()
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class SignIn(OAuthClientProvider):
    """Adds the tokens of a server to requests, renews them, and gets the first ones if it may `ask`, which is
    called with the address of the page for the browser; without it, `SignInNeeded` ends the flow.

    `give_up` is called with the exception that ends a flow: the library keeps it to itself.
    """

    def __init__(
        self,
        server: str,
        url: str,
        redirect: Redirect | None,
        address: str,
        ask: Callable[[str], None],
        give_up: Callable[[Exception], None],
    ) -> None:
        self._name, self._url, self._redirect = server, url, redirect
        self._ask, self._give_up = ask, give_up
        metadata = OAuthClientMetadata(
            redirect_uris=[AnyUrl(address)],
            client_name="Inglenook",
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        super().__init__(url, metadata, self, self._open_page, self._come_back)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The library's flow; what ends it is said."""
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except Exception as error:
            self._give_up(error)
            raise
        finally:
            await flow.aclose()

    async def _open_page(self, page: str) -> None:
        if self._redirect is None:
            raise SignInNeeded(_("The tool server wants you to sign in."))
        try:
            parts = urlsplit(page)
            safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        except ValueError:
            safe = False
        if not safe:
            raise UnusableConfig(
                _(
                    "The page to sign in at is not encrypted (https), so it is not opened: {page}",
                    page=page[:200],
                )
            )
        self._redirect.expect(page)
        self._ask(page)

    async def _come_back(self) -> AuthorizationCodeResult:
        assert self._redirect is not None
        try:
            async with asyncio.timeout(SIGN_IN_S):
                values = await self._redirect.answer()
        except TimeoutError:
            raise SignInNeeded(_("Nobody signed in within 5 minutes. Try again.")) from None
        if "code" not in values:
            problem = values.get("error_description") or values.get("error") or "?"
            raise SignInNeeded(
                _("The tool server did not let you sign in ({problem}).", problem=problem[:200])
            )
        return AuthorizationCodeResult(code=values["code"], state=values.get("state"), iss=values.get("iss"))

    # -- the library's `TokenStorage`

    async def get_tokens(self) -> OAuthToken | None:
        """The saved tokens; None where the user signs in again."""
        saved = await self._load()
        try:
            found = OAuthToken.model_validate(saved["tokens"])
            if saved.get("metadata"):  # where tokens are renewed
                self.context.oauth_metadata = OAuthMetadata.model_validate(saved["metadata"])
        except (KeyError, ValidationError):
            return None
        self.context.token_expiry_time = saved.get("expires")
        return found

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """How this program is registered there; None where the user signs in again, on another port."""
        try:
            return OAuthClientInformationFull.model_validate((await self._load())["client"])
        except (KeyError, ValidationError):
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing is saved before there are tokens."""

    async def set_tokens(self, tokens_: OAuthToken) -> None:
        """Save tokens, with what is needed to renew them."""
        context = self.context
        values: dict[str, Any] = {"tokens": tokens_.model_dump(mode="json", exclude_none=True)}
        if context.client_info is not None:
            values["client"] = context.client_info.model_dump(mode="json", exclude_none=True)
        if context.oauth_metadata is not None:
            values["metadata"] = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
        if tokens_.expires_in is not None:
            values["expires"] = time.time() + tokens_.expires_in
        await anyio.to_thread.run_sync(tokens.save, self._name, self._url, values)
        if (
            self._redirect is not None
        ):  # The browser is opened once; later, the user is asked to sign in again.
            self._redirect.close()
            self._redirect = None

    async def _load(self) -> dict[str, Any]:
        if self._redirect is not None:
            return {}
        return await anyio.to_thread.run_sync(tokens.load, self._name, self._url)


async def sign_in_for(
    stack: AsyncExitStack,
    config: ServerConfig,
    asks: bool,
    ask: Callable[[str], None],
    give_up: Callable[[Exception], None],
) -> SignIn | None:
    """What signs in to a server, if its user does: with the saved tokens, or again where it `asks`."""
    if not config.url or not config.signs_in:
        return None
    if not asks:
        saved = await anyio.to_thread.run_sync(tokens.load, config.name, config.url)
        return (
            SignIn(config.name, config.url, None, f"http://127.0.0.1{_PATH}", ask, give_up) if saved else None
        )
    redirect = Redirect()
    stack.callback(redirect.close)
    return SignIn(config.name, config.url, redirect, await redirect.open(), ask, give_up)
