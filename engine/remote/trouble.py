"""What went wrong with a server, as one sentence: what was found, and what to do."""

from __future__ import annotations

import email.utils
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping

import httpx2

from engine.errors import ContextTooLong, EngineError, RemoteError
from engine.printable import one_line
from engine.remote.exchange import MOST_BYTES, Answer, Redirected, TooLong
from engine.remote.keys import hidden
from engine.remote.provider import Provider
from engine.units import size_text
from engine.words import N_, _, paragraph, translate

_LONGEST = 300
_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|too many tokens|prompt is too long"
    r"|exceed.{0,30}context",
    re.IGNORECASE,
)


def who(provider: Provider) -> str:
    """The server for a sentence: "Lab (api.example.org)"."""
    return provider.host if provider.name == provider.host else f"{provider.name} ({provider.host})"


def lost(error: Exception | None, provider: Provider, begun: bool = False) -> RemoteError:
    """Why there was no answer, or why it ended; `begun`: some of it had come."""
    server = who(provider)
    if isinstance(error, Redirected):
        return RemoteError(
            _(
                "{server} redirects requests to {error}, and the key is not sent to another "
                "address. If that address is right, enter it in the settings of this server.",
                server=server,
                error=error,
            )
        )
    if isinstance(error, TooLong):
        return RemoteError(
            _(
                "{server} sent more than {size}, which cannot be a reply; check the address.",
                server=server,
                size=size_text(MOST_BYTES),
            )
        )
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return RemoteError(
            _("The address {base_url} cannot be used; correct it.", base_url=provider.base_url)
        )
    if isinstance(error, httpx2.ReadTimeout) and provider.longest_wait:
        return RemoteError(_too_slow(provider, begun))
    if begun:
        return RemoteError(
            _(
                "The connection to {server} was lost before the reply was complete. The text "
                "received so far is kept: continue the reply, or regenerate it.",
                server=server,
            )
        )
    if isinstance(error, httpx2.ConnectTimeout):
        return RemoteError(
            _(
                "{server} did not accept a connection in time; check the address and the network.",
                server=server,
            )
        )
    if isinstance(error, httpx2.TimeoutException):
        return RemoteError(_("{server} did not answer in time; try again.", server=server))
    if isinstance(error, httpx2.ProxyError):
        return RemoteError(
            _(
                "The proxy for {server} refused the connection: {words}",
                server=server,
                words=_words(str(error)),
            )
        )
    if isinstance(error, httpx2.ConnectError):
        return RemoteError(_not_connected(error, provider))
    return RemoteError(_("{server} closed the connection without an answer; try again.", server=server))


def _too_slow(provider: Provider, begun: bool) -> str:
    server, waited = who(provider), seconds_words(provider.longest_wait)
    if begun:
        return _(
            "{server} sent nothing for {waited}, which is the longest wait in its settings. What had come "
            "is kept: continue the reply, or generate it again.",
            server=server,
            waited=waited,
        )
    return _(
        "{server} sent nothing for {waited}, which is the longest wait in its settings.",
        server=server,
        waited=waited,
    )


def _not_connected(error: Exception, provider: Provider) -> str:
    server = who(provider)
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        found = next(cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError))
        return _(
            "The certificate of {server} is not valid ({words}), so nothing was sent; check "
            "the address and this computer's clock.",
            server=server,
            words=_words(found.verify_message),
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return _(
            "{server} does not speak TLS as expected; if the server has no encryption, its "
            "address begins with http://.",
            server=server,
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return _("The name of {server} was not found; check the address and the network.", server=server)
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        if provider.on_this_computer:
            return _("{server} refused the connection: no server is running there; start it.", server=server)
        return _(
            "{server} refused the connection: no server is running there; check the address, or "
            "start the server.",
            server=server,
        )
    reason = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), "")
    return _(
        "{server} cannot be reached{words}; check the network.",
        server=server,
        words=f" ({_words(reason)})" if reason else "",
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def refused(answer: Answer, provider: Provider, model: str, key: str) -> EngineError:
    """What an answer says that is no reply."""
    server, status = who(provider), answer.status
    said = message_of(answer, key)
    quote = f": {said}" if said else ""
    if status == 200:
        return _no_reply(answer, provider)
    if status in (401, 403):
        if key:
            words = N_(
                "{server} does not accept the key{quote}. Enter the right key in the settings of this server."
            )
        else:
            words = N_("{server} asks for a key{quote}. Enter the right key in the settings of this server.")
        return RemoteError(translate(words, server=server, quote=quote))
    if status == 404 and _about(said, model):
        return RemoteError(
            _(
                "{server} has no model “{model}”{quote}. Choose one of its models.",
                server=server,
                model=one_line(model),
                quote=quote,
            )
        )
    if status == 404:
        return RemoteError(
            _(
                "{server} has nothing at this address{quote}. Check it: most end with /v1.",
                server=server,
                quote=quote,
            )
        )
    if status == 402:
        return RemoteError(_("{server} asks for payment{quote}.", server=server, quote=quote))
    if status == 429:
        wait = retry_after(answer)
        if wait is None:
            words = N_("{server} has received too many requests{quote}. Try again later.")
        else:
            words = N_("{server} has received too many requests{quote}. Try again in {wait}.")
        return RemoteError(
            translate(words, server=server, quote=quote, wait=seconds_words(wait) if wait is not None else "")
        )
    if status in (400, 413, 422) and _TOO_LONG.search(said):
        return ContextTooLong(
            _("{server} reports that the chat is too long{quote}.", server=server, quote=quote)
        )
    if status >= 500:
        return RemoteError(
            _(
                "{server} reports an error (status {status}){quote}. Try again, or look at its log.",
                server=server,
                status=status,
                quote=quote,
            )
        )
    return RemoteError(
        _("{server} refused the request (status {status}){quote}.", server=server, status=status, quote=quote)
    )


def _no_reply(answer: Answer, provider: Provider) -> RemoteError:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "text/html" or answer.text.lstrip()[:1] == "<":
        return RemoteError(
            _(
                "{who} sent a web page instead of a reply; the address is probably that of a "
                "website, not of its API.",
                who=who(provider),
            )
        )
    return RemoteError(
        _("{who} sent something that is not a reply of a model; check the address.", who=who(provider))
    )


def malformed(provider: Provider, data: str, begun: bool) -> RemoteError:
    """A piece of a stream could not be read."""
    kept = _("The text received so far is kept.") if begun else ""
    what = _(
        "{who} sent unreadable data in the middle of the reply: {words!r}.",
        who=who(provider),
        words=_words(data)[:80],
    )
    return RemoteError(paragraph(what, kept))


def failed(provider: Provider, said: str, begun: bool) -> EngineError:
    """An error that came within a stream."""
    kept = _("The text received so far is kept.") if begun else ""
    if _TOO_LONG.search(said) and not begun:
        return ContextTooLong(
            _("{who} reports that the chat is too long: {said}", who=who(provider), said=said)
        )
    what = _(
        "{who} ended the reply with an error: {said}.", who=who(provider), said=said or _("no reason given")
    )
    return RemoteError(paragraph(what, kept))


def message_of(answer: Answer, key: str) -> str:
    """The message in an answer of an error, without the key; "" for none, or a web page."""
    try:
        found = json.loads(answer.text)
    except (ValueError, RecursionError):
        text = answer.text.strip()
        return "" if text.startswith("<") else _words(hidden(text, key))
    return _words(hidden(error_text(found), key))


def error_text(found: object) -> str:
    """The message in the JSON of an error, in the forms of OpenAI, FastAPI and others."""
    for name in ("error", "detail", "message", "error_description", "msg"):
        if isinstance(found, Mapping) and found.get(name):
            inner = found[name]
            return inner if isinstance(inner, str) else error_text(inner)
    if isinstance(found, list) and found:
        return "; ".join(filter(None, map(_of_list, found[:4])))
    return found if isinstance(found, str) else ""


def _of_list(found: object) -> str:
    place = found.get("loc") if isinstance(found, Mapping) else None
    name = str(place[-1]) + ": " if isinstance(place, list) and place else ""
    return name + error_text(found)


def retry_after(answer: Answer) -> float | None:
    """Seconds until the next try is welcome: the header Retry-After (RFC 9110, 10.2.3); None if not said."""
    value = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return min(86400.0, float(value))
    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(86400.0, max(0.0, moment - time.time()))


def seconds_words(seconds: float) -> str:
    """A time to wait: "12 s", "5 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else _("{seconds} min", seconds=round(seconds / 60))


def _about(said: str, model: str) -> bool:
    """Whether an error of status 404 is about the model."""
    return bool(model) and ("model" in said.lower() or model.lower() in said.lower().split())


def _words(text: str) -> str:
    line = one_line(text).strip().rstrip(".")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
