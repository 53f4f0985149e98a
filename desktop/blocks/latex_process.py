"""The process that turns formulas into SVG for a window: [latex, size, display] comes in, the SVG goes
out, each as a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TextIO

from desktop.blocks.latex import math_svg

__all__ = ["main"]

_NICE = 5


def main(lines: TextIO = sys.stdin, out: TextIO = sys.stdout) -> None:
    """Answer each line until the input ends."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICE)
    for line in lines:
        latex, size, display = json.loads(line)
        out.write(json.dumps(math_svg(latex, size, display)) + "\n")
        out.flush()
