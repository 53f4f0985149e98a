"""The sidebar's rows as one flat Qt list model: pinned chats, folders with their chats, other chats
by date.
"""

from __future__ import annotations

import datetime
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QMimeData, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.items.chats.conversations import (
    ID_ROLE,
    NEW_NOTEBOOK,
    UNTITLED,
    ConversationsModel,
    date_group,
    group_start,
)
from desktop.items.row_changes import bring_to
from desktop.items.rows_model import RowsModel
from desktop.store.conversations.folders import Folder
from desktop.store.conversations.records import NOTEBOOK, ConversationSummary
from engine.words import N_, _, ngettext, translate

__all__ = [
    "CHAT",
    "COUNT_ROLE",
    "DEPTH_ROLE",
    "DRAFT_ROLE",
    "FOLDER",
    "FOLDER_ROLE",
    "HEADING",
    "KIND_ROLE",
    "MIME",
    "NOTEBOOK_ROLE",
    "OPEN_ROLE",
    "PINNED",
    "PINNED_ROLE",
    "RUNNING_ROLE",
    "UNSEEN_ROLE",
    "ChatListModel",
    "ChatListRow",
    "dragged",
]  # fmt: skip

HEADING, FOLDER, CHAT = "heading", "folder", "chat"
_ROLE = int(Qt.ItemDataRole.UserRole)
KIND_ROLE = _ROLE + 30
"""`HEADING`, `FOLDER` or `CHAT`."""
FOLDER_ROLE = _ROLE + 31
"""The folder's own id on its row; on a chat's row the id of its folder, 0 for none."""
DEPTH_ROLE = _ROLE + 32
"""The number of folders around the row."""
OPEN_ROLE = _ROLE + 33
"""Whether a folder is open."""
COUNT_ROLE = _ROLE + 34
"""The number of chats in a folder and in the folders inside it."""
PINNED_ROLE = _ROLE + 35
RUNNING_ROLE = _ROLE + 36
"""Whether a reply is being written in the chat."""
DRAFT_ROLE = _ROLE + 37
"""Whether the chat has an unsent draft."""
NOTEBOOK_ROLE = _ROLE + 38
"""Whether the row is a notebook."""
UNSEEN_ROLE = _ROLE + 39
"""Whether a reply has ended in the chat since it was last open."""
MIME = "application/x-inglenook-chats"
PINNED, _FOLDERS = N_("Pinned"), N_("Folders")
_SPARE_ROWS = 100


class ChatListRow(NamedTuple):
    """A heading (`text`), a folder or a chat (`number` is its id); a pinned chat has `text` "Pinned"."""

    kind: str
    number: int
    depth: int = 0
    text: str = ""


class ChatListModel(RowsModel[ChatListRow]):
    """Follows `chats`; `today` is called whenever the rows are arranged. `set_folders` sets the folders."""

    def __init__(
        self,
        chats: ConversationsModel,
        parent: QObject | None = None,
        today: Callable[[], datetime.date] = datetime.date.today,
    ) -> None:
        super().__init__(parent)
        self._chats, self._today = chats, today
        # rows of chats outside all folders: 10,000 are not made again for each change
        self._made: dict[int, ChatListRow] = {}
        self._by_id: dict[int, ConversationSummary] = {}
        self._folders: dict[int, Folder] = {}
        self._counts: dict[int, int] = {}
        self._open: frozenset[int] = frozenset()
        self._drafts: frozenset[int] = frozenset()
        self._running: frozenset[int] = frozenset()
        self._unseen: frozenset[int] = frozenset()
        self._day = today()
        for signal in (chats.modelReset, chats.rowsInserted, chats.rowsRemoved, chats.rowsMoved):
            signal.connect(self._arrange)
        chats.dataChanged.connect(self._changed)
        self._arrange()

    # -- set from outside

    def set_folders(self, folders: Iterable[Folder]) -> None:
        """Set all folders: parents before their contents, siblings in their order."""
        self._folders = {folder.id: folder for folder in folders}
        self._arrange()
        self._tell(row for row in self._rows if row.kind == FOLDER)

    def set_open_folders(self, ids: Iterable[int]) -> None:
        """Set the open folders."""
        self._open = frozenset(ids)
        self._arrange()
        self._tell(row for row in self._rows if row.kind == FOLDER)

    def set_drafts(self, ids: frozenset[int]) -> None:
        """Set the chats with unsent drafts."""
        changed, self._drafts = self._drafts ^ ids, ids
        self._emit_chats(changed)

    def set_running(self, ids: Iterable[int], opened: int = 0) -> None:
        """Set the chats whose replies are being written; what ends in the `opened` one is seen."""
        now = frozenset(ids)
        self._unseen = (self._unseen | self._running - {opened}) - now
        changed, self._running = self._running ^ now, now
        self._emit_chats(changed)

    def see(self, chat: int) -> None:
        """The chat is opened: its replies are seen."""
        if chat in self._unseen:
            self._unseen -= {chat}
            self._emit_chats(frozenset({chat}))

    def refresh_dates(self) -> None:
        """Arrange the rows by date again after midnight."""
        if self._day != self._today():
            self._arrange()

    # -- asked from outside

    @property
    def open_folders(self) -> frozenset[int]:
        """The open folders; some may be gone."""
        return self._open

    def folders(self) -> Sequence[Folder]:
        """All folders, parents before their contents."""
        return tuple(self._folders.values())

    def folder(self, folder_id: int) -> Folder | None:
        """The folder with this id, if there is one."""
        return self._folders.get(folder_id)

    def shown(self) -> Sequence[ChatListRow]:
        """All rows; not to be changed."""
        return self._rows

    def row_of(self, kind: str, number: int) -> int:
        """The row of a chat or folder, or -1."""
        if kind == CHAT and number not in self._by_id:
            return -1
        return next(
            (place for place, row in enumerate(self._rows) if row.number == number and row.kind == kind), -1
        )

    def flags(self, index: QModelIndex | QPersistentModelIndex) -> Qt.ItemFlag:
        """The keyboard skips headings."""
        if not index.isValid() or self._rows[index.row()].kind == HEADING:
            return Qt.ItemFlag.NoItemFlags
        return (
            Qt.ItemFlag.ItemIsEnabled
            | Qt.ItemFlag.ItemIsSelectable
            | Qt.ItemFlag.ItemIsDragEnabled
            | Qt.ItemFlag.ItemIsDropEnabled
        )

    def value(self, row: ChatListRow, role: int) -> object:
        """The text of a row (display, edit, tool tip, accessible text) or one of the roles above."""
        if role == KIND_ROLE:
            return row.kind
        if role == DEPTH_ROLE:
            return row.depth
        if row.kind == CHAT:
            return self._of_chat(row, role)
        return self._of_folder(row, role) if row.kind == FOLDER else row.text if role in _WORDS else None

    def mimeTypes(self) -> list[str]:
        return [MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        """The ids of the dragged chats and folders."""
        rows = [self._rows[index.row()] for index in indexes]
        found = QMimeData()
        content = {kind: [row.number for row in rows if row.kind == kind] for kind in (CHAT, FOLDER)}
        found.setData(MIME, json.dumps(content).encode())
        return found

    def supportedDragActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    # -- parts

    def _of_chat(self, row: ChatListRow, role: int) -> object:
        chat = self._by_id[row.number]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return chat.title or translate(NEW_NOTEBOOK if chat.kind == NOTEBOOK else UNTITLED)
        if role == Qt.ItemDataRole.EditRole:
            return chat.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            states = (
                (chat.kind == NOTEBOOK, _("notebook")),
                (row.text == translate(PINNED), _("pinned")),
                (row.number in self._running, _("a reply is running")),
                (row.number in self._unseen, _("new reply")),
                (row.number in self._drafts, _("draft not sent")),
            )
            return ", ".join(
                [
                    chat.title or translate(NEW_NOTEBOOK if chat.kind == NOTEBOOK else UNTITLED),
                    *(words for holds, words in states if holds),
                ]
            )
        if role == ID_ROLE:
            return chat.id
        if role == FOLDER_ROLE:
            return chat.folder_id or 0
        if role == PINNED_ROLE:
            return bool(chat.pinned)
        if role in (RUNNING_ROLE, UNSEEN_ROLE):
            return row.number in (self._running if role == RUNNING_ROLE else self._unseen)
        if role == NOTEBOOK_ROLE:
            return chat.kind == NOTEBOOK
        return row.number in self._drafts if role == DRAFT_ROLE else None

    def _of_folder(self, row: ChatListRow, role: int) -> object:
        folder, count = self._folders.get(row.number), self._counts.get(row.number, 0)
        if folder is None:  # it is being removed
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole, Qt.ItemDataRole.ToolTipRole):
            return folder.name
        if role == Qt.ItemDataRole.AccessibleTextRole:
            chats = ngettext("{n} chat", "{n} chats", count)
            if row.number in self._open:
                return _("Folder {folder}, {chats}, open", folder=folder.name, chats=chats)
            return _("Folder {folder}, {chats}, closed", folder=folder.name, chats=chats)
        return {FOLDER_ROLE: row.number, OPEN_ROLE: row.number in self._open, COUNT_ROLE: count}.get(role)

    def _arrange(self) -> None:
        """Bring the rows up to date with the fewest changes."""
        self._day = self._today()
        chats, counts = self._chats.summaries(), self._counts
        new = self._build(chats)
        # views still ask for the old content of rows until they are removed
        present = {chat.id: chat for chat in chats}
        self._by_id.update(present)
        if self._rows != new and bring_to(self, self._rows, new):
            self.set_rows(new)
        self._by_id = present
        other = (number for number in self._folders if counts.get(number) != self._counts[number])
        self._tell(ChatListRow(FOLDER, number, self._depth(number)) for number in other)

    def _depth(self, folder_id: int) -> int:
        depth, folder = 0, self._folders[folder_id]
        while folder.parent_id in self._folders and folder.parent_id is not None:
            depth, folder = depth + 1, self._folders[folder.parent_id]
        return depth

    def _build(self, chats: Sequence[ConversationSummary]) -> list[ChatListRow]:
        known = self._folders
        pinned = [ChatListRow(CHAT, chat.id, 0, translate(PINNED)) for chat in chats if chat.pinned]
        loose = [chat for chat in chats if not chat.pinned and chat.folder_id not in known]
        inside: dict[int, list[ChatListRow]] = {}
        for chat in chats if known else ():
            if not chat.pinned and chat.folder_id in known and chat.folder_id is not None:
                inside.setdefault(chat.folder_id, []).append(ChatListRow(CHAT, chat.id, 1))
        rows = [ChatListRow(HEADING, 0, 0, translate(PINNED)), *pinned] if pinned else []
        self._counts = {}
        if known:
            rows.append(ChatListRow(HEADING, 0, 0, translate(_FOLDERS)))
            rows += self._folder_rows(inside)
        return rows + self._dated(loose)

    def _folder_rows(self, inside: dict[int, list[ChatListRow]]) -> list[ChatListRow]:
        children: dict[int | None, list[int]] = {}
        for folder in self._folders.values():
            children.setdefault(folder.parent_id, []).append(folder.id)
        self._counts = {number: len(inside.get(number, ())) for number in self._folders}
        for folder in reversed(self._folders.values()):
            if folder.parent_id in self._counts and folder.parent_id is not None:
                # parents come first, so the folders inside are counted by now
                self._counts[folder.parent_id] += self._counts[folder.id]
        rows: list[ChatListRow] = []
        waiting = [(number, 0) for number in reversed(children.get(None, []))]
        while waiting:
            number, depth = waiting.pop()
            if number < 0:  # the chats of a folder come after the folders in it
                rows += [row._replace(depth=depth) for row in inside.get(-number, ())]
                continue
            rows.append(ChatListRow(FOLDER, number, depth))
            if number in self._open:
                waiting.append((-number, depth + 1))
                waiting += [(child, depth + 1) for child in reversed(children.get(number, []))]
        return rows

    def _dated(self, chats: Sequence[ConversationSummary]) -> list[ChatListRow]:
        if len(self._made) > 2 * len(chats) + _SPARE_ROWS:  # most are of chats that are gone
            self._made = {}
        made = self._made
        for chat in chats:
            if chat.id not in made:
                made[chat.id] = ChatListRow(CHAT, chat.id)
        rows: list[ChatListRow] = []
        place = 0
        while place < len(chats):
            label, begun = self._heading(chats[place]), group_start(chats[place].updated_at, self._day)
            end = bisect_right(chats, -begun, place, key=lambda chat: -chat.updated_at)
            end = max(end, place + 1)  # the hour of the end of daylight saving time exists twice
            rows.append(ChatListRow(HEADING, 0, 0, label))
            rows += [made[chat.id] for chat in chats[place:end]]
            place = end
        return rows

    def _heading(self, chat: ConversationSummary) -> str:
        return date_group(chat.updated_at, self._day)

    def _changed(self, first: QModelIndex, last: QModelIndex) -> None:
        changed = self._chats.summaries()[first.row() : last.row() + 1]
        # the usual case: a title, or a later time
        if self._day == self._today() and all(map(self._stays, changed)):
            self._by_id.update({chat.id: chat for chat in changed})
        else:
            self._arrange()
        self._emit_chats(chat.id for chat in changed)

    def _stays(self, chat: ConversationSummary) -> bool:
        """Whether a chat that kept its place in `chats` keeps it here too."""
        old = self._by_id.get(chat.id)
        if old is None or (old.pinned, old.folder_id) != (chat.pinned, chat.folder_id):
            return False
        return old.updated_at == chat.updated_at or self._heading(old) == self._heading(chat)

    def _emit_chats(self, ids: Iterable[int]) -> None:
        left = set(ids) - {0}
        for place, row in enumerate(self._rows) if left else ():
            if row.number in left and row.kind == CHAT:
                self.dataChanged.emit(self.index(place), self.index(place))
                left.discard(row.number)
                if not left:
                    return

    def _tell(self, rows: Iterable[ChatListRow]) -> None:
        left = set(rows)
        for place, row in enumerate(self._rows) if left else ():
            if row in left:
                self.dataChanged.emit(self.index(place), self.index(place))


_WORDS = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)


def dragged(data: QMimeData) -> tuple[list[int], list[int]]:
    """The ids of the dragged chats and folders; none for any other data."""
    if not data.hasFormat(MIME):
        return [], []
    content = json.loads(bytes(data.data(MIME).data()))
    return content[CHAT], content[FOLDER]
