"""Tries the places in the user's pip settings until one has the wheel."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
from collections.abc import Iterator
from typing import IO

from engine.core import Downloading
from engine.errors import DownloadError
from engine.hub.client.http import Web, describe
from engine.hub.download.package_index import Link, links, places
from engine.hub.download.pip_settings import PipSettings
from engine.hub.download.transfer import transfer
from engine.words import _


def fetch_wheel(
    web: Web, settings: PipSettings, package: str, wheel: str, size: int, part: IO[bytes], title: str
) -> Iterator[Downloading]:
    """Download the wheel into `part`; progress mentions `title`.

    Raises `DownloadError` with the answer of each place.
    """
    stage = _("Downloading {title}", title=title)
    troubles: list[str] = []
    yield Downloading(_("Looking for {title}", title=title), 0, 0)
    for place in places(settings, package):
        found, trouble = _find(web, place, wheel)
        for link in found:
            try:
                yield from transfer(web, link, part, size, stage)
                return
            except DownloadError as error:
                trouble = str(error)
        if web.stopped.is_set():
            raise DownloadError(_("it was stopped"))
        if trouble:
            troubles.append(f"{_host(place)}: {trouble}")
    if not troubles:
        raise DownloadError(_("no package index in the pip settings has {wheel}", wheel=wheel))
    raise DownloadError("; ".join(troubles))


def _find(web: Web, place: str, wheel: str) -> tuple[list[Link], str]:
    """The links at a place, or what went wrong; it is not an error if a place does not have the wheel."""
    try:
        return links(web, place, wheel), ""
    except urllib.error.HTTPError as error:
        error.close()
        return [], describe(error)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        return [], describe(error)
    except DownloadError as error:
        return [], str(error)


def _host(place: str) -> str:
    """The host of a place, or its local path."""
    parts = urllib.parse.urlsplit(place)
    return parts.hostname or parts.path
