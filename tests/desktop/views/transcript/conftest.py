"""A transcript on the (offscreen) screen, shown and closed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript import TranscriptView

Show = Callable[..., tuple[TranscriptView, MessagesModel]]


@pytest.fixture
def show(qtbot: QtBot) -> Iterator[Show]:
    """`show(items, width, height, trace)`: a settled view of these messages, and its model; `trace` is the
    trace of all replies.
    """
    made: list[TranscriptView] = []

    def make(
        items: Sequence[MessageItem] = (),
        width: int = 700,
        height: int = 500,
        trace: TokenTrace | None = None,
    ) -> tuple[TranscriptView, MessagesModel]:
        model = MessagesModel()
        model.trace = lambda message_id: trace
        model.reset(items)
        view = TranscriptView(model)
        view.resize(width, height)
        view.show()
        qtbot.waitExposed(view)
        qtbot.waitUntil(view.settled)
        made.append(view)
        return view, model

    yield make
    for view in made:
        view.close()
        view.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
