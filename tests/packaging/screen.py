"""A screen without a monitor, and a hand that types into its windows (Xvfb, xdotool)."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from PySide6.QtGui import QImage

__all__ = ["Screen", "until"]

_LOOK_S = 0.05
_KEY_MS = "15"
_HEAD_BYTES, _COLOUR_BYTES = 100, 12
_STILL = 6
_BLINK_BYTES = 4096
Found = TypeVar("Found")


def until(look: Callable[[], Found], what: str, seconds: float = 60.0) -> Found:
    """What `look` returns once it is true. Raises AssertionError, which names `what`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(_LOOK_S)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def _differ(one: bytes, other: bytes) -> bool:
    """Whether more than a text cursor differs."""
    return (
        int(np.count_nonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))) > _BLINK_BYTES
    )


class Screen:
    """An X server of its own; windows are found by their titles (regular expressions)."""

    def __init__(self, size: str = "1280x860") -> None:
        self._frames = Path(tempfile.mkdtemp(prefix="screen-"))
        ready, tell = os.pipe()
        self._server = subprocess.Popen(
            [
                "Xvfb", "-displayfd", str(tell), "-screen", "0", f"{size}x24", "-nolisten", "tcp", "-ac",
                "-noreset", "-fbdir", self._frames,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(tell,),
        )  # fmt: skip
        os.close(tell)
        with open(ready, encoding="ascii") as answer:
            number = answer.readline().strip()
        assert number, "the X server does not start"
        self.display = f":{number}"

    def close(self) -> None:
        """End the server."""
        self._server.terminate()
        self._server.wait()
        shutil.rmtree(self._frames)

    def windows(self, title: str) -> list[str]:
        """The visible windows with such a title."""
        return self._do("search", "--onlyvisible", "--name", title).split()

    def wait_for(self, title: str, seconds: float = 60.0) -> str:
        """The newest window with such a title, once it is there."""
        return until(lambda: self.windows(title), f"a window “{title}”", seconds)[-1]

    def wait_gone(self, title: str, seconds: float = 30.0) -> None:
        """Return when no window has such a title."""
        until(lambda: not self.windows(title), f"the end of the window “{title}”", seconds)

    def keys(self, title: str, *keys: str) -> None:
        """Press keys in a window, such as "ctrl+k"."""
        self._focus(title)
        self._do("key", "--delay", _KEY_MS, *keys)

    def write(self, title: str, text: str) -> None:
        """Type a text into a window."""
        self._focus(title)
        self._do("type", "--delay", _KEY_MS, text)

    def settle(self, seconds: float = 20.0) -> None:
        """Return when the screen has not changed for a third of a second (a text cursor may blink)."""
        same, before, end = 0, b"", time.monotonic() + seconds
        while same < _STILL and time.monotonic() < end:
            time.sleep(_LOOK_S)
            now = (self._frames / "Xvfb_screen0").read_bytes()
            differ = len(now) != len(before) or _differ(now, before)
            same, before = (0 if differ else same + 1), now

    def click_in(self, title: str, x: int, y: int) -> None:
        """Click in a window, so many pixels from its upper left corner, or if negative its lower right."""
        shown = self._do("getwindowgeometry", "--shell", self.wait_for(title))
        place = {name: int(value) for name, value in re.findall(r"^([A-Z]+)=(\d+)$", shown, re.MULTILINE)}
        right, down = x % place["WIDTH"], y % place["HEIGHT"]
        self._do("mousemove", str(place["X"] + right), str(place["Y"] + down), "click", "1")

    def is_painted(self) -> bool:
        """Whether anything but the black background is seen, at the left edge, where there is no pointer."""
        content = np.memmap(self._frames / "Xvfb_screen0", np.uint8, "r")
        head, width, height, row, colours = self._numbers(content[:_HEAD_BYTES].tobytes())
        rows = content[head + colours * _COLOUR_BYTES :][: row * height].reshape(height, row)
        return bool(rows[:: height // 16, : width // 8].any())

    def picture(self, file: Path) -> None:
        """Write what the screen shows as a PNG, from the server's frame buffer."""
        content = (self._frames / "Xvfb_screen0").read_bytes()
        head, width, height, row, colours = self._numbers(content)
        pixels = content[head + colours * _COLOUR_BYTES :]
        image = QImage(pixels, width, height, row, QImage.Format.Format_RGB32)
        assert image.save(str(file)), f"{file} cannot be written"

    @staticmethod
    def _numbers(content: bytes) -> list[int]:
        """The size of the head, width, height, bytes of a row, and colours of a frame buffer in XWD format:
        https://gitlab.freedesktop.org/xorg/proto/xorgproto/-/blob/master/include/X11/XWDFile.h
        """
        numbers = struct.unpack_from(">25I", content)
        return [numbers[place] for place in (0, 4, 5, 12, 19)]

    def _focus(self, title: str) -> None:
        self._do("windowfocus", "--sync", self.wait_for(title))

    def _do(self, *words: str) -> str:
        done = subprocess.run(
            ["xdotool", *words], env={**os.environ, "DISPLAY": self.display}, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        return done.stdout
