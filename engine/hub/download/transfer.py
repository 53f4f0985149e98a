"""Transfers one file into a `.part` file that a later try resumes; every wait ends when the user stops."""

from __future__ import annotations

import errno
import hashlib
import http.client
import re
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from engine.core import Downloading
from engine.errors import DownloadError
from engine.hub.client.http import Web, describe
from engine.hub.download.package_index import Link
from engine.words import _

CHUNK_BYTES = 256 << 10
TRIES = 5
PAUSE_SECONDS = 0.5
"""The wait before the second try; doubled before each later one."""
MAX_WAIT_SECONDS = 120.0
"""The longest time a server may ask to wait (Retry-After) before the download gives up."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""Errors of the local disk, for which no retry helps."""


class WrongFile(DownloadError):
    """The file is not the one that was requested: too long, or with another hash."""


def transfer(web: Web, link: Link, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    """Complete `part` to the `size` bytes of `link`, and check the link's hash.

    A broken connection is resumed. Raises `WrongFile`, after emptying the part, or `DownloadError`.
    """
    resumed = part.seek(0, 2) > 0
    try:
        if link.path:
            yield from _copy(link.path, part, size, stage)
        else:
            yield from _download(web, link.url, part, size, stage)
        yield from _check(web, link, part, size)
    except WrongFile:
        if not resumed:
            raise
        # the part was of another file: start again
        yield from transfer(web, link, part, size, stage)


def _download(web: Web, url: str, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    failures, farthest, refused = 0, part.seek(0, 2), False
    while (before := part.seek(0, 2)) < size:
        try:
            yield from _one_try(web, url, part, size, stage)
            if part.tell() < size:
                raise http.client.IncompleteRead(b"", size - part.tell())
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and before:
                part.truncate(0)  # the part belongs to another file
                if refused:
                    raise WrongFile(_("the download is incomplete")) from None
                refused = True
            elif error.code < 500 and error.code not in (408, 429):
                raise DownloadError(describe(error)) from error
            failures = _failed(web, error, failures, progress=part.tell() > farthest, wait=retry_after(error))
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                raise
            failures = _failed(web, error, failures, progress=part.tell() > farthest)
        farthest = max(farthest, part.seek(0, 2))


def _one_try(web: Web, url: str, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    """Read one response to the end."""
    done = part.seek(0, 2)
    with web.open(
        url, {"Accept-Encoding": "identity", **({"Range": f"bytes={done}-"} if done else {})}
    ) as response:
        if done and not _continues(response, done):
            part.truncate(0)
            done = part.seek(0)
        yield Downloading(stage, done, size)
        while chunk := response.read(CHUNK_BYTES):
            if web.stopped.is_set():
                raise DownloadError(_("it was stopped"))
            part.write(chunk)
            done += len(chunk)
            if done > size:
                part.truncate(0)
                raise WrongFile(_("the download is too long"))
            yield Downloading(stage, done, size)
    part.flush()


def _continues(response: Any, done: int) -> bool:
    """Whether the response begins at byte `done`; a server without ranges sends the whole file with 200."""
    given = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == 206 and given is not None and int(given[1]) == done


def retry_after(error: urllib.error.HTTPError) -> float:
    """The seconds in Retry-After (RFC 9110, section 10.2.3), 0 if absent; dates are ignored."""
    text = (error.headers.get("Retry-After", "") if error.headers else "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


def _failed(web: Web, error: Exception, failures: int, progress: bool, wait: float = 0.0) -> int:
    """Wait before the next try, and return the new count of failures, which progress resets.

    Raises `DownloadError` after the last try.
    """
    failures = 1 if progress else failures + 1
    if failures >= TRIES or wait > MAX_WAIT_SECONDS:
        raise DownloadError(describe(error)) from error
    if web.stopped.wait(max(wait, PAUSE_SECONDS * 2 ** (failures - 1))):
        raise DownloadError(_("it was stopped")) from error
    return failures


def _copy(path: Path, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    """The same from a file on disk, always from the start."""
    if not path.is_file():
        raise DownloadError(_("{path} does not exist", path=path))
    part.truncate(0)
    done = part.seek(0)
    with path.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            part.write(chunk)
            done += len(chunk)
            if done > size:
                break
            yield Downloading(stage, done, size)
    part.flush()


def _check(web: Web, link: Link, part: IO[bytes], size: int) -> Iterator[Downloading]:
    """Check the size and the stated hash, if any, of the complete part. Raises `WrongFile`."""
    part.flush()
    found = part.seek(0, 2)
    part.seek(0)
    digest = ""
    if found == size and link.algorithm:
        hasher = new_hash(link.algorithm, size)
        while chunk := part.read(CHUNK_BYTES * 16):
            if web.stopped.is_set():
                raise DownloadError(_("it was stopped"))
            hasher.update(chunk)
            yield Downloading(_("Checking the download"), size, size)
        digest = hasher.hexdigest()
    if found != size or digest != link.digest:
        part.truncate(0)
        raise WrongFile(_("the download does not match the size or hash that the server announced"))


def new_hash(algorithm: str, size: int) -> hashlib._Hash:
    """A hash by its name in hashlib, or "git-sha1", that of a git blob
    (https://git-scm.com/book/en/v2/Git-Internals-Git-Objects).
    """
    if algorithm == "git-sha1":
        return hashlib.sha1(f"blob {size}\0".encode("ascii"), usedforsecurity=False)
    return hashlib.new(algorithm)
