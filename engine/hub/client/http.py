"""HTTP for downloads, with the user's proxies, certificates and passwords, that another thread can abort.

This is `urllib`, with a hook where a connection is made. Of `httpx` the same hook would need its trace
events, since closing its client does not wake a blocked read, and the rules below (pip's settings, NO_PROXY,
trusted hosts, a token for each origin after redirects, errors as sentences) would all stay.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import os
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from engine.errors import DownloadError
from engine.hub.download.pip_settings import PipSettings
from engine.words import _

USER_AGENT = "inglenook"


class Web:
    """Opens URLs. `abort()` closes every connection at once, from any thread: blocked reads then fail."""

    def __init__(
        self, settings: PipSettings, environ: Mapping[str, str], tokens: Mapping[str, str] | None = None
    ) -> None:
        """`tokens` are bearer tokens by origin ("https://host:port"); each is sent to its origin only, after
        redirects, too.
        """
        self._tokens = dict(tokens or {})
        self.timeout = settings.timeout
        self.stopped = threading.Event()
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._passwords = {
            host: auth for host, auth in map(_password, (*settings.indexes, *settings.find_links)) if auth
        }
        self._opener = urllib.request.OpenerDirector()
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.ProxyHandler(_proxies(settings)),
            _Connections(self, settings, environ),
            _Redirects(self),
            urllib.request.UnknownHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ]
        for handler in handlers:
            self._opener.add_handler(handler)

    def open(self, url: str, headers: Mapping[str, str]) -> Any:
        """An open response. Raises `urllib.error.URLError`, `OSError` or `http.client.HTTPException`."""
        try:
            request = urllib.request.Request(
                without_password(url), headers={"User-Agent": USER_AGENT, **headers}
            )
        except ValueError as error:
            raise urllib.error.URLError(_("its address is not a valid URL")) from error
        self.authorise(request)
        return self._opener.open(request, timeout=self.timeout)

    @property
    def has_token(self) -> bool:
        """Whether requests to some origin carry a token."""
        return bool(self._tokens)

    def authorise(self, request: urllib.request.Request) -> None:
        """Add the credentials of the request's host, which redirects do not carry to another host."""
        if token := self._tokens.get(origin(request.full_url)):
            request.add_unredirected_header("Authorization", f"Bearer {token}")
            return
        host = urllib.parse.urlsplit(request.full_url).netloc.lower()
        auth = self._passwords.get(host) or _netrc_password(
            urllib.parse.urlsplit(request.full_url).hostname or ""
        )
        if auth:
            request.add_unredirected_header("Authorization", auth)

    def register(self, connected: socket.socket) -> None:
        """Remember an open connection for `abort`."""
        with self._lock:
            self._sockets.append(connected)
        if self.stopped.is_set():
            self.abort()

    def abort(self) -> None:
        """Close every connection and refuse new ones."""
        self.stopped.set()
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for connected in sockets:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; credentials are sent only to hosts that have their own."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None:
            self._web.authorise(following)
        return following


class _Connections(urllib.request.AbstractHTTPHandler):
    """Opens connections that `Web.abort` can close."""

    def __init__(self, web: Web, settings: PipSettings, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._web, self._settings, self._environ = web, settings, environ
        self._trusted_hosts = set(settings.trusted_hosts)
        self.http_request = self.https_request = self.do_request_
        # files that the user names are read before anything is asked for, the system's (30 ms) for HTTPS only
        named = settings.cert or settings.client_cert
        self._tls = _tls(settings, environ) if named else None

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._registered(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        trusted = {req.host, req.host.partition(":")[0]} & self._trusted_hosts
        if not trusted and self._tls is None:
            self._tls = _tls(self._settings, self._environ)
        context = _unchecked() if trusted else self._tls
        return self.do_open(self._registered(http.client.HTTPSConnection), req, context=context)

    def _registered(self, kind: Any) -> Any:
        """The class of connections `kind`, which tells `Web` of each."""
        web = self._web

        class Connection(kind):  # type: ignore[misc] # either class
            def connect(self) -> None:
                super().connect()
                web.register(self.sock)

        return Connection


def _unchecked() -> ssl.SSLContext:
    """For hosts that the user's pip settings trust, as pip does; the file's hash is still checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls(settings: PipSettings, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Certificates: pip's `cert`, else those of OpenSSL (SSL_CERT_FILE included), else `certifi`'s bundle.

    Raises `DownloadError`.
    """
    try:
        context = ssl.create_default_context()
        if settings.cert:
            folder = os.path.isdir(settings.cert)
            context = ssl.create_default_context(
                cafile=None if folder else settings.cert, capath=settings.cert if folder else None
            )
        elif not context.get_ca_certs() and not _system_folder(environ):
            import certifi

            context.load_verify_locations(certifi.where())
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert)
    except (OSError, ssl.SSLError) as error:
        place = settings.cert or settings.client_cert or "SSL_CERT_FILE"
        raise DownloadError(
            _("The certificate setting {place} cannot be read ({error})", place=place, error=error)
        ) from error
    return context


def _system_folder(environ: Mapping[str, str]) -> bool:
    """Whether OpenSSL has a folder of certificates, which it reads on demand."""
    paths = ssl.get_default_verify_paths()
    return any(
        path and os.path.exists(path)
        for path in (environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR"), paths.capath)
    )


def _proxies(settings: PipSettings) -> dict[str, str]:
    """Proxy URLs by scheme: pip's `proxy`, else HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or the system's.

    NO_PROXY always applies. Raises `DownloadError` for a SOCKS proxy.
    """
    found = urllib.request.getproxies()
    everything = settings.proxy or found.get("all", "")
    for scheme in ("http", "https"):
        if settings.proxy or (everything and scheme not in found):
            found[scheme] = everything
    chosen: dict[str, str] = {scheme: found[scheme] for scheme in ("http", "https") if scheme in found}
    for url in chosen.values():
        if url.lower().startswith("socks"):
            raise DownloadError(
                _(
                    "The proxy setting names a SOCKS proxy, but only HTTP proxies can be used for this "
                    "download"
                )
            )
    return chosen


def _password(url: str) -> tuple[str, str]:
    """(host with port, value of the Authorization header or "") of a URL with `user:password@`."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise DownloadError(_("An index address in the pip settings is not a valid URL")) from error
    if "@" not in parts.netloc:
        return "", ""
    login, _unused, host = parts.netloc.rpartition("@")
    user, _unused, password = login.partition(":")
    return host.lower(), _basic(urllib.parse.unquote(user), urllib.parse.unquote(password))


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _netrc_password(host: str) -> str:
    try:
        found = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
    return _basic(found[0], found[2] or "") if found else ""


def without_password(url: str) -> str:
    """The URL without `user:password@`."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def origin(url: str) -> str:
    """Scheme, host and port of a URL in normal form: where a token may be sent."""
    parts = urllib.parse.urlsplit(url)
    scheme = parts.scheme.lower()
    port = parts.port or {"http": 80, "https": 443}.get(scheme, 0)
    return f"{scheme}://{(parts.hostname or '').lower()}:{port}"


def describe(error: Exception) -> str:
    """Why a request failed, for the user: no credentials, no traceback."""
    if isinstance(error, urllib.error.HTTPError):
        return _("the server answered {code} {reason}", code=error.code, reason=error.reason)
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return _(
            "the server's certificate is not trusted ({verify_message})", verify_message=reason.verify_message
        )
    if isinstance(reason, socket.gaierror):
        return _("the server's name was not found (no network?)")
    if isinstance(reason, TimeoutError):
        return _("the server did not answer in time")
    if isinstance(reason, OSError) and reason.strerror:
        return str(reason.strerror).lower()
    return str(reason) or type(reason).__name__
