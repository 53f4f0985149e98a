"""Replaces an AppImage by a newer one; at every moment a whole program lies in its place.

The new file is completed beside it under another name (a later try resumes it), checked and written to disk.
Then the present file gets a second name, `NAME.before`, and the new one takes its place: two renames, each
atomic. The running program goes on with the old file, which is mounted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub.client.http import Web
from engine.hub.download.background import in_background
from engine.hub.download.disk import check_disk, disk_trouble
from engine.hub.download.lock import locked
from engine.hub.download.package_index import Link
from engine.hub.download.transfer import transfer
from engine.hub.updates.check import update_web
from engine.hub.updates.manifest import Package, Update, version_key
from engine.words import _

__all__ = ["before_of", "install_update", "roll_back"]

_PART = ".inglenook-update-"


def before_of(image: Path) -> Path:
    """The version before, beside the AppImage; it may not exist."""
    return image.with_name(f"{image.name}.before")


def install_update(
    update: Update, package: Package, image: Path, version: str, stop: threading.Event | None = None
) -> Iterator[Downloading | Downloaded]:
    """Download a package of the list and put it in the place of `image`, which is of this `version`.

    The last event is `Downloaded`. Setting `stop` ends it, and the next try resumes. Raises `DownloadError`
    with one sentence; the program is as it was then.
    """
    if version_key(update.version) <= version_key(version):
        raise DownloadError(
            _(
                "Inglenook {version} is not newer than this version ({version_2}). Nothing was changed.",
                version=update.version,
                version_2=version,
            )
        )
    name = _("Inglenook {version}", version=update.version)
    try:
        web = update_web(package.url)
        yield from in_background(
            web, lambda: _work(web, package, image, _("Downloading {name}", name=name)), stop
        )
    except DownloadError as error:
        raise DownloadError(
            _("{name} was not installed: {error}.", name=name, error=str(error).rstrip("."))
        ) from error
    except OSError as error:
        raise DownloadError(
            _(
                "{name} was not installed: {disk_trouble}.",
                name=name,
                disk_trouble=disk_trouble(error, image.parent),
            )
        ) from error


def roll_back(image: Path) -> None:
    """Put the version before back in its place. Raises `DownloadError`, and nothing is changed then."""
    try:
        os.replace(before_of(image), image)
    except FileNotFoundError as error:
        raise DownloadError(_("There is no previous version next to {image}.", image=image)) from error
    except OSError as error:
        raise DownloadError(
            _(
                "The previous version could not be restored: {disk_trouble}.",
                disk_trouble=disk_trouble(error, image.parent),
            )
        ) from error
    _synced(image.parent)


def _work(web: Web, package: Package, image: Path, stage: str) -> Iterator[Downloading | Downloaded]:
    part_path = image.with_name(f"{_PART}{package.sha256[:16]}.part")
    for stale in image.parent.glob(f"{_PART}*.part"):
        if stale != part_path:
            stale.unlink()
    with part_path.open("a+b") as part, locked(part):
        check_disk(image.parent, max(0, package.bytes - part.seek(0, 2)))
        link = Link(package.url, "sha256", package.sha256)
        yield from transfer(web, link, part, package.bytes, stage)
        os.fchmod(part.fileno(), image.stat().st_mode & 0o777 | 0o100)
        os.fsync(part.fileno())
        if web.stopped.is_set():
            raise DownloadError(_("it was stopped (the next attempt continues from there)"))
        _keep(image)
        os.replace(part_path, image)
    _synced(image.parent)
    yield Downloaded(str(image))


def _keep(image: Path) -> None:
    """Give the present file the name of the version before, too."""
    second = image.with_name(f"{_PART}before")
    second.unlink(missing_ok=True)
    try:
        os.link(image, second)
    except OSError:  # a file system without hard links
        shutil.copy2(image, second)
        with second.open("rb+") as file:
            os.fsync(file.fileno())
    os.replace(second, before_of(image))


def _synced(folder: Path) -> None:
    """Let the new names survive a power failure."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
