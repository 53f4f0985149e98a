"""Keeps the rows of a message list in step with a `MessagesModel`."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QObject, Signal

from desktop.items.chats.messages import MessagesModel
from desktop.views.transcript.message_list import MessageList

__all__ = ["ModelSync"]


class ModelSync(QObject):
    """Text of growing replies, which whoever owns this hands to `append`, is collected until `sync`.

    `changed`: there is something to show; `renewed`: the whole conversation was exchanged; `sent`: the user's
    own message was added at the end.
    """

    changed = Signal()
    renewed = Signal()
    sent = Signal()

    def __init__(self, messages: MessageList, model: MessagesModel, parent: QObject) -> None:
        super().__init__(parent)
        self.model = model
        self._messages = messages
        self._grown: set[int] = set()
        self._connections = [
            model.modelReset.connect(self.reset),
            model.rowsInserted.connect(self._inserted),
            model.rowsAboutToBeRemoved.connect(self._removing),
            model.rowsRemoved.connect(self.changed),
            model.dataChanged.connect(self._replaced),
        ]

    def reset(self) -> None:
        """Take all messages of the model."""
        self._grown.clear()
        self._messages.reset(self.model.items())
        self.renewed.emit()

    def stop(self) -> None:
        """Stop listening to the model."""
        for connection in self._connections:
            QObject.disconnect(connection)
        self._connections.clear()
        self.deleteLater()

    def append(self, position: int, text: str) -> None:
        """Take text that was appended to the message at `position`."""
        self._messages.all[position].append(self.model.items()[position], text)
        self._grown.add(position)

    def sync(self) -> None:
        """Make the rows of messages that have grown."""
        for position in self._grown:
            self._messages.sync(position)
        self._grown.clear()

    def _inserted(self, parent: QModelIndex, first: int, last: int) -> None:
        items = self.model.items()[first : last + 1]
        self.sync()
        self._messages.insert(first, items)
        if items[-1].role == "user" and last == self.model.rowCount() - 1:
            self.sent.emit()
        self.changed.emit()

    def _removing(self, parent: QModelIndex, first: int, last: int) -> None:
        self.sync()
        self._messages.remove(first, last)

    def _replaced(self, top: QModelIndex, bottom: QModelIndex) -> None:
        self.sync()
        for position in range(top.row(), bottom.row() + 1):
            self._messages.update(position, self.model.items()[position])
        self.changed.emit()
