"""Makes the row widgets and connects what can be done in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtWidgets import QWidget

from desktop.views.transcript.rendering.code_highlight import CodeColours
from desktop.views.transcript.rendering.image_loader import ImageLoader
from desktop.views.transcript.row_widgets.attachment import AttachmentRow
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.code import CodeRow
from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.transcript.row_widgets.footer import FooterRow
from desktop.views.transcript.row_widgets.math import MathRow
from desktop.views.transcript.row_widgets.sender import Speaker
from desktop.views.transcript.row_widgets.small import (
    HeaderRow,
    MoreRow,
    NoticeRow,
    RuleRow,
    ThoughtRow,
    WaitingRow,
)
from desktop.views.transcript.row_widgets.table import TableRow
from desktop.views.transcript.row_widgets.text import BubbleRow, TextRow
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.tokens.inspector import Inspection
from desktop.views.transcript.tokens.row import TokenRow

__all__ = ["RowFactory", "RowHooks"]

_PLAIN: dict[RowKind, type[RowWidget]] = {
    RowKind.BUBBLE: BubbleRow,
    RowKind.RULE: RuleRow,
    RowKind.WAITING: WaitingRow,
    RowKind.NOTICE: NoticeRow,
}
_PICTURED: dict[RowKind, type[TextRow | TableRow | MathRow]] = {
    RowKind.TEXT: TextRow,
    RowKind.TABLE: TableRow,
    RowKind.MATH: MathRow,
}


@dataclass(frozen=True)
class RowHooks:
    """What rows call: methods of the view."""

    copy: Callable[[str], None]
    save: Callable[[str, str], None]
    act: Callable[[str, int], None]
    focus: Callable[[Row], None]
    fold: Callable[[Row], None]
    more: Callable[[Row], None]
    save_edit: Callable[[int, str, bool], None]
    cancel_edit: Callable[[int], None]
    remeasure: Callable[[Row], None]
    wrap: Callable[[Row], None]
    code: Callable[[Row], str]
    edit_words: Callable[[int], str]


class RowFactory:
    """Calling it with a kind gives a new widget below `parent`."""

    def __init__(
        self,
        parent: QWidget,
        colours: CodeColours,
        pictures: ImageLoader,
        hooks: RowHooks,
        inspection: Inspection,
    ) -> None:
        self._parent = parent
        self._pictures = pictures
        self._colours = colours
        self._hooks = hooks
        self._inspection = inspection
        self._speaker = Speaker(parent)

    def __call__(self, kind: RowKind) -> RowWidget:
        hooks = self._hooks
        if kind is RowKind.CODE:
            code = CodeRow(self._parent, self._colours)
            code.copied.connect(hooks.copy)
            code.saved.connect(hooks.save)
            code.wrap_changed.connect(hooks.wrap)
            code.whole = hooks.code
            code.focused.connect(hooks.focus)
            return code
        if kind in _PICTURED:
            text = _PICTURED[kind](self._parent, self._pictures)
            text.outdated.connect(hooks.remeasure)
            return text
        if kind is RowKind.HEADER:
            return HeaderRow(self._parent, self._speaker)
        if kind is RowKind.FOOTER:
            footer = FooterRow(self._parent)
            footer.edit_words = hooks.edit_words
            footer.action.connect(hooks.act)
            footer.focused.connect(hooks.focus)
            return footer
        if kind is RowKind.ATTACHMENT:
            file = AttachmentRow(self._parent)
            file.action.connect(hooks.act)
            file.focused.connect(hooks.focus)
            return file
        if kind is RowKind.THOUGHT:
            thought = ThoughtRow(self._parent)
            thought.toggled.connect(hooks.fold)
            thought.focused.connect(hooks.focus)
            return thought
        if kind is RowKind.MORE:
            more = MoreRow(self._parent)
            more.asked.connect(hooks.more)
            more.focused.connect(hooks.focus)
            return more
        if kind is RowKind.TOKENS:
            tokens = TokenRow(self._parent, self._inspection.shared)
            tokens.moved.connect(self._inspection.cursor_moved)
            tokens.left.connect(self._inspection.cursor_left)
            tokens.chosen.connect(self._inspection.chosen)
            return tokens
        if kind is RowKind.EDITOR:
            editor = EditorRow(self._parent)
            editor.edit_words = hooks.edit_words
            editor.saved.connect(hooks.save_edit)
            editor.cancelled.connect(hooks.cancel_edit)
            editor.resized.connect(hooks.remeasure)
            return editor
        return _PLAIN[kind](self._parent)
