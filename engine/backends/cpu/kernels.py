"""Compiling the kernels once and keeping them.

Every kernel has the signature void(args, step, tile, scratch), four int64, and is compiled on its own, so that progress can
be shown. The compiled code is kept on disk in a folder whose name is a hash of this package's sources, the versions of
Numba and llvmlite and the CPU, because Numba's own cache does not notice a change in another file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
import platformdirs
from llvmlite import binding as llvm
from numba import config, types

from engine.backends.cpu import attention, bandwidth, rope, rows
from engine.backends.cpu.family import Family
from engine.backends.cpu.family_plain import PLAIN
from engine.backends.cpu.family_q4 import Q4
from engine.backends.cpu.family_q6 import Q6K
from engine.backends.cpu.family_q8 import Q8
from engine.backends.cpu.linear import linear_kernel
from engine.backends.cpu.simd import FEATURES
from engine.backends.cpu.team import team_functions
from engine.core import Loading

FAMILIES: tuple[Family, ...] = (Q4(), Q8(), Q6K(), *PLAIN)
"""All packed layouts."""

SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)
_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy"}


def family_for(type_name: str) -> Family:
    """The layout a GGUF type is packed into; types without one are dequantised to F32."""
    return next((f for f in FAMILIES if type_name in f.types), PLAIN[0])


def cache_folder() -> Path | None:
    """Where compiled kernels are kept: the user's cache, or a private temporary folder, or None when neither can be written."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    machine = [llvm.get_host_cpu_name(), *sorted(FEATURES), str(config.CPU_NAME), str(config.CPU_FEATURES)]
    digest.update("\0".join([numba.__version__, llvmlite.__version__, *machine]).encode())
    name = f"kernels-{digest.hexdigest()[:16]}"
    override = os.environ.get("INGLENOOK_CACHE")
    places = [Path(override)] if override else [Path(platformdirs.user_cache_dir("inglenook", appauthor=False))]
    places.append(Path(tempfile.gettempdir()) / f"inglenook-{os.getuid() if hasattr(os, 'getuid') else 'user'}")
    for place in places:
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Code is loaded from here: a folder that belongs to somebody else is not trusted.
            if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
                continue
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


class KernelTable:
    """Addresses of compiled kernels by name, shared by all models of the process."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}
        self.team: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """The C function's address; the kernel must have been compiled."""
        return int(self._compiled[name].address)

    def compile(self, names: list[str]) -> Iterator[Loading]:
        """Compile what is missing, or take it from the disk cache; yields progress when there is something to do."""
        missing = [n for n in names if n not in self._compiled]
        if not missing:
            return
        options, before = dict(_OPTIONS), config.CACHE_DIR
        folder = cache_folder()
        if folder is None:
            options["cache"] = False
        try:
            config.CACHE_DIR = str(folder or "")
            if not self.team:
                yield Loading("Preparing the CPU kernels", 0, len(missing))
                self.team = team_functions(lambda f, signature: numba.njit(signature, nogil=True, **options)(f))
            sources = _sources(missing, lambda f: numba.njit(attention.PRODUCTS_SIGNATURE, **options)(f))
            for done, name in enumerate(missing):
                yield Loading("Preparing the CPU kernels", done, len(missing))
                self._compiled[name] = numba.cfunc(SIGNATURE, **options)(sources[name])
        finally:
            config.CACHE_DIR = before
        yield Loading("Preparing the CPU kernels", len(missing), len(missing))


def _sources(names: list[str], jit: Callable[[Any], Any]) -> dict[str, Any]:
    """The plain Python kernels of these names."""
    found: dict[str, Any] = {
        "rms_norm": rows.rms_norm,
        "silu_mul": rows.silu_mul,
        "last_rows": rows.last_rows,
        "rope": rope.rope,
        "combine": attention.combine,
        "read_memory": bandwidth.read_memory,
    }
    for family in FAMILIES:
        if f"linear_{family.name}" in names:
            found[f"linear_{family.name}"] = linear_kernel(family)
        if f"embed_{family.name}" in names:
            found[f"embed_{family.name}"] = rows.embed_kernel(family)
    for dtype in ("fp16", "fp32"):
        if f"attention_{dtype}" in names:
            found.update(attention.attention_kernels(dtype, jit))
    return found


def kernel_names(weight_types: frozenset[str], cache_dtype: str) -> list[str]:
    """All kernels a model with these weight types and this cache needs."""
    families = {family_for(t).name for t in weight_types}
    names = [f"{kind}_{f.name}" for f in FAMILIES if f.name in families for kind in ("linear", "embed")]
    names += [f"{kind}_{cache_dtype}" for kind in ("store_keys", "store_values", "attention")]
    return [*names, "combine", "rms_norm", "rope", "silu_mul", "last_rows"]


KERNELS = KernelTable()
"""The process's table: compiled code has no state, so models may share it."""
