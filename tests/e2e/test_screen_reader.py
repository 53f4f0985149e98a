"""A whole session by AT-SPI alone, in a process of its own, as a screen reader's user has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.screen import Screen

SESSION = Path(__file__).with_name("screen_reader.py")
PROGRAMS = ("Xvfb", "dbus-run-session", "matchbox-window-manager")
SYSTEM_PYTHON = "/usr/bin/python3"
PACKAGES = "xvfb dbus at-spi2-core gir1.2-atspi-2.0 python3-gi matchbox-window-manager"


def lacking() -> str:
    """Why no screen reader can be played here; "" if one can."""
    if not sys.platform.startswith("linux"):
        return "AT-SPI is Linux's"
    if not all(map(shutil.which, PROGRAMS)):
        return f"needs Debian's packages {PACKAGES}"
    asked = [SYSTEM_PYTHON, "-c", "import gi; gi.require_version('Atspi', '2.0')"]
    if not Path(SYSTEM_PYTHON).exists() or subprocess.run(asked, capture_output=True, check=False).returncode:
        return f"needs Debian's packages {PACKAGES}"
    return ""


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")
def test_a_whole_session_by_a_screen_reader_alone(tmp_path: Path) -> None:
    screen = Screen()
    environment = {**os.environ, "DISPLAY": screen.display}
    try:
        ran = subprocess.run(
            ["dbus-run-session", "--", SYSTEM_PYTHON, "-B", str(SESSION), sys.executable, str(tmp_path)],
            capture_output=True, text=True, timeout=240, env=environment, check=False,
        )  # fmt: skip
    finally:
        screen.close()
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["end"].startswith("The reply has ended: stopped at the end marker, 41 tokens")
    assert "Generating the reply" in found["heard"]
    assert found["lines"] == [
        "Sowing peas", "Sow them when the soil is at 5 °C. Cover the bed with fleece.", "crop", "depth",
        "peas", "4 cm", "beans", "6 cm", "print(4)", "See the calendar.",
    ]  # fmt: skip
    assert found["words"][:5] == ["Sowing", "peas", "Sow", "them", "when"]
    assert (found["heading"], found["code"], found["link"]) == (
        "Heading level 1: Sowing peas", "Code block in python, 1 line", "Link: the calendar",
    )  # fmt: skip
    assert found["cells"] == [["crop", "depth"], ["peas", "4 cm"], ["beans", "6 cm"]]
    assert found["edited"] == "Carrots want warmer soil."
    assert found["regenerated"] == "Seven degrees are enough for carrots."
    temperatures = [line.split()[1] for line in found["printed"] if line.startswith("temperature")]
    assert temperatures == ["0.7", "0.7", "0.7", "0.25"]
    assert "Message in When should I sow peas?: When should I sow carrots?" in found["hits"]
    assert "When should I sow carrots?" in found["file"]
    assert "Seven degrees are enough" in found["file"]
