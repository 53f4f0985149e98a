"""Drafting with a model's own head on the CUDA backend, whose devices are fake ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.engine.models.drafting.mtp_files import KINDS, write_folder
from tests.engine.speculation.test_mtp import HEAD, perfect, perfect_outer
from tests.simt.backend.drafting import check_drafts


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
    """With layers that add nothing every draft is right."""
    kind = KINDS[name]
    write_folder(kind, tmp_path / "m", perfect_outer(kind.apart), partial(perfect, kind.apart))
    check_drafts(tmp_path / "m", HEAD, devices, monkeypatch)
