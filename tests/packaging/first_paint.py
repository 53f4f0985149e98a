"""The time from a start to the first paint, of the packaged program and of the installed one, in turn:

    python -m tests.packaging.first_paint --bundle FOLDER/inglenook --installed ENVIRONMENT/bin/inglenook

The folder and the environment are those of one build: `dist/inglenook` and `environment` in its `--work`.
What is measured is the first picture on a screen (Xvfb) after the process is begun, with a data folder that
was used before and files that the system has in memory. The exit code is 1 if the ratio of the shortest times
is above 1.2; beside it stands the ratio of the processors' time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.packaging.screen import Screen

__all__ = ["LARGEST_RATIO", "main"]

LARGEST_RATIO = 1.2
_LOOK_S = 0.002
_LONGEST_S = 180.0
_WARM = 2


def first_paint(program: Path, home: Path, screen: Screen) -> tuple[float, float]:
    """Seconds from the start of a program to its first picture, and the processors' time until then; ends
    the program.
    """
    environ = {
        "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "DISPLAY": screen.display,
        "XDG_RUNTIME_DIR": str(home),
    }  # fmt: skip
    begin = time.monotonic()
    process = subprocess.Popen(
        [program], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not screen.is_painted():
        assert process.poll() is None, f"{program} ended with {process.returncode}"
        assert time.monotonic() - begin < _LONGEST_S, f"{program} paints nothing"
        time.sleep(_LOOK_S)
    taken = time.monotonic() - begin
    used = psutil.Process(process.pid).cpu_times()
    process.send_signal(signal.SIGTERM)
    assert process.wait(_LONGEST_S) == 0, f"{program} ended with {process.returncode}"
    while screen.is_painted():
        time.sleep(_LOOK_S)
    return taken, used.user + used.system


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; prints a line for each program and one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.first_paint")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--installed", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    programs = {"bundle": options.bundle.absolute(), "installed": options.installed.absolute()}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    screen = Screen()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(_WARM + options.rounds):
                for name, program in programs.items():
                    home = Path(folder, name)
                    home.mkdir(exist_ok=True, mode=0o700)
                    times = first_paint(program, home, screen)
                    if number >= _WARM:
                        taken[name].append(times)
    finally:
        screen.close()
    least = {name: [min(column) for column in zip(*times, strict=True)] for name, times in taken.items()}
    for name, measured in taken.items():
        middle = statistics.median(seconds for seconds, _ in measured)
        shortest, used = least[name]
        print(f"{name}: at least {shortest:.3f} s, median {middle:.3f} s, {used:.3f} s of processors")
    ratio, work = (least["bundle"][column] / least["installed"][column] for column in (0, 1))
    print(json.dumps({"ratio": round(ratio, 3), "processors": round(work, 3), "largest": LARGEST_RATIO}))
    return int(ratio > LARGEST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
