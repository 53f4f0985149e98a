"""Where kernels' machine code is kept: compiled once for a device, then taken from disk without any compiler.

First from what was compiled beforehand (`prebuild`, the folder `resources/cubins`), else from a folder of the
user's cache. Its name is a hash of the sources of this package and of the compiler's versions, because no
compiler's own cache notices a change in another file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.backends.cuda.codegen import workers
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.targets import BuildError, Built, Target, target
from engine.core import Loading
from engine.platform.folders import code_folder
from engine.platform.whole_file import write_whole

STAGE = "Preparing the GPU kernels"
COMPILERS = ("numba-cuda", "numba", "llvmlite", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink")
KEPT_VERSIONS = 3
"""Folders of other sources or compilers that stay, the latest used ones: two checkouts side by side do not
push each other out.
"""
MANIFEST = "manifest.json"
_HASH = 32
_HOST_ONLY = frozenset({
    "cubin_cache", "dequantised", "device", "driver", "torch_device", "kept_memory", "launcher", "nvml",
    "prebuild", "proven", "torch_program", "trial", "workers",
})  # fmt: skip
"""Modules of this package that no kernel's code depends on."""


@cache
def sources() -> str:
    """A hash of everything that kernels are made of."""
    here = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for source in [*sorted(here.rglob("*.py")), *sorted(here.parent.glob("*.py"))]:
        if source.stem not in _HOST_ONLY:
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def compiler() -> str:
    """The versions of what compiles, as `name version` each; nothing is imported."""
    return ", ".join(f"{name} {_version(name)}" for name in COMPILERS)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


def file_name(kernel: Kernel) -> str:
    """Of a kernel's machine code: its name, and a hash of all that specialises it."""
    constants = sorted((name, _told(value)) for name, value in kernel.constants.items())
    body = f"{kernel.body.__module__}.{kernel.body.__qualname__}"
    told = repr((kernel.name, body, kernel.parameters, kernel.threads, kernel.blocks, constants))
    return f"{kernel.name[:100]}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _told(value: Any) -> str:
    """A constant, without addresses: functions and instructions by their names, whose sources are hashed
    anyway.
    """
    named = getattr(value, "__qualname__", None) or getattr(value, "name", None)
    return f"{getattr(value, '__module__', '')}.{named}" if named else repr(value)


@cache
def prebuilt() -> Path | None:
    """The folder of kernels that were compiled beforehand from these very sources, or None."""
    import resources

    for place in resources.__path__:
        folder = Path(place) / "cubins"
        if _told_sources(folder) == sources():
            return folder
    return None


def _told_sources(folder: Path) -> str:
    try:
        return str(json.loads((folder / MANIFEST).read_text("utf-8"))["sources"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class Binaries:
    """The process's machine code, by kernel and target.

    `folder` is where it is kept on disk; by default in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._named = folder
        self._images: dict[tuple[str, str], bytes] = {}

    @property
    def folder(self) -> Path | None:
        """Of this version of sources and compiler, or None where nothing can be kept."""
        name = f"cuda-{hashlib.sha256(f'{sources()} {compiler()}'.encode()).hexdigest()[:16]}"
        if self._named is None:
            return code_folder(name)
        folder = self._named / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def ready(self, kernels: Iterable[Kernel], capability: int) -> Iterator[Loading]:
        """Compile what is missing for a device of this compute capability; yields progress when there is
        something to do.

        It may be closed between two kernels; what was compiled stays. Raises `BuildError` where a kernel
        cannot be compiled.
        """
        wanted = target(capability)
        folder = self.folder
        missing = [kernel for kernel in dict.fromkeys(kernels) if self._found(kernel, wanted, folder) is None]
        if not missing:
            return
        for kernel in missing:
            if kernel.min_capability > wanted.capability:
                raise BuildError(
                    f"The kernel {kernel.name} needs compute capability {kernel.min_capability / 10}; this "
                    f"GPU has {capability / 10}."
                )
        if folder is not None:
            _forget_old(folder)
        yield Loading(STAGE, 0, len(missing))
        outcomes = workers.compiled(missing, [wanted.capability])
        try:
            for done, (kernel, outcome) in enumerate(outcomes, 1):
                if isinstance(outcome, BuildError):
                    raise outcome
                self._keep(kernel, wanted, outcome[wanted.capability], folder)
                yield Loading(STAGE, done, len(missing))
        finally:
            outcomes.close()  # type: ignore[attr-defined]

    def cubin(self, kernel: Kernel, capability: int) -> bytes:
        """A kernel's machine code (or PTX, see `target`) for a device of this compute capability, compiled
        now where it must be.
        """
        wanted = target(capability)
        image = self._found(kernel, wanted, self.folder)
        if image is None:
            for _ in self.ready([kernel], capability):
                pass
            image = self._images[kernel.name, wanted.folder]
        return image

    def _found(self, kernel: Kernel, wanted: Target, folder: Path | None) -> bytes | None:
        """From memory, from what was compiled beforehand, or from disk."""
        key = kernel.name, wanted.folder
        if key not in self._images:
            for place in (prebuilt(), folder):
                image = _read(place / wanted.folder / file_name(kernel)) if place is not None else None
                if image is not None:
                    self._images[key] = image
                    break
        return self._images.get(key)

    def _keep(self, kernel: Kernel, wanted: Target, built: Built, folder: Path | None) -> None:
        image = wanted.image(built)
        self._images[kernel.name, wanted.folder] = image
        if folder is not None:
            with suppress(OSError):  # a full disk: it is compiled again next time
                write(folder / wanted.folder / file_name(kernel), image)


def write(file: Path, image: bytes) -> None:
    """Keep machine code behind its hash; another process sees all of it, or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, hashlib.sha256(image).digest() + image, synced=False)


def _read(file: Path) -> bytes | None:
    """Machine code that `write` kept; None where there is none, or it was damaged."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    image = data[_HASH:]
    return image if image and hashlib.sha256(image).digest() == data[:_HASH] else None


def _forget_old(folder: Path) -> None:
    """Remove folders of other versions, but for the latest used ones; and mark this one as used."""
    with suppress(OSError):
        os.utime(folder)
        others = [each for each in folder.parent.glob("cuda-*") if each != folder and each.is_dir()]
        for old in sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)[KEPT_VERSIONS:]:
            shutil.rmtree(old, ignore_errors=True)


BINARIES = Binaries()
"""The process's own: machine code has no state, so models share it."""
