"""The hash of a model's files is computed by itself, after the model was loaded."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.models import file_hashes
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui


def test_the_hash_of_a_loaded_model_is_found(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_hashes, "_AFTER_LOADING_MS", 0)
    with closing(Hand(qtbot, tmp_path)) as hand:
        hashes, path = hand.desktop.services.provenance.hashes, str(tmp_path / "echo.gguf")
        found: list[tuple[str, str]] = []
        hashes.found.connect(lambda *of: found.append(of))
        hand.load()
        qtbot.waitUntil(lambda: bool(found))
        assert found == [(path, hashlib.sha256(b"").hexdigest())] == [(path, hashes.hash_of(path))]
