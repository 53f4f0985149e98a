"""Drafting with DFlash on the CUDA backend, whose devices are fake ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.settings import SpeculationSettings
from tests.engine.models.drafting.dflash_files import write_perfect
from tests.simt.backend.drafting import check_drafts


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("devices", [1, 2])
def test_drafts_do_not_change_a_reply(devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A main model that repeats itself, so that every draft is right; of two devices, both keep features."""
    path, own = write_perfect(tmp_path)
    drafting = SpeculationSettings("model", str(own), draft_tokens=4, adaptive=False)
    check_drafts(path, drafting, devices, monkeypatch)
