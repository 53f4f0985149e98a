"""Stores which kernels have passed their tests on which GPU, by device, driver and version of the program."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.backends.cuda.codegen.cubin_cache import compiler, sources
from engine.lazy_dataclass import dataclass
from engine.platform.folders import cache_dir, private_folder
from engine.platform.whole_file import write_whole

FILE_NAME = "gpu-kernels.json"
_NAMES = ("passed", "crashed", "untried")
KEPT = 16
"""How many combinations of device, driver and program are kept, the latest ones."""


@dataclass(frozen=True)
class Proven:
    """Names of kernels that `passed`, that crashed the device, and that no test case ran (`untried`)."""

    passed: frozenset[str] = frozenset()
    crashed: frozenset[str] = frozenset()
    untried: frozenset[str] = frozenset()


def known(identity: str) -> Proven:
    """What is stored for a device (`Device.identity`) and exactly these kernel sources."""
    entry = _read().get(_key(identity), {})
    return Proven(*(frozenset(map(str, entry.get(name, ()))) for name in _NAMES))


def remember(
    identity: str, passed: Iterable[str] = (), crashed: Iterable[str] = (), untried: Iterable[str] = ()
) -> None:
    """Add to what is stored for a device."""
    before, more = known(identity), (passed, crashed, untried)
    _write(
        identity,
        {name: sorted(getattr(before, name) | set(names)) for name, names in zip(_NAMES, more, strict=True)},
    )


def forget(identity: str, names: Iterable[str] | None = None) -> None:
    """Forget these kernels, or all of the device if `names` is None, so that they are tested again."""
    if names is None:
        _write(identity, None)
        return
    before, gone = known(identity), set(names)
    _write(identity, {name: sorted(getattr(before, name) - gone) for name in _NAMES})


def _key(identity: str) -> str:
    return hashlib.sha256(f"{identity}\0{sources()}\0{compiler()}".encode()).hexdigest()


def _file() -> Path:
    return cache_dir() / FILE_NAME


def _read() -> dict[str, Any]:
    try:
        found = json.loads(_file().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {str(key): value for key, value in found.items() if isinstance(value, dict)}
        if isinstance(found, dict)
        else {}
    )


def _write(identity: str, entry: dict[str, Any] | None) -> None:
    """Replace the file atomically. If it cannot be written, the kernels are tested again next time."""
    entries, key = _read(), _key(identity)
    entries.pop(key, None)
    if entry is not None:
        entries[key] = entry
    text = json.dumps(dict(list(entries.items())[-KEPT:]))
    try:
        private_folder(_file().parent)
        write_whole(_file(), text, synced=False)
    except OSError as error:
        logging.getLogger(__name__).info("what kernels proved cannot be kept: %s", error)
