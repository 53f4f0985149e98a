"""Asks for the list of updates; nothing is asked unless this is called."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.parse
from http.client import HTTPException

from engine.errors import DownloadError
from engine.hub.client.http import Web, describe
from engine.hub.client.offline import is_switched
from engine.hub.download.background import result
from engine.hub.download.pip_settings import PipSettings
from engine.hub.updates.manifest import MAX_BYTES, Update, read_manifest, version_key
from engine.hub.updates.source import UpdateSource
from engine.words import _

__all__ = ["check_for_update", "update_web"]

TIMEOUT_SECONDS = 20.0
_THIS_COMPUTER = ("localhost", "127.0.0.1", "::1")


def check_for_update(
    source: UpdateSource, version: str, stop: threading.Event | None = None
) -> Update | None:
    """The latest published version, if it is newer than `version`; None if there is none.

    Raises `DownloadError` with one sentence.
    """
    web = update_web(source.url)
    content = result(web, lambda: _read(web, source.url), stop)
    update = read_manifest(content, source.url, source.keys)
    return update if version_key(update.version) > version_key(version) else None


def update_web(url: str) -> Web:
    """A `Web` for one task. Raises `DownloadError` while offline, and for an address without encryption."""
    if is_switched():
        raise DownloadError(_("You are working offline. Clear “Work offline” to check for updates."))
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _THIS_COMPUTER):
        raise DownloadError(
            _("Updates are downloaded over HTTPS only, and {url} is not an HTTPS address.", url=url)
        )
    cert = os.environ.get("REQUESTS_CA_BUNDLE", "") or os.environ.get("CURL_CA_BUNDLE", "")
    return Web(PipSettings(indexes=(), cert=cert.strip(), timeout=TIMEOUT_SECONDS), os.environ)


def _read(web: Web, url: str) -> bytes:
    try:
        with web.open(url, {"Accept-Encoding": "identity", "Cache-Control": "no-cache"}) as response:
            content: bytes = response.read(MAX_BYTES + 1)
    except (urllib.error.URLError, HTTPException, OSError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise DownloadError(
            _("The list of updates at {url} could not be read: {reason}.", url=url, reason=describe(error))
        ) from error
    if len(content) > MAX_BYTES:
        raise DownloadError(_("The list of updates at {url} is too large, so it is not used.", url=url))
    return content
