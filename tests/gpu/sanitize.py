"""Runs the kernel tests on a GPU under NVIDIA's compute-sanitizer, by default with memcheck.

    python -m tests.gpu.sanitize [TOOL ...]

Memory then comes from the driver in single allocations, without torch's pools, so that an access one byte
beyond an array is found. Exit status 0: clean; 1: errors, with the sanitizer's report printed; 2: it cannot
run here, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.backends.cuda.runtime.driver import find_gpus

ROOT = Path(__file__).parents[2]
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FAILED = 99
"""The exit status that the sanitizer returns if it finds anything."""


def sanitizer() -> str | None:
    """The program, from PATH or from an installed toolkit."""
    places = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    folders = [
        os.path.join(place, folder) for place in places if place for folder in ("bin", "compute-sanitizer")
    ]
    return shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=os.pathsep.join(folders)
    )


def command(program: str, tool: str) -> list[str]:
    """The command to run."""
    options = ["--tool", tool, "--error-exitcode", str(FAILED), "--target-processes", "all"]
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.gpu.on_device", "tests/simt"]
    return [
        program,
        *options,
        sys.executable,
        *tests,
        "--ignore=tests/simt/kernels/test_gate.py",
        "--timeout=3600",
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the sanitizer with each tool."""
    tools = arguments or ["memcheck"]
    unknown = [tool for tool in tools if tool not in TOOLS]
    found, program = find_gpus(), sanitizer()
    reason = (
        f"There is no tool {unknown[0]!r}; there are {', '.join(TOOLS)}." if unknown
        else found.reason if not found.gpus
        else "compute-sanitizer was not found; it comes with NVIDIA's CUDA toolkit." if program is None
        else ""
    )  # fmt: skip
    if reason or program is None:
        print(reason)
        return 2
    status = 0
    for tool in tools:
        environ = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        done = subprocess.run(command(program, tool), cwd=ROOT, env=environ, check=False)
        print(f"{tool}: {'clean' if done.returncode == 0 else f'ended with {done.returncode}'}")
        status |= done.returncode != 0
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
