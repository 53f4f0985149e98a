"""The proof of updates puts the old version back while the newer one still runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.packaging import root
from tests.packaging.root import Machine
from tests.packaging.screen import Screen
from tests.packaging.update_proof import UpdateProof
from tests.packaging.update_site import UpdateSite


@pytest.mark.skipif(sys.platform != "linux", reason="the proof runs on Linux")
def test_the_old_version_is_put_back_while_the_newer_one_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(root, "USER", os.getuid())
    site = tmp_path / "site"
    site.mkdir()
    image = tmp_path / "old"
    image.write_text("old")
    shutil.copy(shutil.which("sleep") or "sleep", site / "new.AppImage")
    machine = Machine(tmp_path, tmp_path / "work")
    server = cast("UpdateSite", type("Site", (), {"folder": site}))
    proof = UpdateProof(machine, cast("Screen", None), image, server, tmp_path)
    installed = machine.home / "Programs/Inglenook.AppImage"
    before = installed.with_name("Inglenook.AppImage.before")
    installed.unlink()
    shutil.copy(site / "new.AppImage", installed)
    before.write_text("before")
    with subprocess.Popen([installed, "10"]) as running:
        proof.put_back()
        running.kill()
    assert installed.read_text() == "old"
    assert [path.name for path in installed.parent.iterdir()] == [installed.name]
