"""Drafting with an assistant on the CUDA backend, whose devices are fake ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.settings import SpeculationSettings
from tests.engine.models.drafting.assistant_files import PAIRS, write_pair
from tests.engine.speculation.test_assistant import perfect
from tests.simt.backend.drafting import check_drafts


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_drafts_of_the_assistant_do_not_change_a_reply(
    devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With layers that add nothing every draft is right."""
    path, own = write_pair(PAIRS["dense"], tmp_path)
    perfect(path, own)
    drafting = SpeculationSettings("model", str(own), draft_tokens=4, adaptive=False)
    check_drafts(path, drafting, devices, monkeypatch)
