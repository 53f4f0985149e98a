"""Walks every page, pane and dialog of the program, and says what a screen reader or a finger would miss.

    python -m tests.tools.accessible_pages [--focus]
    python -m tests.tools.accessible_pages --screen WIDTH HEIGHT PERCENT [--language CODE] [--pictures FOLDER]

The pages are those of `tests.tools.pictures`; the rules stand in `tests.desktop.accessible`. With --focus,
the faults are also controls that look the same with the keyboard (`tests.desktop.focus_ring`). With a size of
the screen and of the text, they are what is cut off or out of reach (`tests.desktop.clipped`).
Prints a line of JSON: the faults, each with the first page that has it, and the pages that were reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from tests.tools.pictures.stage import Stage

__all__ = ["main"]

_SIZE = (1180, 760)
_TRIES, _SETTLES = 4, 0.3
"""How often a page with faults is checked again, after how many seconds."""


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Finds what a screen reader or a finger would miss.")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--focus", action="store_true", help="also controls that show no focus")
    kind.add_argument(
        "--screen", nargs=3, type=int, metavar=("WIDTH", "HEIGHT", "PERCENT"),
        help="what is cut off or out of reach on a screen of this size, with text of this size",
    )  # fmt: skip
    parser.add_argument(
        "--language", default="", help="the language's code, such as de (default: the system's)"
    )
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of every page")
    parser.add_argument(
        "--only", nargs="*", default=[], help="pictures of the pages whose names have one of these words"
    )
    return parser.parse_args(arguments)


def _shown() -> Iterator[QWidget]:
    """The windows and popups on the screen, without menus."""
    from PySide6.QtWidgets import QApplication, QMenu

    for window in QApplication.topLevelWidgets():
        if window.isVisible() and not isinstance(window, QMenu):
            yield window


def _lasting(stage: Stage, check: Callable[[QWidget], Iterable[str]]) -> list[str]:
    """What a check finds in the windows on the screen; on a busy machine a page may not be laid out yet."""
    for _unused in range(_TRIES):
        found = [fault for window in _shown() for fault in check(window)]
        if not found:
            break
        stage.spin(_SETTLES)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    options = _options(arguments)
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if options.language:  # as that of the system, which the program follows
        os.environ |= {"LC_ALL": f"{options.language}.UTF-8", "LANGUAGE": options.language}
    from PySide6.QtWidgets import QFileDialog

    from desktop.app import make_application
    from tests.desktop.accessible import faults, popup_faults
    from tests.desktop.clipped import clipped, lost
    from tests.desktop.focus_ring import unseen_focus
    from tests.tools.pictures import chat_pages, dialog_pages, window_pages, writing_pages  # noqa: F401
    from tests.tools.pictures.page_list import PAGES
    from tests.tools.pictures.stage import Stage

    width, height, percent = options.screen or (*_SIZE, 100)

    def wrong(window: QWidget) -> Iterator[str]:
        if not options.screen:
            if options.focus and window is active and name != "drop_hint":  # it covers the window
                yield from unseen_focus(window)
            yield from popup_faults(window)
            return
        stage.fit(window)
        if isinstance(window, QFileDialog):  # only where the system has none of its own
            return
        if window.width() > width or window.height() > height:
            yield f"{type(window).__name__} needs {window.width()}x{window.height()} px"
        yield from (*faults(window), *clipped(window), *lost(window))

    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    app = make_application(["inglenook"])
    found: dict[str, str] = {}
    reached: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), (width, height), "light", percent)
        for name, page in PAGES.items():
            try:
                page(stage)
            except (AssertionError, AttributeError, IndexError, TimeoutError, TypeError) as error:
                found[f"not reached: {type(error).__name__}: {error}"] = name
                continue
            reached.append(name)
            stage.spin(0.05)
            active = app.activeWindow()
            # first what changes nothing: a popup may close when the focus goes elsewhere
            for check in (wrong,) if options.screen else (faults, wrong):
                for fault in _lasting(stage, check):
                    found.setdefault(fault, name)
            for window in _shown() if options.pictures else ():
                if any(word in name for word in options.only or [""]):
                    window.grab().save(str(options.pictures / f"{name}-{type(window).__name__}.png"))
        stage.shut()
        stage.window.close()
        stage.spin(0.1)
    print(json.dumps({"faults": [f"{page}: {fault}" for fault, page in found.items()], "reached": reached}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
