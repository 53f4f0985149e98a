"""The processor's path and the window need no torch: an installation may remove it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCKED = "import sys; sys.modules['torch'] = None; "
"""Every `import torch` raises ModuleNotFoundError, and torch is nowhere to be found."""


def without_torch(code: str, *arguments: str) -> str:
    """What a fresh interpreter without torch prints."""
    run = subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.real_model
def test_the_command_line_answers(starter_path: Path) -> None:
    ask = "from engine.__main__ import main; main(sys.argv[1:])"
    said = without_torch(
        ask, "run", str(starter_path), "--prompt", "The capital of France is", "--temperature", "0"
    )
    assert "Paris" in said


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_the_window_answers(starter_path: Path) -> None:
    conversation = "tests/e2e/test_real_model.py::test_a_conversation_with_the_starter_model"
    code = "import pytest; sys.exit(pytest.main(['-q', '-m', '', '-p', 'no:cacheprovider', sys.argv[1]]))"
    assert "1 passed" in without_torch(code, conversation)


def test_a_device_that_needs_torch_is_refused_in_a_sentence() -> None:
    refused = """
from engine.backends.choice import targets
from engine.errors import BadSetting
from engine.settings import LoadSettings
assert [target.backend for target in targets(LoadSettings(backend="cpu"))] == ["cpu"]
for backend in ("reference", "cuda"):
    try:
        targets(LoadSettings(backend=backend))
    except BadSetting as error:
        print(error)
"""
    reference, gpu = without_torch(refused).splitlines()
    assert reference == (
        "The reference device needs PyTorch, which is not part of this installation. Choose the processor "
        "(CPU), or install the program with pip."
    )
    assert gpu.startswith("A GPU was chosen, but none can be used.")
