"""What the sidebar does with conversations (pins, folders, trash), on top of the session and its store."""

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
from engine.words import _

__all__ = ["ChatList"]

CLOCK_MS = 60_000
COUNT_S = 0.25
"""How often a deletion reports how many chats are left: the trash is read and shown again each time."""
INDEX_CHARACTERS = (2_000, 20_000, 40_000)
"""Characters indexed in one step: least, first and most. After each step, as many as take `INDEX_S` on this
machine.
"""
INDEX_S = 0.003
REST_MS = 16
P = ParamSpec("P")


def _reports_errors(
    method: Callable[Concatenate[ChatList, P], bool],
) -> Callable[Concatenate[ChatList, P], bool]:
    """Report a `StoreError` as a notice of the session; the method then returns False."""

    @functools.wraps(method)
    def wrapper(self: ChatList, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            return method(self, *args, **kwargs)
        except StoreError as error:
            self.session.notice.emit(str(error), "error")
            return False

    return wrapper


class ChatList(QObject):
    """`rows` is the item model of the sidebar, `finder` its search.

    The session's undo reverts changes of folders.

    Signals:
        folders_changed(): folders were added, removed, moved, renamed, or have other settings.
        trash_changed(int): the number of conversations in the trash.
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
        # indexing old messages can wait, a reply cannot
        self._upkeep = Steps(self, REST_MS, busy=lambda: bool(session.replying_in))
        for steps in (self._sweeping, self._upkeep):
            steps.failed.connect(lambda sentence: session.notice.emit(sentence, "error"))
        self._clock = QTimer(self)
        self._clock.setInterval(CLOCK_MS)
        self._clock.timeout.connect(self.rows.refresh_dates)
        for signal in (
            session.conversations.modelReset,
            session.conversations.rowsRemoved,
            session.conversations.rowsInserted,
        ):
            signal.connect(self._count_trash)
        for signal in (session.engine_changed, session.conversations.dataChanged):
            signal.connect(self._show_running)
        session.conversation_changed.connect(self.rows.see)
        self._trashed = -1

    @_reports_errors
    def load(self) -> bool:
        """Read the folders, before the conversations are shown for the first time."""
        self.rows.set_folders(self._folders.all())
        return True

    def begin_upkeep(self) -> None:
        """Once the window is open: empty old trash and index old messages, in short steps."""
        self._clock.start()
        self._upkeep.run(self._keep_up())

    def close(self) -> bool:
        """Stop; the remaining work is done next time."""
        for steps in (self._sweeping, self._upkeep):
            steps.stop()
        self._clock.stop()
        self.finder.stop()
        return True

    # -- chats
    @_reports_errors
    def pin(self, ids: Collection[int], pinned: bool) -> bool:
        with self._database.transaction():
            for number in ids:
                self.session.stores.of(number).pin(number, pinned)
        self._renew(ids)
        return True

    @_reports_errors
    def move(self, ids: Collection[int], folder_id: int | None, unpin: bool = False) -> bool:
        """Move chats into a folder, or out of all folders (None). Temporary ones stay where they are, with a
        notice.
        """
        kept = [number for number in ids if number < FIRST_TEMPORARY]
        if len(kept) < len(ids):
            self.session.notice.emit(
                _("A temporary chat cannot be moved to a folder. Save it first."), "warning"
            )
        self.session.stores.kept.move(kept, folder_id)
        for number in kept if unpin else ():
            self.session.stores.kept.pin(number, False)
        self._renew(kept)
        return True

    # -- folders
    def new_folder(self, parent_id: int | None = None) -> int:
        """Create an empty folder, last in `parent_id`; returns its id, or 0 after an error, which is
        reported.
        """
        try:
            made = self._folders.create(_("New folder"), parent_id).id
        except StoreError as error:
            self.session.notice.emit(str(error), "error")
            return 0
        self._show_folders()
        return made

    @_reports_errors
    def rename_folder(self, folder_id: int, name: str) -> bool:
        """Rename a folder; an empty name is ignored."""
        if name.strip():
            self._folders.rename(folder_id, name)
            self._show_folders()
        return True

    @_reports_errors
    def move_folder(self, folder_id: int, parent_id: int | None, position: int | None = None) -> bool:
        """Move a folder into another (None: the top), before the sibling at `position` or last."""
        before = self._folders.get(folder_id)
        self._folders.move(folder_id, parent_id, position)
        self._show_folders()
        self.session.push_undo(
            _("move folder"), lambda: self._move_back(folder_id, before.parent_id, before.position)
        )
        return True

    @_reports_errors
    def remove_folder(self, folder_id: int, throw_away: bool = False) -> bool:
        """Remove a folder; its chats move to the parent folder or, with `throw_away`, to the trash. Can be
        undone.
        """
        removal = self._folders.remove(folder_id, throw_away)

        def put_back() -> None:
            self._folders.put_back(removal)
            self._show_folders()
            self.session.reload_conversations()

        self._show_folders()
        self.session.push_undo(_("remove folder"), put_back)
        return self.session.reload_conversations()

    def chats_in(self, folder_id: int) -> int:
        """The number of chats in a folder and its subfolders, pinned ones included."""
        inside = {folder_id}
        for folder in self.rows.folders():  # parents come first
            if folder.parent_id in inside:
                inside.add(folder.id)
        return sum(1 for chat in self.session.conversations.summaries() if chat.folder_id in inside)

    # -- the trash
    def trash(self) -> tuple[ConversationSummary, ...]:
        """What is in the trash, most recently deleted first."""
        try:
            found = self.session.stores.kept.list(deleted=True)
        except StoreError as error:
            self.session.notice.emit(str(error), "error")
            return ()
        return tuple(sorted(found, key=lambda row: row.deleted_at or row.updated_at, reverse=True))

    @_reports_errors
    def restore(self, ids: Collection[int]) -> bool:
        """Restore chats from the trash; those already being deleted permanently stay, with a notice."""
        store = self.session.stores.kept
        with self._database.transaction():
            for number in ids:
                store.restore(number)
        self.session.conversations.put_all([store.summary(number) for number in ids])
        self._count_trash()
        return True

    def delete_for_good(self, ids: Collection[int]) -> None:
        """Permanently delete chats from the trash in steps; `trash_changed` reports the progress."""
        self._sweep(
            step for number in tuple(ids) for step in self._counted(delete_for_good(self._database, number))
        )

    def empty_trash(self) -> None:
        """Permanently delete everything in the trash, in steps."""
        self._sweep(self._counted(empty_trash(self._database)))

    def _sweep(self, job: Iterator[object]) -> None:
        """Run `job` after the deletions that are already under way."""
        before = self._sweeping.take()

        def both() -> Iterator[object]:
            if before is not None:
                yield from before
            yield from job

        self._sweeping.run(both())

    def _counted(self, job: Iterator[object]) -> Iterator[object]:
        counted = time.perf_counter()
        for step in job:
            yield step
            if time.perf_counter() - counted >= COUNT_S:
                self._count_trash()
                counted = time.perf_counter()
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
        except StoreError:  # the next read of the list reports it
            return
        if found != self._trashed:
            self._trashed = found
            self.trash_changed.emit(found)

    @Slot()
    def _show_running(self) -> None:
        self.rows.set_running(self.session.replying_in, self.session.conversation)
