"""One file by HTTP into a `.part` file that a later try continues; every wait ends when the user stops."""

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

CHUNK_BYTES = 256 << 10
TRIES = 5
PAUSE_SECONDS = 0.5
"""Before the second try; doubled before each later one."""
PATIENCE_SECONDS = 120.0
"""The longest time a server may ask to wait (Retry-After) before the download gives up."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""Trouble of our own disk: trying the network again would not help."""


class WrongFile(DownloadError):
    """What came is not the file that was asked for: too long, or with another hash."""


def transfer(web: Web, link: Link, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    """Bring `part` to the `size` bytes of `link`, going on where it ends, and check the link's hash.

    A broken connection is tried again from where it broke. Raises `WrongFile` (the part is emptied) or
    `DownloadError`.
    """
    resumed = part.seek(0, 2) > 0
    try:
        if link.path:
            yield from _copy(link.path, part, size, stage)
        else:
            yield from _download(web, link.url, part, size, stage)
        yield from _check(web, link, part, size, stage)
    except WrongFile:
        if not resumed:
            raise
        # the old beginning was of another file: once more from the start
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
                part.truncate(0)  # the part is not of this file
                if refused:
                    raise WrongFile("what came is shorter than it should be") from None
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
    """Read one response to its end."""
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
                raise DownloadError("it was stopped")
            part.write(chunk)
            done += len(chunk)
            if done > size:
                part.truncate(0)
                raise WrongFile("what came is longer than it should be")
            yield Downloading(stage, done, size)
    part.flush()


def _continues(response: Any, done: int) -> bool:
    """Whether the response begins at byte `done`: a server that knows no ranges answers 200 with the whole
    file.
    """
    given = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == 206 and given is not None and int(given[1]) == done


def retry_after(error: urllib.error.HTTPError) -> float:
    """Seconds that the server asks to wait, 0 where it does not say (RFC 9110, section 10.2.3; dates are
    not read).
    """
    text = (error.headers.get("Retry-After", "") if error.headers else "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


def _failed(web: Web, error: Exception, failures: int, progress: bool, wait: float = 0.0) -> int:
    """Wait before the next try and count it; a try that brought bytes starts the count anew.

    Raises after the last.
    """
    failures = 1 if progress else failures + 1
    if failures >= TRIES or wait > PATIENCE_SECONDS:
        raise DownloadError(describe(error)) from error
    if web.stopped.wait(max(wait, PAUSE_SECONDS * 2 ** (failures - 1))):
        raise DownloadError("it was stopped") from error
    return failures


def _copy(path: Path, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    """The same from a file on disk, always from its start."""
    if not path.is_file():
        raise DownloadError(f"{path} is not there")
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


def _check(web: Web, link: Link, part: IO[bytes], size: int, stage: str) -> Iterator[Downloading]:
    """Size and stated hash of the finished part; without a stated hash (algorithm "") only its size."""
    part.flush()
    found = part.seek(0, 2)
    part.seek(0)
    digest = ""
    if found == size and link.algorithm:
        sum_up = new_hash(link.algorithm, size)
        while chunk := part.read(CHUNK_BYTES * 16):
            if web.stopped.is_set():
                raise DownloadError("it was stopped")
            sum_up.update(chunk)
            yield Downloading("Checking what came", size, size)
        digest = sum_up.hexdigest()
    if found != size or digest != link.digest:
        part.truncate(0)
        raise WrongFile("what came is not the file that its server announced: its size or hash differs")


def new_hash(algorithm: str, size: int) -> hashlib._Hash:
    """A hash by its name in hashlib, or "git-sha1": git's blob hash
    (https://git-scm.com/book/en/v2/Git-Internals-Git-Objects).
    """
    if algorithm == "git-sha1":
        return hashlib.sha1(f"blob {size}\0".encode("ascii"), usedforsecurity=False)
    return hashlib.new(algorithm)
