"""The cache of machine code: each kernel is compiled once for a device, then read from disk.

Kernels that were compiled ahead of time (`prebuild`, folder `resources/cubins`) are used first, then those in
the user's cache folder. The folder's name is a hash of this package's sources and the compiler versions,
because a compiler's own cache does not notice changes in other files.
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
"""How many folders of other sources or compilers are kept, the most recently used first."""
MANIFEST = "manifest.json"
_HASH = 32
_HOST_ONLY = frozenset({
    "cubin_cache", "dequantised", "device", "driver", "torch_device", "kept_memory", "launcher", "nvml",
    "prebuild", "proven", "torch_program", "trial", "workers",
})  # fmt: skip
"""Modules of this package that do not affect the machine code of any kernel."""


@cache
def sources() -> str:
    """A hash of all sources that kernels are built from."""
    here = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for source in [*sorted(here.rglob("*.py")), *sorted(here.parent.glob("*.py"))]:
        if source.stem not in _HOST_ONLY:
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def compiler() -> str:
    """The versions of the compiler packages, each as `name version`. Imports none of them."""
    return ", ".join(f"{name} {_version(name)}" for name in COMPILERS)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


def file_name(kernel: Kernel) -> str:
    """The file name for a kernel's machine code: its name and a hash of everything that specialises it."""
    constants = sorted((name, _spelled(value)) for name, value in kernel.constants.items())
    body = f"{kernel.body.__module__}.{kernel.body.__qualname__}"
    identity = repr((kernel.name, body, kernel.parameters, kernel.threads, kernel.blocks, constants))
    return f"{kernel.name[:100]}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _spelled(value: Any) -> str:
    """A constant as text without memory addresses; functions and instructions are given by name."""
    named = getattr(value, "__qualname__", None) or getattr(value, "name", None)
    return f"{getattr(value, '__module__', '')}.{named}" if named else repr(value)


@cache
def prebuilt() -> Path | None:
    """The folder of kernels that were compiled ahead of time from exactly these sources, or None."""
    import resources

    for place in resources.__path__:
        folder = Path(place) / "cubins"
        if _sources_of(folder) == sources():
            return folder
    return None


def _sources_of(folder: Path) -> str:
    try:
        return str(json.loads((folder / MANIFEST).read_text("utf-8"))["sources"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class Binaries:
    """The machine code of this process, by kernel and target.

    `folder` is the parent folder on disk; the default is in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._named = folder
        self._images: dict[tuple[str, str], bytes] = {}

    @property
    def folder(self) -> Path | None:
        """The folder for these sources and compiler versions, or None if nothing can be stored."""
        name = f"cuda-{hashlib.sha256(f'{sources()} {compiler()}'.encode()).hexdigest()[:16]}"
        if self._named is None:
            return code_folder(name)
        folder = self._named / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def ready(self, kernels: Iterable[Kernel], capability: int) -> Iterator[Loading]:
        """Compile the missing kernels for a device of this compute capability, and yield progress.

        Yields nothing if no kernel is missing. The generator may be closed between two kernels; what it has
        compiled is kept. Raises `BuildError` if a kernel cannot be compiled.
        """
        chosen = target(capability)
        folder = self.folder
        missing = [kernel for kernel in dict.fromkeys(kernels) if self._found(kernel, chosen, folder) is None]
        if not missing:
            return
        for kernel in missing:
            if kernel.min_capability > chosen.capability:
                raise BuildError(
                    f"The kernel {kernel.name} needs compute capability {kernel.min_capability / 10}; this "
                    f"GPU has {capability / 10}."
                )
        if folder is not None:
            _forget_old(folder)
        yield Loading(STAGE, 0, len(missing))
        outcomes = workers.compiled(missing, [chosen.capability])
        try:
            for done, (kernel, outcome) in enumerate(outcomes, 1):
                if isinstance(outcome, BuildError):
                    raise outcome
                self._keep(kernel, chosen, outcome[chosen.capability], folder)
                yield Loading(STAGE, done, len(missing))
        finally:
            outcomes.close()  # type: ignore[attr-defined]

    def cubin(self, kernel: Kernel, capability: int) -> bytes:
        """A kernel's machine code (or PTX, see `target`) for this compute capability, compiled if necessary.

        Raises `BuildError` if it cannot be compiled.
        """
        chosen = target(capability)
        image = self._found(kernel, chosen, self.folder)
        if image is None:
            for _ in self.ready([kernel], capability):
                pass
            image = self._images[kernel.name, chosen.folder]
        return image

    def _found(self, kernel: Kernel, chosen: Target, folder: Path | None) -> bytes | None:
        """Look in memory, then in the kernels compiled ahead of time, then on disk."""
        key = kernel.name, chosen.folder
        if key not in self._images:
            for place in (prebuilt(), folder):
                image = _read(place / chosen.folder / file_name(kernel)) if place is not None else None
                if image is not None:
                    self._images[key] = image
                    break
        return self._images.get(key)

    def _keep(self, kernel: Kernel, chosen: Target, built: Built, folder: Path | None) -> None:
        image = chosen.image(built)
        self._images[kernel.name, chosen.folder] = image
        if folder is not None:
            with suppress(OSError):  # the disk is full: it is compiled again next time
                write(folder / chosen.folder / file_name(kernel), image)


def write(file: Path, image: bytes) -> None:
    """Write machine code with its hash in front. Another process sees either the whole file or none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, hashlib.sha256(image).digest() + image, synced=False)


def _read(file: Path) -> bytes | None:
    """Machine code that `write` stored, or None if it is missing or damaged."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    image = data[_HASH:]
    return image if image and hashlib.sha256(image).digest() == data[:_HASH] else None


def _forget_old(folder: Path) -> None:
    """Mark this folder as used, and remove all but the `KEPT_VERSIONS` most recently used others."""
    with suppress(OSError):
        os.utime(folder)
        others = [each for each in folder.parent.glob("cuda-*") if each != folder and each.is_dir()]
        for old in sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)[KEPT_VERSIONS:]:
            shutil.rmtree(old, ignore_errors=True)


BINARIES = Binaries()
"""Shared by all models of the process, since machine code has no state."""
