"""What is done to conversations in the sidebar: pins, folders and the trash, over the session and its
store.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator
from typing import Concatenate, ParamSpec

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.items.chats.chat_list import ChatListModel
from desktop.services.conversations.search import Finder
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.idle_steps import Steps
from desktop.settings import Behaviour
from desktop.store.conversations.conversations import ConversationSummary
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.conversations.trash import DAY_S, delete_for_good, empty_trash
from desktop.store.database.database import StoreError
from desktop.store.search.indexing import index_step

__all__ = ["ChatList"]

CLOCK_MS = 60_000
INDEX_CHARACTERS = (2_000, 20_000, 40_000)
"""Text indexed in one step: at least, at first and at most; after each step as much as takes `INDEX_S`
here.
"""
INDEX_S = 0.003
REST_MS = 16
P = ParamSpec("P")


def _told(method: Callable[Concatenate[ChatList, P], bool]) -> Callable[Concatenate[ChatList, P], bool]:
    """Trouble of the store becomes a notice of the session, and the method returns False."""

    @functools.wraps(method)
    def wrapper(self: ChatList, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            return method(self, *args, **kwargs)
        except StoreError as error:
            self.session.notice.emit(str(error), "error")
            return False

    return wrapper


class ChatList(QObject):
    """`rows` is the model of the sidebar, `finder` its search.

    Changes of folders can be taken back with the session's undo.

    Signals:
        folders_changed(): a folder came, went, moved or has another name; also for who inherits settings from
        them. trash_changed(int): so many conversations are in the trash.
    """

    folders_changed = Signal()
    trash_changed = Signal(int)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.session = session
        self._database = session.stores.database
        self._folders = FolderStore(self._database)
        self.rows = ChatListModel(session.conversations, self)
        self.finder = Finder(session, self)
        self._sweeping = Steps(self)
        self._sweeping.ended.connect(self._count_trash)
        # an old library can wait, a reply cannot
        self._upkeep = Steps(self, REST_MS, busy=lambda: bool(session.replying_in))
        for steps in (self._sweeping, self._upkeep):
            steps.failed.connect(lambda sentence: session.notice.emit(sentence, "error"))
        self._clock = QTimer(self)
        self._clock.setInterval(CLOCK_MS)
        self._clock.timeout.connect(self.rows.look_at_clock)
        for signal in (
            session.conversations.modelReset,
            session.conversations.rowsRemoved,
            session.conversations.rowsInserted,
        ):
            signal.connect(self._count_trash)
        for signal in (session.state_changed, session.conversations.dataChanged):
            signal.connect(self._show_running)
        self._trashed = -1

    @_told
    def load(self) -> bool:
        """Read the folders: before the conversations are shown for the first time."""
        self.rows.set_folders(self._folders.all())
        return True

    def begin_upkeep(self) -> None:
        """Once the window is there: throw old trash away and index what is not indexed, in short steps."""
        self._clock.start()
        self._upkeep.run(self._keep_up())

    def close(self) -> bool:
        """Leave the rest of what runs for the next time."""
        for steps in (self._sweeping, self._upkeep):
            steps.stop()
        self._clock.stop()
        self.finder.stop()
        return True

    # -- chats
    # --------------------------------------------------------------------------------------------------------

    @_told
    def pin(self, ids: Collection[int], pinned: bool) -> bool:
        """Keep chats at the top of the list, or no more."""
        with self._database.transaction():
            for number in ids:
                self.session.stores.of(number).pin(number, pinned)
        self._renew(ids)
        return True

    @_told
    def move(self, ids: Collection[int], folder_id: int | None, unpin: bool = False) -> bool:
        """Put chats into a folder, or (None) into none. Temporary ones stay where they are and it is said."""
        kept = [number for number in ids if number < FIRST_TEMPORARY]
        if len(kept) < len(ids):
            self.session.notice.emit("A temporary chat cannot be in a folder: keep it first.", "warning")
        self.session.stores.kept.move(kept, folder_id)
        for number in kept if unpin else ():
            self.session.stores.kept.pin(number, False)
        self._renew(kept)
        return True

    # -- folders
    # ------------------------------------------------------------------------------------------------------

    def new_folder(self, parent_id: int | None = None) -> int:
        """An empty folder, last in `parent_id`; its id, or 0 when the store refused, which is told."""
        try:
            made = self._folders.create("New folder", parent_id).id
        except StoreError as error:
            self.session.notice.emit(str(error), "error")
            return 0
        self._show_folders()
        return made

    @_told
    def rename_folder(self, folder_id: int, name: str) -> bool:
        """Give a folder another name; an empty one is none."""
        if name.strip():
            self._folders.rename(folder_id, name)
            self._show_folders()
        return True

    @_told
    def move_folder(self, folder_id: int, parent_id: int | None, position: int | None = None) -> bool:
        """Put a folder into another one (None: the top), before the sibling at `position` of the others,
        or last.
        """
        before = self._folders.get(folder_id)
        self._folders.move(folder_id, parent_id, position)
        self._show_folders()
        self.session.push_undo(
            "move folder", lambda: self._move_back(folder_id, before.parent_id, before.position)
        )
        return True

    @_told
    def remove_folder(self, folder_id: int, throw_away: bool = False) -> bool:
        """Remove a folder; its chats go to the folder around it or, with `throw_away`, to the trash
        (undoable).
        """
        removal = self._folders.remove(folder_id, throw_away)

        def put_back() -> None:
            self._folders.put_back(removal)
            self._show_folders()
            self.session.reload_conversations()

        self._show_folders()
        self.session.push_undo("remove folder", put_back)
        return self.session.reload_conversations()

    def chats_in(self, folder_id: int) -> int:
        """How many chats are in a folder and the folders in it, pinned ones too."""
        inside = {folder_id}
        for folder in self.rows.folders():  # parents come first
            if folder.parent_id in inside:
                inside.add(folder.id)
        return sum(1 for chat in self.session.conversations.summaries() if chat.folder_id in inside)

    # -- the trash
    # ----------------------------------------------------------------------------------------------------

    def trash(self) -> tuple[ConversationSummary, ...]:
        """What is in the trash, thrown away last first."""
        try:
            found = self.session.stores.kept.list(deleted=True)
        except StoreError as error:
            self.session.notice.emit(str(error), "error")
            return ()
        return tuple(sorted(found, key=lambda row: row.deleted_at or row.updated_at, reverse=True))

    @_told
    def restore(self, ids: Collection[int]) -> bool:
        """Bring chats back; those that are being deleted for good stay, which is told."""
        store = self.session.stores.kept
        with self._database.transaction():
            for number in ids:
                store.restore(number)
        self.session.conversations.put_all([store.summary(number) for number in ids])
        self._count_trash()
        return True

    def delete_for_good(self, ids: Collection[int]) -> None:
        """Delete chats of the trash with all their messages, in steps; `trash_changed` tells how far it
        is.
        """
        self._sweep(
            step for number in tuple(ids) for step in self._counted(delete_for_good(self._database, number))
        )

    def empty_trash(self) -> None:
        """Delete everything in the trash for good, in steps."""
        self._sweep(self._counted(empty_trash(self._database)))

    # -- parts
    # --------------------------------------------------------------------------------------------------------

    def _sweep(self, job: Iterator[object]) -> None:
        """After what is being swept already."""
        before = self._sweeping.take()

        def both() -> Iterator[object]:
            if before is not None:
                yield from before
            yield from job

        self._sweeping.run(both())

    def _counted(self, job: Iterator[object]) -> Iterator[object]:
        for step in job:
            yield step
            self._count_trash()

    def _keep_up(self) -> Iterator[object]:
        days = self.session.settings(Behaviour).trash_days
        if days:
            yield from self._counted(empty_trash(self._database, days * DAY_S))
        least, characters, most = INDEX_CHARACTERS
        started = time.perf_counter()
        while not index_step(self._database, characters).done:
            fitting = round(characters * INDEX_S / max(time.perf_counter() - started, 1e-6))
            characters = min(max((3 * characters + fitting) // 4, least), most)
            yield None
            started = time.perf_counter()

    def _renew(self, ids: Collection[int]) -> None:
        self.session.conversations.put_all([self.session.stores.of(number).summary(number) for number in ids])

    def _move_back(self, folder_id: int, parent_id: int | None, position: int) -> None:
        self._folders.move(folder_id, parent_id, position)
        self._show_folders()

    def _show_folders(self) -> None:
        self.rows.set_folders(self._folders.all())
        self.folders_changed.emit()

    @Slot()
    def _count_trash(self) -> None:
        try:
            found = int(
                self._database.execute("SELECT count(*) FROM conversations WHERE deleted = 1").fetchone()[0]
            )
        except StoreError:  # whoever reads the list next is told
            return
        if found != self._trashed:
            self._trashed = found
            self.trash_changed.emit(found)

    @Slot()
    def _show_running(self) -> None:
        self.rows.set_running(self.session.replying_in)
