"""Finds links to a wheel in folders, web pages and package indexes (PEP 503 HTML, PEP 691 JSON)."""

from __future__ import annotations

import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from engine.errors import DownloadError
from engine.hub.client.http import Web
from engine.hub.download.pip_settings import PipSettings
from engine.lazy_dataclass import dataclass
from engine.units import size_text
from engine.words import _

MAX_PAGE_BYTES = 32 << 20
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
HASHES = ("sha256", "sha384", "sha512")


@dataclass(frozen=True, slots=True)
class Link:
    """A file's URL (http, https or file) with the hash that the index states, if any, in hex digits."""

    url: str
    algorithm: str = ""
    digest: str = ""

    @property
    def path(self) -> Path | None:
        """The path of a local file, else None."""
        return local_path(self.url)


def local_path(url: str) -> Path | None:
    """The path of a file: URL, else None."""
    parts = urllib.parse.urlsplit(url)
    return Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None


def places(settings: PipSettings, package: str) -> Iterator[str]:
    """The URLs of all places to search: find-links first, then the package's page in each index."""
    for place in settings.find_links:
        # a drive letter such as C: parses as a scheme of one letter
        if len(urllib.parse.urlsplit(place).scheme) > 1:
            yield place
        else:
            yield Path(os.path.expanduser(place)).absolute().as_uri()
    name = re.sub(r"[-_.]+", "-", package).lower()
    for index in settings.indexes:
        yield f"{index.rstrip('/')}/{name}/"


def links(web: Web, place: str, wheel: str) -> list[Link]:
    """Links to files called `wheel` at one place.

    Raises `DownloadError` for an unreadable page, and what `Web.open` raises.
    """
    path = local_path(place)
    if path is not None:
        if path.is_dir():
            if (path / wheel).is_file():
                return [Link((path / wheel).absolute().as_uri())]
            path, place = path / "index.html", place.rstrip("/") + "/"
        if not path.is_file():
            return []
        return _html_links(path.read_text("utf-8", "replace"), place, wheel)
    with web.open(place, {"Accept": ACCEPT, "Cache-Control": "max-age=0"}) as response:
        body = response.read(MAX_PAGE_BYTES + 1)
        kind = response.headers.get_content_type()
        base = response.url
    if len(body) > MAX_PAGE_BYTES:
        raise DownloadError(_("the index page is longer than {size}", size=size_text(MAX_PAGE_BYTES)))
    if kind.endswith("json"):
        return _json_links(body, base, wheel)
    return _html_links(body.decode("utf-8", "replace"), base, wheel)


def _json_links(body: bytes, base: str, wheel: str) -> list[Link]:
    """Format: https://packaging.python.org/en/latest/specifications/simple-repository-api/."""
    try:
        files: Any = json.loads(body)["files"]
        found = [file for file in files if file["filename"] == wheel]
        return [
            _link(urllib.parse.urljoin(base, str(file["url"])), dict(file.get("hashes", {})))
            for file in found
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(_("the index page is not a valid package list")) from error


def _html_links(text: str, base: str, wheel: str) -> list[Link]:
    page = _Anchors()
    page.feed(text)
    base = urllib.parse.urljoin(base, page.base)
    found = []
    for address in page.addresses:
        url, _unused, fragment = urllib.parse.urljoin(base, address).partition("#")
        if urllib.parse.unquote(url.rpartition("/")[2].partition("?")[0]) == wheel:
            found.append(_link(url, dict(urllib.parse.parse_qsl(fragment))))
    return found


def _link(url: str, hashes: dict[str, str]) -> Link:
    for algorithm in HASHES:
        if isinstance(hashes.get(algorithm), str):
            return Link(url, algorithm, hashes[algorithm].lower())
    return Link(url)


class _Anchors(HTMLParser):
    """Collects the addresses of all `a` elements and the page's `base`."""

    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if not address:
            return
        if tag == "a":
            self.addresses.append(address)
        elif tag == "base" and not self.base:
            self.base = address
