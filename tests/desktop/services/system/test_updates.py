"""The version before an update, which can be gone back to."""

from __future__ import annotations

from pathlib import Path

import pytest

from desktop.services.system import updates
from engine.hub.updates.install import before_of


def test_only_a_program_file_with_an_earlier_one_beside_it_has_a_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image: Path | None = None
    monkeypatch.setattr(updates, "app_image", lambda: image)
    api = updates.UpdateApi()
    assert api.before() is None
    api.roll_back()  # nothing happens
    image = tmp_path / "Inglenook.AppImage"
    image.write_bytes(b"new")
    assert api.before() is None
    before_of(image).write_bytes(b"old")
    assert api.before() == before_of(image)
    api.roll_back()
    assert image.read_bytes() == b"old"
