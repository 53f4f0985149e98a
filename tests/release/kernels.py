"""Compiles the kernels that packages bring, for each level of `engine.platform.levels`:

    python -m tests.release.kernels FOLDER

FOLDER becomes `resources/kernels` of the program, whose sources, Python, Numba and llvmlite must be those
that run this. No level's code is run here, so any x86-64 machine can make all of them. Each level is compiled
in one process of its own, always in the same order, so that the files are the same each time.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.platform.folders import CACHE_VARIABLE, cache_dir
from engine.platform.levels import LEVELS, Level
from tests.release.plan import ROOT, PackagingError, run

__all__ = ["KERNELS", "LARGE_VOCABULARY", "check_folders", "compile_kernels"]

_WEIGHTS = ("q40", "q41", "q4k", "q50", "q5k", "q6k", "q8", "f16", "bf16")
KERNELS = (
    "add", "attention_fp16_fp16", "column_maxima", "columns", "combine", "gated_gelu_tanh", "gated_silu",
    "last_rows", "layer_norm", "pack_int16", "read_memory", "repack", "repack_words", "rms_norm", "rope",
    "sample", "soft_cap", "softmax_lanes", "times", "write_keys_fp16", "write_values_fp16",
    *(f"embed_{weights}" for weights in _WEIGHTS), *(f"linear_{weights}" for weights in _WEIGHTS),
)  # fmt: skip
"""Kernels of the starter model, and of dense models (Llama, Qwen 3, Gemma 3) in the usual GGUF types; also
what packs these types for GPUs.
"""
LARGE_VOCABULARY = 1 << 17
"""Tokens of a vocabulary for which all usual passes of the sampler are compiled."""


def compile_kernels(folder: Path, levels: Iterable[Level] = LEVELS, names: Iterable[str] = KERNELS) -> None:
    """Write the code of kernels, thread pool and sampler, a folder for each level. Raises PackagingError."""
    chosen, kernels = list(levels), tuple(names)
    if platform.machine().lower() in ("x86_64", "amd64"):
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(lambda level: _compile_level(folder, level, kernels), chosen):
                pass


def _compile_level(folder: Path, level: Level, names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as private:
        command = [sys.executable, "-m", "tests.release.kernels", "--here", *names]
        run(command, **{CACHE_VARIABLE: private}, PYTHONHASHSEED="1", **level.settings)
        if {path.name.partition("-")[0] for path in Path(private).iterdir()} != {"kernels", "sampling"}:
            raise PackagingError(
                f"Compiled code was not kept in {private}; let TMPDIR name a folder that other users "
                "cannot write to."
            )
        check_folders(Path(private))
        shutil.rmtree(folder / level.name, ignore_errors=True)
        shutil.copytree(private, folder / level.name, copy_function=shutil.copyfile)


def for_level(names: Sequence[str], amx: bool) -> tuple[str, ...]:
    """The kernels, and where AMX multiplies also those that pack activations for it."""
    packs = ("pack_amx_bf16", "pack_amx_int16") if amx and "pack_int16" in names else ()
    return (*names, *packs)


def check_folders(compiled: Path) -> None:
    """Raise PackagingError if code names a folder of the build, as each error does that it can raise: the
    same sources would give other bytes elsewhere.
    """
    for path in sorted(compiled.rglob("*.nbc")):
        content = path.read_bytes()
        if b"site-packages" in content or os.fsencode(ROOT) in content:
            raise PackagingError(
                f"{path.name} names the folder that it was compiled in, in an error that it can raise."
            )


def _compile_here(names: Sequence[str]) -> None:
    """In a process with the settings of a level: compile into its cache."""
    from engine.backends.cpu.codegen.kernel_cache import KERNELS as TABLE
    from engine.backends.cpu.codegen.kernel_cache import cache_folder, keep
    from engine.backends.cpu.codegen.simd_bytes import AMX
    from engine.sampling import kernels

    folder = cache_folder()
    if folder is None or not folder.is_relative_to(cache_dir()):
        return
    keep(folder, for_level(names, AMX))
    for _ in TABLE.compile([names[0]]):  # with the thread pool's functions
        pass
    kernels.prepare(LARGE_VOCABULARY)


def main(arguments: Sequence[str]) -> int:
    """Compile for all levels; 2 without a folder."""
    if arguments[:1] == ["--here"]:
        _compile_here(arguments[1:])
        return 0
    if len(arguments) != 1:
        print("python -m tests.release.kernels FOLDER", file=sys.stderr)
        return 2
    compile_kernels(Path(arguments[0]).absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
