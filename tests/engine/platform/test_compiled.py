"""Compiled code is found again wherever the program lies, and not once its sources have changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm
from numba import types
from numba.core.typing.npydecl import NumpyRulesArrayOperator
from numba.core.untyped_passes import InlineClosureLikes

from engine.platform import compiled

ROOT = Path(__file__).resolve().parents[3]
COMPILE = """
import sys, numpy
sys.path.insert(0, sys.argv[1])
import engine
assert engine.__file__.startswith(sys.argv[1])
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.sampling import kernels
for _ in KERNELS.compile(["rms_norm"]):
    pass
kernels.softmax_sums
kernels._allow_kernel()
"""


def compiled_files(program: Path, cache: Path, started_in: Path) -> set[Path]:
    """All code in the cache after the program in a folder has compiled a few kernels."""
    subprocess.run(
        [sys.executable, "-I", "-c", COMPILE, str(program)],
        cwd=started_in, env={**os.environ, "INGLENOOK_CACHE": str(cache)}, check=True,
    )  # fmt: skip
    return {path.relative_to(cache) for path in cache.rglob("*.nbc")}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The program in two folders, with other times, and an empty cache."""
    for name in ("one", "other"):
        for package in ("engine", "resources"):
            shutil.copytree(
                ROOT / package, tmp_path / name / package, ignore=shutil.ignore_patterns("__pycache__")
            )
    for source in (tmp_path / "other").rglob("*.py"):
        os.utime(source, (1, 1))
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "one", tmp_path / "other", tmp_path / "cache"


@pytest.mark.slow
def test_it_follows_the_sources_not_their_place(folders: tuple[Path, Path, Path]) -> None:
    one, other, cache = folders
    first = compiled_files(one, cache, one)
    assert {path.parts[0].split("-")[0] for path in first} == {"kernels", "sampling"}
    kept = {path: (cache / path).stat().st_mtime_ns for path in first}
    assert compiled_files(other, cache, Path("/")) == first
    assert {path: (cache / path).stat().st_mtime_ns for path in first} == kept
    for changed in ("sampling/passes.py", "backends/cpu/kernels/norm.py"):
        with (other / "engine" / changed).open("a") as file:
            file.write("# changed\n")
    both = compiled_files(other, cache, other)
    assert len(both) == 2 * len(first)
    assert first < both


def _area(width: int, height: int) -> int:
    edge = width + height
    return edge * 2 if edge < 0 else width * height


def test_numbers_are_not_looked_for_among_arrays_and_no_closures_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both took about a tenth of the time in which a first start compiles."""

    def unwanted(*_anything: object) -> None:
        raise AssertionError("a needless part of the compiler ran")

    monkeypatch.setattr(NumpyRulesArrayOperator, "generic", unwanted)
    monkeypatch.setattr(InlineClosureLikes, "run_pass", unwanted)
    word = types.int64
    made = compiled.function(_area, word(word, word), {"nogil": True}, cache=False)
    assert [made(3, 4), made(-3, 1)] == [12, -4]
    compiled.part(_area, word(word, word), {})


def test_kept_code_comes_without_its_intermediate_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was three quarters of each file, and parsed at each start."""
    word, read = types.int64, llvm.parse_bitcode
    signature, instructions = word(word, word), list[str]()

    def parse(*given: Any) -> Any:
        module = read(*given)
        for function in module.functions:
            instructions.extend(str(one).strip() for block in function.blocks for one in block.instructions)
        return module

    for folder, make in (("functions", compiled.function), ("callbacks", compiled.callback)):
        with compiled.cached_in(tmp_path / folder):
            make(_area, signature, {}, cache=True)
    monkeypatch.setattr(llvm, "parse_bitcode", parse)
    with compiled.cached_in(tmp_path / "functions"):
        function = compiled.cached_function(_area, signature, {})
    with compiled.cached_in(tmp_path / "callbacks"):
        callback = compiled.cached_callback(_area, signature, {})
    assert function is not None
    assert callback is not None
    assert [each(-3, 1) for each in (function, callback.ctypes)] == [-4, -4]
    assert set(instructions) == {"ret void"}


def _filled(out: Any, width: int) -> None:
    out[:] = out.shape[0] - width


def test_arrays_are_still_found() -> None:
    made = compiled.function(
        _filled, types.void(types.float32[::1], types.int64), {"nogil": True}, cache=False
    )
    out = np.zeros(5, np.float32)
    made(out, 2)
    assert out.tolist() == [3.0] * 5
