"""Every kernel on a real GPU against its model: the interpreter's tests, run on the device instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.backends.cuda.codegen.registry import all_kernels
from engine.backends.cuda.runtime.driver import GpuInfo
from tests.gpu.checks import missing
from tests.gpu.on_device import REPORT

ROOT = Path(__file__).parents[2]
PROCESSES = 4
"""At most; each takes some hundred megabytes of the GPU's memory."""


def run_on_device(
    report: Path, variables: dict[str, str], tests: list[str]
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run the interpreter's tests on a device: how they ended, and what ran."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.gpu.on_device",
        *tests,
    ]
    command += ["-m", "slow or not slow", "--ignore=tests/simt/kernels/test_gate.py", "--timeout=1200"]
    command += ["-n", str(min(PROCESSES, os.cpu_count() or 1)), "--dist", "loadfile"]
    environ = {**os.environ, REPORT: str(report), **variables}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    return done, json.loads(report.read_text("utf-8")) if report.exists() else {}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("early", ["0", "1"])
def test_kernels_on_the_device(gpus: tuple[GpuInfo, ...], tmp_path: Path, early: str) -> None:
    """With and without early launches; every registered kernel must have run."""
    done, ran = run_on_device(tmp_path / "report.json", {"INGLENOOK_EARLY": early}, ["tests/simt"])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    print(done.stdout[-500:])
    assert ran["launches"] > 0
    assert (
        missing(
            set(ran["ran"]),
            [kernel for kernel in all_kernels() if kernel.min_capability <= gpus[0].capability],
        )
        == []
    )
