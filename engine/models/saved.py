"""Saves the KV cache of a model when it is closed, and restores it when the model is opened again."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import PAGE_TOKENS
from engine.errors import BadCheckpoint
from engine.kv_cache.disk import PART_SUFFIX, SUFFIX, Bytes, PageFile, SavedStates, Unusable, write_pages
from engine.kv_cache.prefix_index import Kept, states_worth_keeping, take_up, take_up_states, worth_keeping
from engine.platform.folders import private_folder
from engine.units import size_text
from engine.weights.gguf.file import split_parts
from engine.words import _

if TYPE_CHECKING:
    from engine.models.paged import PagedCache

FOLDER_BYTES = 4 << 30
"""The limit of all saved caches together; the least recently used are deleted first."""
STATE_BYTES = 1 << 30
"""The part of one model's that its states may take: they are read when the model is loaded."""
SPARE_DISK_BYTES = 1 << 28
"""Disk space that is always left free."""
_HEAD_BYTES = 1 << 20
_DAY = 86400.0


def fingerprint(path: str | Path) -> str:
    """Identifies a model's files by names, sizes, modification times and first megabytes: 32 hex digits.

    `path` is a GGUF file, one part of a split one, or a folder. "" if they cannot be read; then nothing is
    saved.
    """
    path = Path(path).expanduser()
    digest = hashlib.blake2b(digest_size=16)
    suffixes = (".gguf", ".safetensors", ".bin", ".json")
    try:
        for file in (
            sorted(each for each in path.iterdir() if each.suffix in suffixes)
            if path.is_dir()
            else split_parts(path)
        ):
            facts = file.stat()
            digest.update(f"{file.name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
            with file.open("rb") as opened:
                digest.update(opened.read(_HEAD_BYTES))
    except (OSError, BadCheckpoint):
        return ""
    return digest.hexdigest()


def save_cache(cache: PagedCache, fingerprint: str, folder: Path) -> str:
    """Save the content of a cache into `folder`, the latest first, up to `FOLDER_BYTES`.

    Must be the last call before the cache is closed. Returns "", or a sentence that says why nothing was
    saved; raises nothing. States of recurrent layers are saved with the pages that they are kept with.
    """
    identity, page_bytes = _identity(cache, fingerprint), cache.store.page_bytes
    state_bytes, room = cache.store.states.state_bytes, FOLDER_BYTES
    room -= STATE_BYTES if state_bytes else 0
    kept, path = worth_keeping(cache.table, room // max(1, page_bytes)), _path(folder, identity)
    states = states_worth_keeping(cache.table, kept, STATE_BYTES // state_bytes if state_bytes else 0)
    if not kept or not fingerprint or (cache.recurrent and not states):
        return ""
    saved, needed = cache.saved, len(kept) * page_bytes + len(states) * state_bytes
    try:
        if (
            saved is not None
            and path.exists()
            and [page.unread for page in kept] == list(range(len(saved.entries)))
        ):
            os.utime(path)  # no page was read and none was added
            return ""
        private_folder(folder)  # the text of a conversation can be recovered from its cache
        free = shutil.disk_usage(folder).free
        if needed + SPARE_DISK_BYTES > free:
            return _(
                "The cache of your chats was not saved: it needs {size}, but only {size_2} of "
                "disk space is free. The chats will be read again.",
                size=size_text(needed),
                size_2=size_text(free),
            )

        def read(page: Kept) -> Bytes | None:
            return (
                saved.read(page.unread)
                if saved is not None and page.unread >= 0
                else cache.store.read_page(page.page)
            )

        written = SavedStates(
            state_bytes,
            [(number, place) for number, place, _unused in states],
            lambda which: cache.store.read_state(states[which][2].number),
        )
        close = saved.close if saved is not None else lambda: None
        write_pages(path, identity, kept, page_bytes, read, close, written)
        prune(folder, path)
    except OSError as error:
        return _(
            "The cache of your chats was not saved ({strerror}). The chats will be read again.",
            strerror=error.strerror or error,
        )
    return ""


def restore_cache(cache: PagedCache, fingerprint: str, folder: Path) -> str:
    """Restore what was saved for this model and cache type; states are read, and pages when they are needed.

    Returns "", also if nothing was saved, or a sentence that says why it could not be used. Raises
    ValueError if the cache is not empty.
    """
    if cache.table.cached:
        raise ValueError("the cache has content already")
    if not fingerprint:
        return ""
    identity = _identity(cache, fingerprint)
    path = _path(folder, identity)
    try:
        file = PageFile(path, identity, cache.store.page_bytes, cache.store.states.state_bytes)
    except FileNotFoundError:
        return ""
    except Unusable as error:
        return _(
            "The saved cache of your chats was not used: {error}. The chats will be read again.", error=error
        )
    except OSError as error:
        return _(
            "The saved cache of your chats cannot be read ({strerror}). The chats will be read again.",
            strerror=error.strerror or error,
        )
    if not take_up(cache.table, file.entries):
        file.close()
        return ""

    def write(which: int, number: int) -> bool:
        content = file.read_state(which)
        if content is not None:
            cache.store.write_state(number, content)
        return content is not None

    take_up_states(cache.table, file.states, write)
    cache.saved = file
    with suppress(OSError):
        os.utime(path)
    return ""


def prune(folder: Path, keep: Path) -> None:
    """Delete the least recently used caches until all together take `FOLDER_BYTES`; never `keep`."""
    total = keep.stat().st_size if keep.exists() else 0
    for facts, file in sorted(_files(folder), key=lambda pair: pair[0].st_mtime_ns, reverse=True):
        if file == keep:
            continue
        if file.suffix == PART_SUFFIX:  # another process may be writing it, but not for a day
            stale = time.time() - facts.st_mtime > _DAY
        else:
            total += facts.st_size
            stale = total > FOLDER_BYTES
        if stale:
            with suppress(OSError):
                file.unlink()


def _files(folder: Path) -> Iterator[tuple[os.stat_result, Path]]:
    for file in folder.iterdir():
        if file.suffix in (SUFFIX, PART_SUFFIX):
            with suppress(OSError):
                yield file.stat(), file


def _identity(cache: PagedCache, fingerprint: str) -> str:
    """Everything that the bytes of a page depend on. A backend has the same layout on all machines."""
    config, store = cache.model.config, cache.store
    import importlib.metadata  # takes 20 ms, which a start can do without

    try:
        program = importlib.metadata.version("inglenook")
    except importlib.metadata.PackageNotFoundError:
        program = ""
    shape = f"{config.kv_shapes}x{PAGE_TOKENS} {store.page_bytes} {store.states.shapes}"
    return f"{fingerprint} {cache.model.backend.name} {store.dtype} {shape} {sys.byteorder} {program}"


def _path(folder: Path, identity: str) -> Path:
    return folder / (hashlib.blake2b(identity.encode(), digest_size=16).hexdigest() + SUFFIX)
