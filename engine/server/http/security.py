"""Who may use the server: hosts, origins, tokens and content types are checked before anything is read.

A web page in a browser can send requests to this machine, also under a name of its own that it lets point
here (DNS rebinding). Hence only known names are accepted as `Host`, and requests of pages only from origins
that were named, whatever address the server listens on.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.server.failure import Failure, is_googles
from engine.server.http.exchange import discard
from engine.server.options import ServerOptions

OPEN_PATHS = frozenset({"/", "/health", "/v1/health", "/lmstudio-greeting"})
"""What may be read without a token: whether the server is there."""
ADMITTED = "inglenook.admitted"
"""In the scope of a WebSocket: whether its client needs no token, or sent it with the headers."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_SLASHES = re.compile(r"/+")
_ABSOLUTE = re.compile(r"^https?://[^/]*", re.IGNORECASE)
"""What proxies, and clients set to one, put before the path. The Host header says the same."""
_HOSTED = re.compile(r"^(?:/openai(?:/v1|/deployments/[^/]+)?|/v1/openai(?!/v1/|/deployments/))(?=/)")
"""What Groq's clients, those of OpenAI on Azure, and DeepInfra's put in the place of /v1."""
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_\-, ]{0,1000}", re.ASCII)

_FOREIGN_HOST = Failure(
    403, "The Host header is not one of this server's names; add the name with --allow-host.",
    "permission_error", code="host_not_allowed",
)  # fmt: skip
_FOREIGN_ORIGIN = Failure(
    403, "Web pages may not use this server unless their origin is allowed with --allow-origin.",
    "permission_error", code="origin_not_allowed",
)  # fmt: skip
_NO_TOKEN = Failure(
    401, "The token is missing or wrong; send it as 'Authorization: Bearer TOKEN' or 'x-api-key: TOKEN'.",
    "authentication_error", code="invalid_api_key",
)  # fmt: skip
_NOT_JSON = Failure(415, "The body must be JSON, with the header 'Content-Type: application/json'.")


class Security:
    """Lets through to `app` what may use the server."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._token, self._body_seconds = options.token, options.bounds.body_seconds
        own = () if _is_unspecified(options.host) else (options.host,)
        self._hosts = _LOCAL | {host.lower().rstrip(".") for host in (*options.hosts, *own)}
        self._origins = frozenset(origin.lower() for origin in options.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] not in ("http", "websocket"):
            return
        scope = {**scope, "path": _meant(scope["path"])}
        headers = Headers(scope=scope)
        if scope["type"] == "websocket":
            await self._connected(scope, headers, receive, send)
            return
        id = "req_" + secrets.token_hex(12)
        send = _with_headers(send, {"x-request-id": id, "request-id": id})  # OpenAI's, Anthropic's
        origin = headers.get("origin", "").lower()
        named = origin in self._origins
        if named:
            send = _with_headers(send, {"access-control-allow-origin": headers["origin"], "vary": "origin"})
        if named and scope["method"] == "OPTIONS" and self._is_own_host(scope, headers):
            answer: Response | None = _preflight(headers)
        else:
            failure = self._refusal(scope, headers, named)
            answer = None if failure is None else _refused(failure, scope["path"], self._body_seconds)
        await (self._app if answer is None else answer)(scope, receive, send)

    async def _connected(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """A WebSocket. Its client may send the token later: `ADMITTED` says whether it has."""
        failure = self._foreign(scope, headers, headers.get("origin", "").lower() in self._origins)
        if failure is not None:
            await _refused(failure, scope["path"], self._body_seconds)(scope, receive, send)
            return
        await self._app({**scope, ADMITTED: self._is_token(headers, ())}, receive, send)

    def _foreign(self, scope: Scope, headers: Headers, named: bool) -> Failure | None:
        """Why a request from elsewhere is refused; None if it is not. `named`: its origin is."""
        if not self._is_own_host(scope, headers):
            return _FOREIGN_HOST
        if not named and ("origin" in headers or headers.get("sec-fetch-site", "none") not in _OWN_PAGES):
            return _FOREIGN_ORIGIN
        return None

    def _refusal(self, scope: Scope, headers: Headers, named: bool) -> Failure | None:
        """Why a request is refused; None if it is not."""
        failure = self._foreign(scope, headers, named)
        if failure is not None:
            return failure
        is_open = scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN_PATHS
        if not is_open and not self._is_token(headers, _keys_in(scope)):
            return _NO_TOKEN
        # With a token any type will do: a page would have to ask first before it sends the token. Without
        # one, programs such as LiteLLM and curl name none or another one; for pages the origin tells.
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        is_other = scope["method"] == "POST" and kind != "application/json"
        if is_other and not self._token and not _is_program(headers):
            return _NOT_JSON
        return None

    def _is_own_host(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request names this machine: by one of its names, or by the address that it came to."""
        named = headers.getlist("host")
        match = _HOST.fullmatch(named[0]) if len(named) == 1 else None
        if match is None:
            return False
        host = match[1].strip("[]").lower().rstrip(".")
        server = scope.get("server")
        return host in self._hosts or (server is not None and _same_address(host, str(server[0])))

    def _is_token(self, headers: Headers, keys: Sequence[str]) -> bool:
        """Whether a header, by whatever scheme a client calls it, or one of `keys` is the right token."""
        given = (
            headers.get("authorization", "").rpartition(" ")[2],
            *(headers.get(name, "") for name in _KEYS),
            *keys,
        )
        return is_token(self._token, given)


_KEYS = ("x-api-key", "x-admin-key", "x-goog-api-key", "api-key")
"""Headers that hold the token alone: Anthropic's, TabbyAPI's, Google's, and Azure's."""
_MODELS, _MOST_KEYS = "/v1/models", 8
_OWN_PAGES = ("none", "same-origin")
_BROWSERS = ("Mozilla/", "Opera/")
"""How browsers begin their names."""


def _meant(path: str) -> str:
    """The path that clients mean who put a slash too many, or that of a hosted API, into the address, or send
    the whole address.
    """
    path = _ABSOLUTE.sub("", path)
    return _HOSTED.sub("/v1", "/" + _SLASHES.sub("/", path).strip("/"), count=1)


def _keys_in(scope: Scope) -> Sequence[str]:
    """The tokens in the address of a request that Google's clients make, which may write `?key=TOKEN`."""
    path = scope["path"]
    if not (is_googles(path) or path == _MODELS or path.startswith(_MODELS + "/")):
        return ()
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return query.get("key", [])[:_MOST_KEYS]


def is_token(token: str, given: Sequence[str]) -> bool:
    """Whether one of these is the token, or none is needed; compared in a time that does not depend on it."""
    found = [hmac.compare_digest(one.encode("utf-8", "replace"), token.encode()) for one in given]
    return not token or any(found)


def _is_program(headers: Headers) -> bool:
    """Whether a request is certain to come from no browser, by its name, which pages cannot change for the
    types of content that they may send unasked.
    """
    name = headers.get("user-agent", "").strip()
    return bool(name) and not name.startswith(_BROWSERS)


def _is_unspecified(host: str) -> bool:
    """Whether this is an address to listen on only, 0.0.0.0 or ::. As a host it leads to this machine, too;
    only web pages of others have a reason to name it.
    """
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _same_address(host: str, address: str) -> bool:
    """Whether both are the same IP address; an IPv4 one may be written as one of IPv6."""
    try:
        first, second = (ipaddress.ip_address(text.partition("%")[0]) for text in (host, address))
    except ValueError:
        return False
    return _plain(first) == _plain(second)


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


class _Refusal(JSONResponse):
    """The answer to a refused request, whose body goes to nobody, for which there are so many `seconds`."""

    seconds = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_discard(message: Message) -> None:
            if message["type"] == "http.response.body":
                await send({**message, "more_body": True})
                await discard(receive, self.seconds)
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await super().__call__(scope, receive, send_and_discard)


def _refused(failure: Failure, path: str, seconds: float) -> Response:
    headers = {"connection": "close"}
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    answer = _Refusal(failure.body_for(path), failure.status, headers)
    answer.seconds = seconds
    return answer


def _preflight(headers: Headers) -> Response:
    """The answer to a browser that asks whether a named page may send a request."""
    asked = headers.get("access-control-request-headers", "")
    allowed = {
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
        "access-control-allow-headers": asked if _HEADER_NAMES.fullmatch(asked) else "authorization",
        "access-control-max-age": "600",
    }
    if headers.get("access-control-request-private-network") == "true":
        allowed["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=allowed)


def _with_headers(send: Send, more: Mapping[str, str]) -> Send:
    """`send`, which adds headers to the answer."""
    added = [(name.encode(), value.encode("latin-1")) for name, value in more.items()]

    async def wrapper(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return wrapper
