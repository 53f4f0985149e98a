"""Formulas as SVG, worked out in another process: some 3 to 30 ms of Python each, which the window's
thread would wait for.
"""

from __future__ import annotations

import atexit
import logging
import threading

from desktop.services.system.helper_process import HelperEnded, HelperProcess

__all__ = ["formula_svg", "give_up", "rest"]

log = logging.getLogger(__name__)

_HELPER = HelperProcess("desktop.blocks.latex_process")
_one_at_a_time = threading.Lock()
atexit.register(_HELPER.close)


def formula_svg(latex: str, size: float, display: bool) -> str:
    """As `math_svg`; also empty for a formula at which the process ended.

    From any thread but the window's.
    """
    with _one_at_a_time:
        try:
            if not _HELPER.start():
                from desktop.blocks.latex import math_svg

                return math_svg(latex, size, display)
            return str(_HELPER.ask((latex, size, display)))
        except HelperEnded as error:
            log.warning("a formula of %d characters ended the process that draws them: %s", len(latex), error)
            return ""


def rest() -> None:
    """No formula is expected for now: the process gives its memory back, and the next formula starts
    another one.
    """
    with _one_at_a_time:
        _HELPER.stop()


def give_up() -> None:
    """Stop the process at the formula it has; that one is empty. From any thread."""
    _HELPER.stop()
