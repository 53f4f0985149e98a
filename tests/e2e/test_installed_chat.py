"""The chat that CI has with the installed program, with the program of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.real_model, pytest.mark.timeout(600)]


def test_a_question_is_answered(tmp_path, starter_path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / starter_path.name).symlink_to(starter_path)
    environment = {
        **os.environ,
        "INGLENOOK_DATA": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "QT_QPA_PLATFORM": "offscreen",
    }
    chat = subprocess.run(
        [sys.executable, "-P", str(ROOT / ".ci" / "installed_chat.py")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert chat.returncode == 0, chat.stdout + chat.stderr
    question, answer = chat.stdout.strip().split("\n", 1)
    assert question.startswith("What is the capital of France?")
    assert "Paris" in answer
