"""What all row widgets of a transcript share: their parent, their sources of colours and pictures, and the
signals that they emit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from desktop.views.transcript.rendering.code_highlight import CodeColours
from desktop.views.transcript.rendering.image_loader import ImageLoader
from desktop.views.transcript.row_widgets.avatars import Avatars
from desktop.views.transcript.tokens.colours import TokenView

__all__ = ["RowContext", "RowSignals"]


class RowSignals(QObject):
    """What the user does in rows. Rows are passed as `object`; they are `Row`s.

    Signals:
        action(str name, int message): a button of the message was clicked.
        focused(row): a control of the row has the keyboard.
        outdated(row): the row must be measured again.
        folded(row): the head of a thought was clicked.
        more_requested(row): the user wants to see more of a long message.
        code_copied(row), code_saved(row), wrap_changed(row): a button of a code block was clicked.
        edit_saved(int message, str text, bool answer), edit_cancelled(int message): an inline edit is over.
        token_chosen(row, int token): Enter was pressed on a token.
        token_moved(row, int token): the keyboard's cursor is on another token; -1 when the row lost the
        keyboard.
        token_left(row, int step): the cursor moved past the end of the row (1) or before its start (-1).
    """

    action = Signal(str, int)
    focused = Signal(object)
    outdated = Signal(object)
    folded = Signal(object)
    more_requested = Signal(object)
    code_copied = Signal(object)
    code_saved = Signal(object)
    wrap_changed = Signal(object)
    edit_saved = Signal(int, str, bool)
    edit_cancelled = Signal(int)
    token_chosen = Signal(object, int)
    token_moved = Signal(object, int)
    token_left = Signal(object, int)


class RowContext(NamedTuple):
    """Row widgets are made as children of `parent`.

    `edit_words(message id)` is a sentence about what editing a message costs; `offered` are the
    actions for messages.
    """

    parent: QWidget
    signals: RowSignals
    colours: CodeColours
    pictures: ImageLoader
    avatars: Avatars
    tokens: TokenView
    edit_words: Callable[[int], str]
    offered: frozenset[str]
