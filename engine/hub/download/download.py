"""Downloads a chosen model from the hub: with progress, resumable, checked by hashes, complete or absent."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import urllib.error
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub.catalogue.models import HubChoice, HubFile, UnfinishedDownload
from engine.hub.catalogue.search import check_id
from engine.hub.client.api import endpoint, hub_web, refusal
from engine.hub.client.http import Web
from engine.hub.client.token import hub_home
from engine.hub.download.background import in_background
from engine.hub.download.disk import check_disk, disk_trouble
from engine.hub.download.lock import locked
from engine.hub.download.package_index import Link
from engine.hub.download.partial_dir import (
    bytes_done,
    check_final,
    check_names,
    final_folder,
    local_name,
    lock_path,
    model_path,
    open_inside,
    part_folder,
    prepare,
    publish,
    read_note,
    remove,
)
from engine.hub.download.starter import models_dir
from engine.hub.download.transfer import new_hash, transfer
from engine.words import _

EVENT_SECONDS = 0.05
"""The shortest time between two progress events."""
DISCARD_SECONDS = 3.0
"""How long a download that was just paused may still be writing when it is discarded."""


def download_model(
    choice: HubChoice, target_folder: Path | None = None, *, stop: threading.Event | None = None
) -> Generator[Downloading | Downloaded, None, None]:
    """Download a choice into its own folder in `target_folder` (default `models_dir()`).

    The last event is `Downloaded`, with the path of the first GGUF file or of the folder of safetensors.
    Progress counts the bytes of all files together. Closing the generator pauses the download: what it has is
    kept, and the next call resumes it, even in another run of the program. Setting `stop` from any thread
    does the same and raises `DownloadError`. The model gets its name only when every file is complete and its
    hash is right. Raises `DownloadError` with one sentence.
    """
    target = target_folder or models_dir()
    name = f"{choice.model_id} ({choice.title})"
    try:
        check_id(choice.model_id)
        check_names(choice.files)
        web = hub_web()
        yield from in_background(web, lambda: _throttled(_work(web, choice, target)), stop)
    except DownloadError as error:
        raise DownloadError(
            _("The model {name} could not be downloaded: {error}.", name=name, error=str(error).rstrip("."))
        ) from error
    except OSError as error:
        raise DownloadError(
            _(
                "The model {name} could not be saved: {disk_trouble}.",
                name=name,
                disk_trouble=disk_trouble(error, target),
            )
        ) from error


def discard_download(choice: HubChoice, target_folder: Path | None = None) -> None:
    """Delete the partial download of a choice; a complete model stays.

    Raises `DownloadError` while the download runs.
    """
    target = target_folder or models_dir()
    end = time.monotonic() + DISCARD_SECONDS
    while target.is_dir():
        try:
            with _only_one(target, choice):
                remove(part_folder(target, choice))
            return
        except DownloadError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)
        except OSError as error:
            raise DownloadError(
                _(
                    "The partial download of {model_id} could not be deleted: {disk_trouble}.",
                    model_id=choice.model_id,
                    disk_trouble=disk_trouble(error, target),
                )
            ) from error


def unfinished_downloads(target_folder: Path | None = None) -> list[UnfinishedDownload]:
    """Downloads in `target_folder` (default `models_dir()`) that `download_model` can resume."""
    target = target_folder or models_dir()
    found = []
    with contextlib.suppress(OSError):
        for folder in sorted(target.glob(".*.part")):
            choice = read_note(folder) if folder.is_dir() and not folder.is_symlink() else None
            if choice is not None and part_folder(target, choice) == folder:
                found.append(UnfinishedDownload(choice, bytes_done(folder, choice)))
    return found


def _work(web: Web, choice: HubChoice, target: Path) -> Iterator[Downloading | Downloaded]:
    target.mkdir(parents=True, exist_ok=True)
    with _only_one(target, choice):
        final, folder = final_folder(target, choice), part_folder(target, choice)
        if final.is_dir() and (
            yield from _all_right(web, choice, [final / local_name(file) for file in choice.files])
        ):
            remove(folder)
            yield Downloaded(str(model_path(final, choice)))
            return
        if cached := (yield from _cached(web, choice)):
            remove(folder)
            yield Downloaded(str(cached))
            return
        check_final(final)
        prepare(folder, choice)
        yield from _taken_over(web, choice, final, folder)
        check_disk(target, choice.bytes - bytes_done(folder, choice))
        before = 0
        for number, file in enumerate(choice.files, 1):
            stage = (
                _(
                    "Downloading {title}, file {number} of {files}",
                    title=choice.title,
                    number=number,
                    files=len(choice.files),
                )
                if len(choice.files) > 1
                else _("Downloading {title}", title=choice.title)
            )
            yield from _fetch_file(web, choice, file, folder, stage, before)
            before += file.size
        publish(folder, final)
        yield Downloaded(str(model_path(final, choice)))


def _taken_over(web: Web, choice: HubChoice, final: Path, folder: Path) -> Iterator[Downloading]:
    """Take the files that an older download of the same choice has: a vision encoder may be all that it
    lacks.
    """
    for file in choice.files if final.is_dir() else ():
        name = local_name(file)
        old, new = final / name, folder / name
        if new.exists() or old.is_symlink() or not _digest(file)[0]:
            continue
        if not (yield from _all_right(web, choice, [old], [file])):
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(old, new)
        except OSError:  # such as a disk without links
            if shutil.disk_usage(folder).free > file.size:
                shutil.copyfile(old, new)


def _fetch_file(
    web: Web, choice: HubChoice, file: HubFile, folder: Path, stage: str, before: int
) -> Iterator[Downloading]:
    """Download one file, unless it is already complete; a partial file is resumed."""
    name = local_name(file)
    done = folder / name
    if done.is_file() and not done.is_symlink() and done.stat().st_size == file.size:
        yield Downloading(stage, before + file.size, choice.bytes)
        return
    link = Link(_address(choice, file), *_digest(file))
    with open_inside(folder, f"{name}.part") as part:
        try:
            for event in transfer(web, link, part, file.size, stage):
                yield Downloading(event.stage, before + event.done, choice.bytes)
        except DownloadError as error:
            if isinstance(error.__cause__, urllib.error.HTTPError):
                raise DownloadError(refusal(error.__cause__, "it", web.has_token)) from error
            raise DownloadError(f"{file.name}: {error}") from error
        part.flush()
        os.fsync(part.fileno())
    os.replace(folder / f"{name}.part", done)


def _cached(web: Web, choice: HubChoice) -> Generator[Downloading, None, Path | None]:
    """The path to open in the cache of Hugging Face's tools, if it holds the whole choice at this commit."""
    from huggingface_hub.file_download import try_to_load_from_cache

    home = (
        os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or str(hub_home() / "hub")
    )
    cache = Path(os.path.expandvars(home)).expanduser()
    found = [
        try_to_load_from_cache(choice.model_id, file.name, cache_dir=cache, revision=choice.revision)
        for file in choice.files
    ]
    paths = [Path(path) for path in found if isinstance(path, str)]
    if len(paths) < len(found) or not (yield from _all_right(web, choice, paths)):
        return None
    return paths[0] if choice.format == "gguf" else paths[0].parent


def _all_right(
    web: Web, choice: HubChoice, paths: list[Path], files: Sequence[HubFile] | None = None
) -> Generator[Downloading, None, bool]:
    """Whether these are the files of the choice, or some of them, by sizes and hashes."""
    pairs = list(zip(paths, choice.files if files is None else files, strict=True))
    if not all(path.is_file() and path.stat().st_size == file.size for path, file in pairs):
        return False
    before = 0
    for path, file in pairs:
        algorithm, digest = _digest(file)
        if algorithm:
            hasher = new_hash(algorithm, file.size)
            with path.open("rb") as source:
                while chunk := source.read(4 << 20):
                    if web.stopped.is_set():
                        raise DownloadError(_("it was stopped"))
                    hasher.update(chunk)
                    yield Downloading(_("Checking the model"), before + source.tell(), choice.bytes)
            if hasher.hexdigest() != digest:
                return False
        before += file.size
    return True


def _digest(file: HubFile) -> tuple[str, str]:
    if file.sha256:
        return "sha256", file.sha256
    return ("git-sha1", file.git_sha1) if file.git_sha1 else ("", "")


def _address(choice: HubChoice, file: HubFile) -> str:
    from huggingface_hub.file_download import hf_hub_url

    return hf_hub_url(choice.model_id, file.name, revision=choice.revision, endpoint=endpoint())


@contextlib.contextmanager
def _only_one(target: Path, choice: HubChoice) -> Iterator[None]:
    """Allow one download of a choice at a time, among all processes."""
    path = lock_path(target, choice)
    with open_inside(target, path.name) as file, locked(file):
        if os.name != "nt" and not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
            # the other download has removed the file that we locked
            raise DownloadError(_("another download of it is about to end; try again in a moment"))
        yield
        if os.name != "nt":
            path.unlink(missing_ok=True)
    if os.name == "nt":
        with contextlib.suppress(OSError):  # another process may have just opened it
            path.unlink(missing_ok=True)


def _throttled(events: Iterator[Downloading | Downloaded]) -> Iterator[Downloading | Downloaded]:
    """Drop progress events that follow too soon, except for a new stage and the last byte."""
    stage, last = "", -EVENT_SECONDS
    for event in events:
        now = time.monotonic()
        if (
            not isinstance(event, Downloading)
            or event.stage != stage
            or event.done == event.total
            or now - last >= EVENT_SECONDS
        ):
            stage, last = event.stage if isinstance(event, Downloading) else stage, now
            yield event
