"""Drafting on the CUDA backend, whose devices are fake ones: what every kind of drafter must keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.chat import finished, open_chat
from engine.settings import CacheSettings, LoadSettings, SpeculationSettings
from tests.engine.speculation.test_mtp import GREEDY, NONE, asked, written
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import install


def check_drafts(
    path: Path, drafting: SpeculationSettings, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts that are always right, on this many devices, change nothing in a reply and make its passes few;
    the memory of the drafter, and what the model kept for it, come back.
    """
    machine = install(monkeypatch, *(FakeDevice(index=index) for index in range(devices)))
    load = LoadSettings(backend="cuda", gpus="0,1" if devices > 1 else "")
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
