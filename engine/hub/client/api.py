"""Requests to the hub's API: its address, JSON pages, and a sentence for each way it can refuse.

`huggingface_hub` is used for the hub's data types and addresses, but not for requests: there a listing has no
timeout, failures are retried for half a minute without a way to stop, and further requests may come first.
Requests go through `Web`, as downloads do.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.parse
from collections.abc import Iterator
from typing import Any

from engine.errors import DownloadError
from engine.hub.client.http import Web, describe, origin
from engine.hub.client.offline import check_online
from engine.hub.client.token import hub_token
from engine.hub.download.pip_settings import PipSettings
from engine.hub.download.transfer import retry_after
from engine.units import size_text
from engine.words import N_, _, translate

DEFAULT_ENDPOINT = "https://huggingface.co"
MAX_PAGE_BYTES, MAX_PAGES = 32 << 20, 20
TIMEOUT_SECONDS = 15.0


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT, else the public hub. Raises `DownloadError` if it is not a URL."""
    address = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT
    try:
        parts = urllib.parse.urlsplit(address)
        usable = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        usable = False
    if not usable:
        raise DownloadError(
            _(
                "The environment variable HF_ENDPOINT is {address!r}, which is not a web address; "
                "correct it, or remove it.",
                address=address,
            )
        )
    return address


def hub_web() -> Web:
    """A `Web` for one task, with the user's token for the hub, and proxies and certificates of the
    environment.

    Raises `DownloadError` while offline, before any look-up.
    """
    check_online()
    cert = os.environ.get("REQUESTS_CA_BUNDLE", "") or os.environ.get("CURL_CA_BUNDLE", "")
    token = hub_token()
    tokens = {origin(endpoint()): token} if token else {}
    return Web(PipSettings(indexes=(), cert=cert.strip(), timeout=TIMEOUT_SECONDS), os.environ, tokens)


def get_json(web: Web, path: str, parameters: list[tuple[str, str]], about: str) -> Any:
    """One answer of the hub's API. `about` is the subject in errors: "The model author/name", "The search".

    Raises `DownloadError`.
    """
    return _page(web, f"{endpoint()}{path}?{urllib.parse.urlencode(parameters)}", about)[0]


def get_items(web: Web, path: str, parameters: list[tuple[str, str]], about: str) -> Iterator[Any]:
    """Items of a listing, requested page by page as they are needed (Link header, RFC 8288).

    Raises `DownloadError`.
    """
    url = f"{endpoint()}{path}?{urllib.parse.urlencode(parameters)}"
    for _unused in range(MAX_PAGES):
        items, following = _page(web, url, about)
        if not isinstance(items, list):
            raise DownloadError(
                _(
                    "{about}: {host} sent an answer that is not a list; check the address in HF_ENDPOINT.",
                    about=about,
                    host=_host(),
                )
            )
        yield from items
        if not following or not items:
            return
        url = following


def _page(web: Web, url: str, about: str) -> tuple[Any, str]:
    """The data of a page, and the address of the next page or ""."""
    try:
        with web.open(url, {"Accept": "application/json"}) as response:
            body = response.read(MAX_PAGE_BYTES + 1)
            base, link = response.url, response.headers.get("Link", "")
    except urllib.error.HTTPError as error:
        with error:
            raise DownloadError(refusal(error, about, web.has_token)) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise DownloadError(
            _("{host} could not be reached: {reason}.", host=_host(), reason=describe(error))
        ) from error
    if len(body) > MAX_PAGE_BYTES:
        raise DownloadError(
            _(
                "{about}: {host} sent more than {size}, which cannot be the answer of a hub.",
                about=about,
                host=_host(),
                size=size_text(MAX_PAGE_BYTES),
            )
        )
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DownloadError(
            _(
                "{about}: {host} sent an answer that is not JSON; check the address in HF_ENDPOINT.",
                about=about,
                host=_host(),
            )
        ) from error
    following = re.search(r'<([^<>]*)>\s*;[^,]*\brel="?next"?', link)
    return data, urllib.parse.urljoin(base, following[1]) if following else ""


def refusal(error: urllib.error.HTTPError, about: str, have: bool) -> str:
    """One sentence for an HTTP error; `have`: a token was sent.

    The hub's X-Error-Code is documented in `huggingface_hub.errors`.
    """
    code, host, kind = error.code, _host(), (error.headers.get("X-Error-Code", "") if error.headers else "")
    if kind == "GatedRepo":
        if have:
            words = N_(
                "{about} is gated: accept its terms on its page at {host} with the account of your token."
            )
        else:
            words = N_(
                "{about} is gated: accept its terms on its page at {host} and save a token of that account "
                "in the settings."
            )
        return translate(words, about=about, host=host)
    if kind == "RevisionNotFound":
        return _("{about} has no such revision at {host}.", about=about, host=host)
    if kind == "EntryNotFound":
        return _("{about} no longer has that file at {host}; list its files again.", about=about, host=host)
    if code == 401 and have and kind != "RepoNotFound":
        return _(
            "{host} does not accept your token; save a valid one in the settings, or remove it.", host=host
        )
    if code == 401 and have:
        return _(
            "{about} does not exist at {host}, or your token does not give access; check the "
            "name and the token.",
            about=about,
            host=host,
        )
    if code == 401:
        return _(
            "{about} does not exist at {host}, or it is private; check the name, or save a "
            "token in the settings.",
            about=about,
            host=host,
        )
    if code == 403:
        if have:
            words = N_("{about} may not be read at {host}: your token does not give access.")
        else:
            words = N_("{about} may not be read at {host}: a token is needed; save one in the settings.")
        return translate(words, about=about, host=host)
    if code in (404, 410):
        return _("{about} was not found at {host}; check the name.", about=about, host=host)
    if code == 429:
        if wait := int(retry_after(error)):
            words = N_("{host} received too many requests from this address; try again in {wait} seconds.")
        else:
            words = N_("{host} received too many requests from this address; try again later.")
        return translate(words, host=host, wait=wait)
    if code >= 500:
        return _("{host} has a problem (status {code}); try again later.", host=host, code=code)
    return _("{about} could not be read: {host} returned status {code}.", about=about, host=host, code=code)


def _host() -> str:
    return urllib.parse.urlsplit(endpoint()).hostname or ""
