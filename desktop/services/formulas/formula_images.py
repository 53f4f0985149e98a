"""Images of formulas, drawn in another process (`formula_process`) that is kept for the next formulas."""

from __future__ import annotations

import atexit
import base64
import importlib
import logging
import threading
import zlib
from typing import NamedTuple

from desktop.services.system.helper_process import HelperEnded, HelperProcess

__all__ = ["HELPER", "FormulaImage", "formula_image", "give_up", "rest"]

log = logging.getLogger(__name__)

_MODULE = "desktop.services.formulas.formula_process"
"""Imported here only if no process can be started, because it needs QtSvg and the fonts of formulas."""
HELPER = HelperProcess(_MODULE)
_one_at_a_time = threading.Lock()
atexit.register(HELPER.close)


class FormulaImage(NamedTuple):
    """`pixels` are `device_height` rows of `device_width` pixels of premultiplied ARGB, 4 bytes each.

    The formula is `width` by `height` logical pixels, `descent` of them below the baseline.
    """

    pixels: bytes
    device_width: int
    device_height: int
    width: int
    height: int
    descent: int


def formula_image(latex: str, size: float, colour: str, display: bool, ratio: float) -> FormulaImage | None:
    """What `formula_process.draw` returns; None also if the formula ended the process.

    Can be called on any thread but the window's.
    """
    with _one_at_a_time:
        try:
            if not HELPER.start():
                drawn: FormulaImage | None = importlib.import_module(_MODULE).draw(
                    latex, size, colour, display, ratio
                )
                return drawn
            answer = HELPER.ask((latex, size, colour, display, ratio))
        except HelperEnded as error:
            log.warning(
                "a formula of %d characters ended the process that draws formulas: %s", len(latex), error
            )
            return None
    # most pixels are empty: what is decoded with the interpreter lock held is small
    return FormulaImage(zlib.decompress(base64.b64decode(answer[0])), *answer[1:]) if answer else None


def rest() -> None:
    """End the process until the next formula, to free its memory."""
    with _one_at_a_time:
        HELPER.stop()


def give_up() -> None:
    """Abandon the formula being drawn, which then gives None. Can be called on any thread."""
    HELPER.stop()
