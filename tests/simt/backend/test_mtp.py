"""Drafting with a model's own head on the CUDA backend, whose devices are fake ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from engine.chat import finished, open_chat
from engine.settings import CacheSettings, LoadSettings
from tests.engine.models.drafting.mtp_files import KINDS, write_folder
from tests.engine.speculation.test_mtp import GREEDY, HEAD, NONE, asked, perfect, perfect_outer, written
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import install


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("GLM-4.5 to 4.7", 1),
        *(
            pytest.param(name, devices, marks=pytest.mark.slow)
            for name, devices in (("GLM-4.5 to 4.7", 2), ("Qwen 3.5", 1), ("DeepSeek V3", 1))
        ),
    ],
)
def test_drafts_of_the_head_do_not_change_a_reply(
    name: str, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With layers that add nothing every draft is right, so that passes are few; the head's memory and what
    the model kept for it come back.
    """
    machine = install(monkeypatch, *(FakeDevice(index=index) for index in range(devices)))
    kind = KINDS[name]
    write_folder(kind, tmp_path / "m", perfect_outer(kind.apart), partial(perfect, kind.apart))
    load = LoadSettings(backend="cuda", gpus="0,1" if devices > 1 else "")
    chat = finished(open_chat(tmp_path / "m", load, CacheSettings(context_length=512, dtype="fp32")))
    chat.generator.drafters.threshold = 0.0  # tiny models are never sure
    plain, _ = written(chat, asked(GREEDY, NONE, 24))
    found, stats = written(chat, asked(GREEDY, HEAD, 24))
    assert found == plain
    assert stats.acceptance_rate == 1.0
    assert stats.passes <= 8
    assert written(chat, asked(GREEDY, NONE, 24))[0] == plain
    assert all(device.done for device in machine.devices)
    chat.close()
    del chat
    assert machine.taken == [0] * devices
