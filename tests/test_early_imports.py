"""Modules of tests are imported from the last to the first, whatever some of them raise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.early_imports import import_backwards

BODIES = {
    "a": "",
    "b": "1 / 0",
    "c": "import pytest; pytest.skip('not here', allow_module_level=True)",
    "d": "",
}


@pytest.mark.parametrize(("share", "order"), [(1.0, "dcba"), (0.5, "ba"), (0.74, "cba")])
def test_the_last_comes_first_and_faults_are_left_to_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, order: str
) -> None:
    folder = tmp_path / "backwards_tests" / "deep"
    folder.mkdir(parents=True)
    for letter, body in BODIES.items():
        (folder / f"test_{letter}.py").write_text(f"import sys\nsys.seen_backwards += '{letter}'\n{body}\n")
    (folder / "helper.py").write_text("import sys\nsys.seen_backwards += 'helper'\n")
    monkeypatch.setattr(sys, "seen_backwards", "", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        import_backwards(tmp_path, "backwards_tests", share)
        kept = {name.rpartition("_")[2] for name in sys.modules if name.startswith("backwards_tests.deep.")}
    finally:
        for name in [name for name in sys.modules if name.startswith("backwards_tests")]:
            del sys.modules[name]
    assert sys.seen_backwards == order  # type: ignore[attr-defined]
    assert kept == set(order) & {"a", "d"}
