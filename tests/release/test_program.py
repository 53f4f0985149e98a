"""What is done to the program's folder after PyInstaller."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release.program import forget_search_paths, normalise


def search_path(library: Path) -> str:
    """Where it looks for others, as the loader reads it."""
    shown = subprocess.run(["readelf", "--dynamic", library], check=True, capture_output=True, text=True)
    lines = [line for line in shown.stdout.splitlines() if "(RUNPATH)" in line or "(RPATH)" in line]
    return "".join(line.partition("[")[2].rstrip("]") for line in lines)


@pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "patchelf", "readelf"))), reason="they are not installed"
)
def test_libraries_look_for_others_in_no_folder_of_the_build(tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text("int x(void) { return 7; }\n", encoding="utf-8")
    given = {
        "none": ("", ""),
        "build": ("/build/python/lib", ""),
        "own": ("$ORIGIN/../lib", "$ORIGIN/../lib"),
        "both": ("/build/python/lib:$ORIGIN:/opt", "$ORIGIN"),
    }
    for name, (path, _) in given.items():
        words = ["-shared", "-o", tmp_path / f"{name}.so", source, *([f"-Wl,-rpath,{path}"] if path else [])]
        subprocess.run(["gcc", *words], check=True)
    untouched = [(tmp_path / f"{name}.so").read_bytes() for name in ("none", "own")]
    forget_search_paths(tmp_path)
    assert {name: search_path(tmp_path / f"{name}.so") for name in given} == {
        name: kept for name, (_, kept) in given.items()
    }
    assert untouched == [(tmp_path / f"{name}.so").read_bytes() for name in ("none", "own")]


def test_nobody_may_run_what_is_only_loaded(tmp_path: Path) -> None:
    inside = tmp_path / "usr" / "lib" / "_internal"
    inside.mkdir(parents=True)
    for path in (inside / "library.so", inside / "LICENSE", inside.parent / "program"):
        path.touch(mode=0o700)
    normalise(tmp_path, 1_700_000_000)
    assert (inside.parent / "program").stat().st_mode & 0o777 == 0o755
    assert [path.stat().st_mode & 0o777 for path in (inside, *sorted(inside.iterdir()))] == [
        0o755, 0o644, 0o644,
    ]  # fmt: skip
