"""Walks every page, pane and dialog in a language with longer words: which texts are cut off, or English?

    python -m tests.tools.clipped_pages [--mirrored] [--pictures FOLDER]

The pages are those of `tests.tools.pictures`; the language is that of `tests.pseudo`. Prints a line of JSON:
the labels and buttons that are narrower than their text, the texts that have a translation but are shown in
English, each with the first page that has it, and the pages that were reached. Labels that shorten their text
themselves, and say it whole in a tip, are no fault.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

__all__ = ["clipped", "main", "untranslated"]

_SIZE = (1180, 760)
_NAMES = {"Work", "Language", "text"}
"""Texts that are also names which a user gave, on these pages."""
_SLACK = 2
"""Pixels that a style may take from the room that it asked for."""


def clipped(window: QWidget) -> Iterator[str]:
    """The texts in a window that are narrower than they need."""
    from PySide6.QtCore import Qt
    from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QLabel

    from desktop.views.widgets.elided_label import ElidedLabel
    from desktop.views.widgets.wrapping_text import WrappingCheckBox

    for widget in (*window.findChildren(QLabel), *window.findChildren(QAbstractButton)):
        text = widget.text()
        if not widget.isVisible() or not any(letter.isalpha() for letter in text):
            continue
        if (
            isinstance(widget, ElidedLabel | WrappingCheckBox)
            or not widget.visibleRegion().boundingRect().width()
        ):
            continue
        if isinstance(widget, QLabel) and widget.wordWrap():
            needed, has = widget.heightForWidth(widget.width()), widget.height()
        elif (
            isinstance(widget, QAbstractButton)
            and widget.sizePolicy().expandingDirections() & Qt.Orientation.Horizontal
        ):
            needed, has = widget.minimumSizeHint().width(), widget.width()
        else:
            needed, has = widget.sizeHint().width(), widget.width()
        if needed > has + _SLACK:
            yield f"{type(widget).__name__} {text!r} has {has} of {needed} pixels"
    for box in window.findChildren(QAbstractSpinBox):
        text, around = box.text(), box.lineEdit().textMargins()
        if not box.isVisible() or not any(letter.isalpha() for letter in text):
            continue
        needed = box.fontMetrics().horizontalAdvance(text) + around.left() + around.right()
        if needed > (has := box.lineEdit().width()):
            yield f"{type(box).__name__} {text!r} has {has} of {needed} pixels"


def untranslated(window: QWidget, known: Collection[str]) -> Iterator[str]:
    """The texts, names and tips in a window that are those of the source, which are `known`."""
    from PySide6.QtWidgets import (
        QAbstractButton,
        QComboBox,
        QDialogButtonBox,
        QFileDialog,
        QLabel,
        QLineEdit,
        QMenu,
        QWidget,
    )  # fmt: skip

    for widget in (window, *window.findChildren(QWidget)):
        if isinstance(widget.window(), QFileDialog) or isinstance(widget.parent(), QDialogButtonBox):
            continue  # the words are Qt's, which has its own translations
        shown = [
            widget.windowTitle(),
            widget.toolTip(),
            widget.accessibleName(),
            widget.accessibleDescription(),
        ]
        if isinstance(widget, QLabel | QAbstractButton):
            shown.append(widget.text())
        elif isinstance(widget, QLineEdit):
            shown.append(widget.placeholderText())
        elif isinstance(widget, QComboBox):
            shown += [widget.itemText(number) for number in range(widget.count())]
        elif isinstance(widget, QMenu):
            shown.append(widget.title())
        shown += [action.text() for action in widget.actions()]
        for text in shown:
            if text.strip() in known:
                yield f"{type(widget).__name__} {text.strip()!r}"


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    parser = argparse.ArgumentParser(description="Finds texts that longer words cut off.")
    parser.add_argument("--mirrored", action="store_true", help="from right to left")
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of every page")
    options = parser.parse_args(arguments)
    from PySide6.QtWidgets import QMenu

    import desktop.app
    from desktop.application import make_application
    from tests.pseudo import Pseudo, pseudo_language
    from tests.tools.languages import texts
    from tests.tools.pictures import chat_pages, dialog_pages, window_pages, writing_pages  # noqa: F401
    from tests.tools.pictures.page_list import PAGES
    from tests.tools.pictures.stage import Stage

    desktop.app.apply_language = lambda _app, _choice: False  # the one of this walk stays
    app = make_application(["inglenook"])
    found: dict[str, str] = {}
    left: dict[str, str] = {}
    known = {text for each in texts() for text in each if len(text) > 3 and text not in _NAMES}
    known = {text for text in known if Pseudo().gettext(text) != text}
    reached: list[str] = []
    with tempfile.TemporaryDirectory() as folder, pseudo_language(options.mirrored):
        stage = Stage(app, Path(folder), _SIZE, "light", 100)
        for name, page in PAGES.items():
            try:
                page(stage)
            except (
                AssertionError,
                AttributeError,
                LookupError,
                StopIteration,
                TimeoutError,
                TypeError,
            ) as error:
                print(f"{name} was not reached: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            reached.append(name)
            stage.spin(0.05)
            windows = [
                window
                for window in app.topLevelWidgets()
                if window.isVisible() and not isinstance(window, QMenu)
            ]
            with suppress(TimeoutError):  # on a busy machine a pane may still be opening
                stage.until(lambda shown=windows: not any(any(clipped(window)) for window in shown), 3)
            for window in windows:
                for fault in clipped(window):
                    found.setdefault(fault, name)
                for fault in untranslated(window, known):
                    left.setdefault(fault, name)
                if options.pictures is not None:
                    window.grab().save(str(options.pictures / f"{name}-{type(window).__name__}.png"))
        stage.shut()
        stage.window.close()
        stage.spin(0.1)
    faults = {
        kind: [f"{page}: {text}" for text, page in each.items()]
        for kind, each in (("clipped", found), ("untranslated", left))
    }
    print(json.dumps({**faults, "reached": reached}))
    return 1 if found or left else 0


if __name__ == "__main__":
    sys.exit(main())
