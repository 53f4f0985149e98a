"""Kernels of an earlier run are taken over, unless any source of the engine has changed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kept_kernels import keep_kernels, kernels_name, take_kernels


def test_any_change_of_the_engine_gives_another_name(tmp_path: Path) -> None:
    source = tmp_path / "engine" / "deep" / "kernel.py"
    source.parent.mkdir(parents=True)
    source.write_text("FACTOR = 1\n")
    before = kernels_name(tmp_path)
    assert kernels_name(tmp_path) == before
    source.write_text("FACTOR = 2\n")
    assert kernels_name(tmp_path) != before


def written(folder: Path, **files: str) -> None:
    """Files of a cache, with the texts given."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_only_kernels_are_taken_over(tmp_path: Path) -> None:
    cache, kept = tmp_path / "cache", tmp_path / "kept" / "one"
    take_kernels(kept, cache)  # the first run
    assert not cache.exists()
    kernels = {"kernels-1/m/f.py311.nbi": "1", "kernels-1/m/f.py311.1.nbc": "a", "sampling-1/m/g.nbi": ""}
    written(cache, **kernels, **{"conversations/x.nbi": "", "headers": ""})
    keep_kernels(cache, kept)
    take_kernels(kept, tmp_path / "later")
    assert read(tmp_path / "later") == kernels


def test_an_index_and_its_code_come_from_the_same_run(tmp_path: Path) -> None:
    first, second, kept = tmp_path / "first", tmp_path / "second", tmp_path / "kept" / "one"
    written(first, **{"kernels-1/f.nbi": "1: x", "kernels-1/f.1.nbc": "x", "kernels-1/g.nbi": ""})
    other = {"kernels-1/f.nbi": "1: y, 2: x", "kernels-1/f.1.nbc": "y", "kernels-1/f.2.nbc": "x"}
    written(second, **other)
    keep_kernels(first, kept)
    keep_kernels(second, kept)
    assert read(kept) == {**other, "kernels-1/g.nbi": ""}


def test_kernels_of_the_oldest_sources_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for age in range(10):
        (kept / f"old{age}").mkdir(parents=True)
        os.utime(kept / f"old{age}", (1e9 - age, 1e9 - age))
    (kept / "new").mkdir()
    keep_kernels(tmp_path / "none", kept / "new")
    assert {path.name for path in kept.iterdir() if path.is_dir()} == {"new", *(f"old{n}" for n in range(7))}
