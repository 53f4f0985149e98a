"""The list of pages that `tests.tools.pictures` takes pictures of, and helpers of their functions."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QApplication, QMenu, QWidget

from tests.tools.pictures.stage import Stage

__all__ = ["PAGES", "act", "page", "top"]

Page = Callable[[Stage], QWidget | None]
PAGES: dict[str, Page] = {}
"""By name, in the order they are taken: what brings the page up and returns the widget to be pictured
(None: the stage took it).
"""


def page(found: Page) -> Page:
    """Add a page to the list."""
    PAGES[found.__name__] = found
    return found


def act(stage: Stage, name: str) -> None:
    """Choose a command in the menus."""
    stage.window.actions_by_name[name].trigger()
    stage.spin()


def top(stage: Stage) -> QWidget:
    """The latest window or popup, no larger than the screen."""
    shown = [
        w
        for w in QApplication.topLevelWidgets()
        if w.isVisible() and w is not stage.window and not isinstance(w, QMenu)
    ]
    assert shown, "nothing was opened"
    return stage.fit(shown[-1])
