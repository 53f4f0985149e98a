"""Prints what a screen reader finds: the trees of the main window, a reply and some dialogs, by AT-SPI.

    python -m tests.tools.accessible_tree [OUT]

They are those of the session in `tests.e2e.screen_reader`, which this plays; with OUT, each goes into a file
of its own there. Needs Linux and the packages that `lacking` names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from desktop.preflight import load_plugin
from tests.packaging.screen import Screen

__all__ = ["lacking", "main", "play"]

_SESSION = Path(__file__).resolve().parents[1] / "e2e" / "screen_reader.py"
_PROGRAMS = ("Xvfb", "dbus-run-session", "matchbox-window-manager")
_PYTHON = "/usr/bin/python3"
_PACKAGES = "xvfb dbus at-spi2-core gir1.2-atspi-2.0 python3-gi matchbox-window-manager"


def lacking() -> str:
    """Why no screen reader can be played here; "" if one can."""
    if not sys.platform.startswith("linux"):
        return "AT-SPI is Linux's"
    if not all(map(shutil.which, _PROGRAMS)) or not Path(_PYTHON).exists():
        return f"needs Debian's packages {_PACKAGES}"
    asked = [_PYTHON, "-c", "import gi; gi.require_version('Atspi', '2.0')"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        return f"needs Debian's packages {_PACKAGES}"
    try:
        load_plugin("libqxcb.so")
    except OSError as error:
        return f"Qt opens no window on X11: {error}"
    return ""


def play(folder: Path) -> dict[str, Any]:
    """Play the session with the data in `folder`; returns what it reports. Raises AssertionError if a step
    cannot be done.
    """
    screen = Screen()
    try:
        ran = subprocess.run(
            ["dbus-run-session", "--", _PYTHON, "-B", str(_SESSION), sys.executable, str(folder)],
            capture_output=True, text=True, timeout=280, env={**os.environ, "DISPLAY": screen.display},
            check=False,
        )  # fmt: skip
    finally:
        screen.close()
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run; returns the exit code."""
    if reason := lacking():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        trees: dict[str, str] = play(Path(folder))["trees"]
    for name, text in trees.items():
        if sys.argv[1:]:
            file = Path(sys.argv[1]) / f"{name.replace(' ', '-')}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n", "utf-8")
        else:
            print(f"== {name}\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
