"""Drafting with EAGLE-3 on the CUDA backend, whose devices are fake ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.chat import finished, open_chat
from engine.settings import CacheSettings, LoadSettings, SpeculationSettings
from tests.engine.models.drafting.eagle3_files import write_perfect
from tests.engine.speculation.test_mtp import GREEDY, NONE, asked, written
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import install


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("devices", [1, 2])
def test_drafts_do_not_change_a_reply(devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With layers that add nothing every draft is right, so that passes are few; the drafter's memory and
    what the model kept for it come back. Of two devices, the hidden states are on both.
    """
    machine = install(monkeypatch, *(FakeDevice(index=index) for index in range(devices)))
    path, own = write_perfect(tmp_path)
    load = LoadSettings(backend="cuda", gpus="0,1" if devices > 1 else "")
    drafting = SpeculationSettings("model", str(own), draft_tokens=4, adaptive=False)
    chat = finished(open_chat(path, load, CacheSettings(context_length=512, dtype="fp32")))
    chat.generator.drafters.threshold = 0.0  # tiny models are never sure
    plain, _ = written(chat, asked(GREEDY, NONE, 24))
    found, stats = written(chat, asked(GREEDY, drafting, 24))
    assert found == plain
    assert stats.acceptance_rate == 1.0
    assert stats.passes <= 8
    assert written(chat, asked(GREEDY, NONE, 24))[0] == plain
    assert all(device.done for device in machine.devices)
    chat.close()
    del chat
    assert machine.taken == [0] * devices
