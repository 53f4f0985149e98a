"""The vectors of passages on disk: found by model and text, bounded, and never needed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from desktop.store.caches.vectors import VectorStore

PIECES = ["one", "two"]
ROWS = np.arange(8, dtype=np.float16).reshape(2, 4)


def test_they_are_found_by_model_and_text(tmp_path: Path) -> None:
    store = VectorStore(tmp_path / "new" / "vectors.sqlite")
    assert store.get("a", PIECES) is None
    store.put("a", PIECES, ROWS)
    store.close()
    found = store.get("a", PIECES)
    assert found is not None
    np.testing.assert_array_equal(found, ROWS)
    assert store.get("b", PIECES) is None
    assert store.get("a", ["on", "etwo"]) is None
    assert store.get("a", ["one"]) is None
    assert (tmp_path / "new" / "vectors.sqlite").stat().st_mode & 0o077 == 0
    store.close()


def test_the_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **more: opened.append(1) or connect(*given, **more)
    )
    store = VectorStore(tmp_path / "vectors.sqlite")
    store.put("a", PIECES, ROWS)
    assert store.get("a", PIECES) is not None
    assert len(opened) == 1
    store.close()


def test_those_that_were_not_used_for_longest_go(tmp_path: Path) -> None:
    store = VectorStore(tmp_path / "vectors.sqlite", most=32)  # just two of 16 bytes
    store.put("a", PIECES, ROWS)
    store.put("b", PIECES, ROWS)
    assert store.get("a", PIECES) is not None
    store.put("c", PIECES, ROWS)
    assert [store.get(name, PIECES) is not None for name in "abc"] == [True, False, True]
    store.close()


def test_a_damaged_file_is_made_again_and_one_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    path.write_bytes(b"no database" * 500)
    store = VectorStore(path)
    assert store.get("a", PIECES) is None
    store.put("a", PIECES, ROWS)
    assert store.get("a", PIECES) is not None
    store.close()
    (tmp_path / "file").write_bytes(b"")
    useless = VectorStore(tmp_path / "file" / "vectors.sqlite")
    useless.put("a", PIECES, ROWS)
    assert useless.get("a", PIECES) is None
