"""One HTTP request on a thread of its own: a read never blocks the engine's thread, and can be ended.

What arrives waits in a bounded queue, so a server that writes faster than it is read is slowed down by TCP.
Each exchange has a connection of its own; closing that is the only way to tell most servers that nobody reads
any more.
"""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import httpx2

from engine.remote.provider import Provider
from engine.words import _

USER_AGENT = "inglenook"
CONNECT_SECONDS, WRITE_SECONDS = 10.0, 60.0
MOST_BYTES = 8 << 20
"""Of an answer that is no stream of events."""
_WAITING_ITEMS = 256
_REDIRECTS = 3
_EVENTS = ("", "text/event-stream", "text/plain", "application/octet-stream")
"""Content types that servers send events with; the standard is the second."""


class Event(NamedTuple):
    """A server-sent event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

    kind: str
    data: str


class Answer(NamedTuple):
    """A whole answer, which is no stream of events. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    text: str


class Ended(NamedTuple):
    """Nothing more comes: `error` is what ended it, None at the proper end."""

    error: Exception | None = None


class Redirected(Exception):
    """The server points to an address of another host, where the key must not go."""


class TooLong(Exception):
    """An answer is longer than `MOST_BYTES`."""


class Call(NamedTuple):
    """A request: `body` is sent as JSON by POST, without one it is a GET. `root`: the path does not follow
    the base URL's `/v1`.
    """

    path: str
    body: Mapping[str, Any] | None = None
    root: bool = False


class Exchange:
    """Begins at once. `notify` is called after each item, on the exchange's thread."""

    def __init__(
        self, provider: Provider, key: str, call: Call, notify: Callable[[], object] = lambda: None
    ) -> None:
        self._provider, self._key, self._call, self._notify = provider, key, call, notify
        self._items: queue.Queue[Event | Answer | Ended] = queue.Queue(_WAITING_ITEMS)
        self._aborted = threading.Event()
        self._stream: Any = None  # the newest network stream of httpx2
        self._thread = threading.Thread(target=self._run, name="remote", daemon=True)
        self._thread.start()

    def take(self, seconds: float | None = 0.0) -> Event | Answer | Ended | None:
        """The next item; None if there is none after this many seconds (None: wait for it)."""
        with contextlib.suppress(queue.Empty):
            return self._items.get(block=seconds != 0.0, timeout=seconds or None)
        return None

    @property
    def has_items(self) -> bool:
        """Whether `take` would not wait."""
        return not self._items.empty()

    def abort(self) -> None:
        """Close the connection, from any thread; nothing is to be taken any more."""
        self._aborted.set()
        self._shut(self._stream)

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, after `abort` or `Ended`."""
        self._thread.join(seconds)

    # -- on the exchange's thread

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._exchange()
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as caught:
            error = caught
        except (Redirected, TooLong, ValueError, RuntimeError) as caught:  # from the network's libraries, too
            error = caught
        finally:
            self._put(Ended(error))

    def _exchange(self) -> None:
        url = self._url()
        for _unused in range(_REDIRECTS + 1):
            with self._client() as client:
                response = client.send(self._request(client, url), stream=True)
                with contextlib.closing(response):
                    if not 300 <= response.status_code < 400 or "location" not in response.headers:
                        self._read(response)
                        return
                    url = self._redirected(response)
        raise Redirected(_("itself repeatedly"))

    def _url(self) -> str:
        base = self._provider.base_url
        return (base.removesuffix("/v1") if self._call.root else base) + self._call.path

    def _client(self) -> httpx2.Client:
        return httpx2.Client(
            auth=_NoAuth(),  # a password in ~/.netrc would take the key's place
            verify=_tls(),
            trust_env=not self._provider.on_this_computer,  # no proxy for this computer
            timeout=httpx2.Timeout(
                connect=CONNECT_SECONDS,
                write=WRITE_SECONDS,
                pool=None,
                read=self._provider.longest_wait or None,
            ),
            follow_redirects=False,
        )

    def _request(self, client: httpx2.Client, url: str) -> httpx2.Request:
        headers = {
            **dict(self._provider.headers), "User-Agent": USER_AGENT, "Accept-Encoding": "identity",
            "Accept": "text/event-stream, application/json",
        }  # fmt: skip
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        body = self._call.body
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()  # ASCII: lone surrogates are escaped
        return client.build_request(
            "GET" if body is None else "POST", url, headers=headers, content=content,
            extensions={"trace": self._trace},
        )  # fmt: skip

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Keep the connection at hand for `abort`."""
        if name not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            return
        self._stream = info.get("return_value")
        _keep_alive(self._stream)
        if self._aborted.is_set():
            self._shut(self._stream)

    def _redirected(self, response: httpx2.Response) -> str:
        """Where a redirect leads on the same host. Raises `Redirected`."""
        target = response.request.url.join(response.headers["location"])
        here = response.request.url
        same = (target.scheme, target.host, target.port) == (here.scheme, here.host, here.port)
        keeps = response.status_code in (307, 308) or self._call.body is None
        if not (same and keeps):
            raise Redirected(f"{target.scheme}://{target.netloc.decode('ascii', 'replace')}{target.path}")
        return str(target)

    def _read(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        wants_events = self._call.body is not None and self._call.body.get("stream") is True
        if response.status_code != 200 or kind not in _EVENTS or not wants_events:
            self._put(Answer(response.status_code, dict(response.headers), _whole(response)))
            return
        whole = httpx2.Response(
            200,
            headers={"content-type": "text/event-stream; charset=utf-8-sig"},  # without a byte order mark
            stream=_Finished(response.stream),
            request=response.request,
        )
        for event in httpx2.EventSource(whole):
            if self._aborted.is_set():
                return
            self._put(Event(event.event, event.data))

    def _put(self, item: Event | Answer | Ended) -> None:
        while not self._aborted.is_set():
            try:
                self._items.put(item, timeout=0.1)
            except queue.Full:
                continue
            self._notify()
            return

    def _shut(self, stream: Any) -> None:
        """Wake a blocked read."""
        found = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(found, socket.socket):
            with contextlib.suppress(OSError):
                # of the TCP connection itself: TLS would try to read and write
                socket.socket.shutdown(found, socket.SHUT_RDWR)


class _NoAuth(httpx2.Auth):
    """Leaves the headers as they are."""


class _Finished(httpx2.SyncByteStream):
    """A stream with empty lines at its end: some servers leave out those that finish the last event."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream
        yield b"\n\n"

    def close(self) -> None:
        self._stream.close()


def _whole(response: httpx2.Response) -> str:
    """The text of an answer. Raises `TooLong`."""
    found = bytearray()
    for chunk in response.iter_bytes():
        found += chunk
        if len(found) > MOST_BYTES:
            raise TooLong
    return found.decode("utf-8-sig", "replace")


def _keep_alive(stream: Any) -> None:
    """Let the system find out, within minutes, that the other side is gone."""
    found = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(found, socket.socket):
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 4)):
                if hasattr(socket, name):
                    found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
