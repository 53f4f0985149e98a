"""The class of row widget for each kind of row."""

from __future__ import annotations

from collections.abc import Callable

from desktop.views.transcript.row_widgets.attachment import AttachmentRow
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.call import CallRow
from desktop.views.transcript.row_widgets.code import CodeRow
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.transcript.row_widgets.footer import FooterRow
from desktop.views.transcript.row_widgets.math import MathRow
from desktop.views.transcript.row_widgets.picture import SentPictureRow
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
from desktop.views.transcript.rows import RowKind
from desktop.views.transcript.tokens.row import TokenRow

__all__ = ["ROW_WIDGETS"]

ROW_WIDGETS: dict[RowKind, Callable[[RowContext], RowWidget]] = {
    RowKind.HEADER: HeaderRow,
    RowKind.TEXT: TextRow,
    RowKind.BUBBLE: BubbleRow,
    RowKind.TOKENS: TokenRow,
    RowKind.CODE: CodeRow,
    RowKind.TABLE: TableRow,
    RowKind.MATH: MathRow,
    RowKind.RULE: RuleRow,
    RowKind.THOUGHT: ThoughtRow,
    RowKind.CALL: CallRow,
    RowKind.WAITING: WaitingRow,
    RowKind.NOTICE: NoticeRow,
    RowKind.FOOTER: FooterRow,
    RowKind.EDITOR: EditorRow,
    RowKind.ATTACHMENT: AttachmentRow,
    RowKind.PICTURE: SentPictureRow,
    RowKind.MORE: MoreRow,
}
