"""Instruction sets that a packaged program may bring compiled code for: its first start compiles nothing.

`resources/kernels` has a folder for each, made by `tests/release/kernels.py`. If this processor has all
features of a level that has a folder, everything is compiled for the best such level, as if Numba's settings
NUMBA_CPU_NAME and NUMBA_CPU_FEATURES named it: code is then found under the same names as on the machine that
built the package. Without such a folder, or with those settings, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cache
from pathlib import Path

from llvmlite import binding as llvm
from numba import config

import resources
from engine.lazy_dataclass import dataclass
from engine.platform.amx import tiles_allowed
from engine.platform.folders import is_trusted

__all__ = ["FOLDER", "LEVELS", "Level", "chosen", "folder_of", "host_features", "prebuilt"]

FOLDER = "kernels"
"""The folder in `resources`."""


@dataclass(frozen=True, slots=True)
class Level:
    """name: of its folder; cpu: LLVM's processor, whose features are `features`, those beyond it included;
    tuning: LLVM's choices among instructions that every such processor has.
    """

    name: str
    cpu: str
    features: tuple[str, ...]
    tuning: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """Numba's environment variables that compile for this level."""
        return {"NUMBA_CPU_NAME": self.cpu, "NUMBA_CPU_FEATURES": self.flags}

    @property
    def flags(self) -> str:
        """The features and tuning as LLVM takes them."""
        return ",".join(f"+{feature}" for feature in (*self.features, *self.tuning))


# https://gitlab.com/x86-psABIs/x86-64-ABI, table 3.1; LLVM's names (X86TargetParser.cpp).
_V2 = ("cx16", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AMX = ("amx-bf16", "amx-int8", "amx-tile")
_VNNI = ("fast-dpwssd",)
"""Without it LLVM replaces vpdpwssd by three instructions (a load, vpmaddwd and vpaddd), for its latency: on
Intel's Emerald Rapids, for which LLVM does so, prompts took half as long again.
"""

LEVELS = (
    Level("x86-64-v4-vnni-amd", "x86-64-v4", (*_V4, "avx512vnni", "sse4a"), _VNNI),
    Level("x86-64-v4-amx", "x86-64-v4", (*_V4, "avx512vnni", *_AMX), _VNNI),
    Level("x86-64-v4-vnni", "x86-64-v4", (*_V4, "avx512vnni"), _VNNI),
    Level("x86-64-v4", "x86-64-v4", _V4),
    Level("x86-64-v3-vnni", "x86-64-v3", (*_V3, "avxvnni"), _VNNI),
    Level("x86-64-v3", "x86-64-v3", _V3),
    Level("x86-64-v2", "x86-64-v2", _V2),
)
"""The best first."""


def folder_of(level: Level) -> Path | None:
    """The folder of compiled code for a level; None without one, or if another user could write to it."""
    for place in resources.__path__:
        folder = Path(place) / FOLDER / level.name
        if folder.is_dir() and is_trusted(folder):
            return folder
    return None


def usable(features: Set[str], levels: Iterable[Level] = LEVELS) -> Level | None:
    """The best level that has a folder and whose features are all among `features`."""
    able = (level for level in levels if features >= set(level.features))
    return next((level for level in able if folder_of(level) is not None), None)


def host_features() -> dict[str, bool]:
    """LLVM's features of this processor, and whether this process may use them."""
    host = dict(llvm.get_host_cpu_features())
    if host.get("amx-tile") and not tiles_allowed():
        host.update({name: False for name in host if name.startswith("amx")})
    return host


@cache
def chosen() -> Level | None:
    """The level that this process compiles for, which is made Numba's target by the first call; None for this
    processor itself, with VNNI's tuning.
    """
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return None
    host = host_features()
    level = usable({name for name, there in host.items() if there})
    if level is not None:
        config.CPU_NAME, config.CPU_FEATURES = level.cpu, level.flags
    elif config.ENABLE_AVX and (host.get("avx512vnni") or host.get("avxvnni")):
        flags = [f"{'+' if there else '-'}{name}" for name, there in sorted(host.items())]
        config.CPU_FEATURES = ",".join([*flags, *(f"+{each}" for each in _VNNI)])
    return level


def prebuilt(name: str) -> Path | None:
    """The folder `name` of compiled code for the level that this process compiles for; None without one."""
    level = chosen()
    place = folder_of(level) if level is not None else None
    return place / name if place is not None and (place / name).is_dir() else None
