"""The row above a message: who wrote it, and which model."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.row_widgets.small import HeaderRow
from tests.desktop.views.transcript.conftest import Show

pytestmark = pytest.mark.gui
REPLY = MessageItem(2, "assistant", "Sow them in March.")


def header(view: TranscriptView) -> HeaderRow:
    view.flush()
    return next(row for row in view.pool.widgets() if isinstance(row, HeaderRow))


def inked(image: QImage, columns: range) -> bool:
    """Whether anything but the ground is painted in these columns."""
    ground = image.pixel(image.width() // 2, 0)
    return any(image.pixel(x, y) != ground for x in columns for y in range(image.height()))


@pytest.mark.parametrize("rightward", [False, True])
def test_the_name_of_the_model_stands_beside_the_author(show: Show, rightward: bool) -> None:
    view, model = show([REPLY])
    if rightward:
        view.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    before = header(view).grab().toImage()
    model.replace(REPLY.id, dataclasses.replace(REPLY, model="m" * 400))
    row = header(view)
    after = row.grab().toImage()
    beside = range(150, before.width() - 150)
    assert not inked(before, beside)
    assert inked(after, beside)
    author = range(before.width() - 40, before.width()) if rightward else range(40)
    assert all(before.copy(x, 0, 1, -1) == after.copy(x, 0, 1, -1) for x in author)
    assert (row.accessibleName(), row.accessibleDescription()) == ("Assistant", "m" * 400)
