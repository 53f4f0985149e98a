"""Try each place the user's settings name until one gives the wheel."""

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


def fetch_wheel(
    web: Web, settings: PipSettings, package: str, wheel: str, size: int, part: IO[bytes], title: str
) -> Iterator[Downloading]:
    """Bring the wheel into `part`; progress names the `title`.

    Raises `DownloadError` with what each place answered, in its order.
    """
    stage = f"Fetching {title}"
    troubles: list[str] = []
    yield Downloading(f"Looking for {title}", 0, 0)
    for place in places(settings, package):
        found, trouble = _look(web, place, wheel)
        for link in found:
            try:
                yield from transfer(web, link, part, size, stage)
                return
            except DownloadError as error:
                trouble = str(error)
        if web.stopped.is_set():
            raise DownloadError("it was stopped")
        if trouble:
            troubles.append(f"{_host(place)}: {trouble}")
    if not troubles:
        raise DownloadError(f"no package index in the pip settings has {wheel}")
    raise DownloadError("; ".join(troubles))


def _look(web: Web, place: str, wheel: str) -> tuple[list[Link], str]:
    """(links, "") or ([], what went wrong). A local place without the wheel is no trouble: others follow."""
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
    """The name of a place without path and password."""
    parts = urllib.parse.urlsplit(place)
    return parts.hostname or parts.path
