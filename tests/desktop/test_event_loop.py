"""The order of a start: the first paint comes before asyncio; a window closed by then ends the program."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import os, pathlib, sys
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from desktop import app

after_paint = app.Desktop._after_paint

def painted(desktop, *arguments):
    print("asyncio" in sys.modules, "qasync" in sys.modules)
    after_paint(desktop, *arguments)
    {deed}

app.Desktop._after_paint = painted
sys.exit(app.run(data=pathlib.Path({folder!r})))
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "deed",
    ["desktop.window.close()", "app.QTimer.singleShot(300, desktop.window, lambda: desktop.window.close())"],
)
def test_the_first_paint_needs_no_asyncio(tmp_path, deed: str) -> None:
    code = CODE.format(deed=deed, folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False False\n"), done.stderr
    assert not (tmp_path / "logs" / "running").exists()  # it ended well
