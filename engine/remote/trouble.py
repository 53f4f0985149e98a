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
            f"{server} redirects requests to {error}, and the key is not sent to another address. If "
            "that address is right, enter it in the settings of this server."
        )
    if isinstance(error, TooLong):
        return RemoteError(
            f"{server} sent more than {MOST_BYTES >> 20} MB, which cannot be a reply; check the address."
        )
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return RemoteError(f"The address {provider.base_url} cannot be used; correct it.")
    if isinstance(error, httpx2.ReadTimeout) and provider.longest_wait:
        waited = seconds_words(provider.longest_wait)
        kept = " What had come is kept: continue the reply, or generate it again." if begun else ""
        return RemoteError(
            f"{server} sent nothing for {waited}, which is the longest wait in its settings.{kept}"
        )
    if begun:
        return RemoteError(
            f"The connection to {server} was lost before the reply was complete. The text received "
            "so far is kept: continue the reply, or regenerate it."
        )
    if isinstance(error, httpx2.ConnectTimeout):
        return RemoteError(
            f"{server} did not accept a connection in time; check the address and the network."
        )
    if isinstance(error, httpx2.TimeoutException):
        return RemoteError(f"{server} did not answer in time; try again.")
    if isinstance(error, httpx2.ProxyError):
        return RemoteError(f"The proxy for {server} refused the connection: {_words(str(error))}")
    if isinstance(error, httpx2.ConnectError):
        return RemoteError(_not_connected(error, provider))
    return RemoteError(f"{server} closed the connection without an answer; try again.")


def _not_connected(error: Exception, provider: Provider) -> str:
    server = who(provider)
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        found = next(cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError))
        return (
            f"The certificate of {server} is not valid ({_words(found.verify_message)}), so nothing was "
            "sent; check the address and this computer's clock."
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return (
            f"{server} does not speak TLS as expected; if the server has no encryption, its address begins "
            "with http://."
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"The name of {server} was not found; check the address and the network."
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        advice = "start it" if provider.on_this_computer else "check the address, or start the server"
        return f"{server} refused the connection: no server is running there; {advice}."
    reason = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), "")
    return f"{server} cannot be reached{f' ({_words(reason)})' if reason else ''}; check the network."


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
        what = "does not accept the key" if key else "asks for a key"
        return RemoteError(f"{server} {what}{quote}. Enter the right key in the settings of this server.")
    if status == 404 and _about(said, model):
        return RemoteError(f"{server} has no model “{one_line(model)}”{quote}. Choose one of its models.")
    if status == 404:
        return RemoteError(f"{server} has nothing at this address{quote}. Check it: most end with /v1.")
    if status == 402:
        return RemoteError(f"{server} asks for payment{quote}.")
    if status == 429:
        wait = retry_after(answer)
        when = " Try again later." if wait is None else f" Try again in {seconds_words(wait)}."
        return RemoteError(f"{server} has received too many requests{quote}.{when}")
    if status in (400, 413, 422) and _TOO_LONG.search(said):
        return ContextTooLong(f"{server} reports that the chat is too long{quote}.")
    if status >= 500:
        return RemoteError(
            f"{server} reports an error (status {status}){quote}. Try again, or look at its log."
        )
    return RemoteError(f"{server} refused the request (status {status}){quote}.")


def _no_reply(answer: Answer, provider: Provider) -> RemoteError:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "text/html" or answer.text.lstrip()[:1] == "<":
        return RemoteError(
            f"{who(provider)} sent a web page instead of a reply; the address is probably that of a "
            "website, not of its API."
        )
    return RemoteError(f"{who(provider)} sent something that is not a reply of a model; check the address.")


def malformed(provider: Provider, data: str, begun: bool) -> RemoteError:
    """A piece of a stream could not be read."""
    kept = " The text received so far is kept." if begun else ""
    return RemoteError(
        f"{who(provider)} sent unreadable data in the middle of the reply: {_words(data)[:80]!r}.{kept}"
    )


def failed(provider: Provider, said: str, begun: bool) -> EngineError:
    """An error that came within a stream."""
    kept = " The text received so far is kept." if begun else ""
    if _TOO_LONG.search(said) and not begun:
        return ContextTooLong(f"{who(provider)} reports that the chat is too long: {said}")
    return RemoteError(f"{who(provider)} ended the reply with an error: {said or 'no reason given'}.{kept}")


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
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{round(seconds / 60)} min"


def _about(said: str, model: str) -> bool:
    """Whether an error of status 404 is about the model."""
    return bool(model) and ("model" in said.lower() or model.lower() in said.lower().split())


def _words(text: str) -> str:
    line = one_line(text).strip().rstrip(".")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
