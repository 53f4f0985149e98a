"""Notices when the file with the conversations disappears, and saves everything in another place."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.participants import Author
from desktop.store.database.database import FILE_NAME, Database, Gone, StoreError
from engine.platform.folders import private_folder
from engine.platform.language import PREFERENCES
from engine.words import _

__all__ = ["LOOK_MS", "DataFolder"]

log = logging.getLogger(__name__)

LOOK_MS = 1000


class DataFolder(QObject):
    """Checks once a second, besides the check at every write, which fails while the file is gone.

    A file that is open exists until it is closed, even if it was deleted, so everything can still be written
    elsewhere. `gone` is whether the file is missing; `given_up`, that the user does not want anything saved;
    `opened_in`, the folder at the start, where the next start will look; `next_place`, where the data moves
    once the window is closed, if the user asked for that.

    Signals:
        lost(str sentence): the file is no longer in its place.
        back(): it is there again.
        moved(object folder): everything was saved in this folder, which is used from now on.
    """

    lost = Signal(str)
    back = Signal()
    moved = Signal(object)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._database = session, session.stores.database
        self.gone = self.given_up = False
        self.opened_in = self.folder
        self.next_place: Path | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK_MS)
        self._timer.timeout.connect(self.look)
        self._timer.start()

    @property
    def folder(self) -> Path:
        """Where the file is, or was."""
        return self._database.path.parent

    @property
    def is_free(self) -> bool:
        """Whether no other file has taken its place."""
        return not self._database.path.exists()

    @Slot()
    def look(self) -> None:
        """Check whether the file is in its place; emits a signal if that has changed."""
        gone = not self._database.in_place
        if gone == self.gone:
            return
        self.gone = gone
        if gone:
            log.error("%s has disappeared", self._database.path)
            self.lost.emit(str(Gone(self._database.path)))
        else:
            self._session.save_replies()
            self.back.emit()

    def save_in(self, folder: Path) -> str:
        """Save everything in `folder` and continue there; returns "", or why that failed.

        If the file can no longer be read, as on a disk that was unplugged, what is on the screen is saved.
        """
        path = folder / FILE_NAME
        try:
            self._database.move_to(path)
        except StoreError as error:
            if path.exists() or not self._is_unreadable():
                return str(error)
            if self._session.replying_in:
                several = self._session.writing > 1
                self._session.stop_all()
                what = (
                    _("The replies being written were stopped.")
                    if several
                    else _("The reply being written was stopped.")
                )
                return _("{what} Choose the folder again.", what=what)
            try:
                private_folder(folder)
                self._save_shown(path)
            except (OSError, StoreError) as second:
                return _("Nothing can be saved in {folder} ({second}).", folder=folder, second=second)
        self._session.preferences.path = folder / PREFERENCES
        self._session.preferences.unsaved = True
        try:
            self._session.preferences.save()
        except StoreError as error:
            log.error("cannot save the preferences in %s: %s", folder, error)
        self._session.save_replies()
        self.gone = self.given_up = False
        self.moved.emit(folder)
        return ""

    def rescue(self) -> None:
        """The program ends without asking: save everything where it was, unless another file is there."""
        self.look()
        if self.gone and not self.given_up and self.is_free and (sentence := self.save_in(self.folder)):
            log.error("cannot save the chats: %s", sentence)

    def close(self) -> bool:
        """Stop checking."""
        self._timer.stop()
        return True

    def _is_unreadable(self) -> bool:
        try:
            self._database.execute("PRAGMA quick_check(1)").fetchone()
        except StoreError:
            return True
        return False

    def _save_shown(self, path: Path) -> None:
        """Write the open chat as shown, and replies of other chats that were not saved."""
        items, waiting = self._session.messages.items(), self._session.replies.unsaved.waiting
        fresh = Database(path)
        with contextlib.closing(fresh):
            store = ConversationStore(fresh)
            made, parent = store.create().id, None
            for item in items:
                author = Author(item.author, item.persona)
                text = item.stored_text
                parent = store.add_message(made, parent, item.role, text, author=author, call=item.call).id
            shown = {item.id for item in items}
            for text in (text for number, text in waiting.items() if number not in shown):
                store.add_message(store.create(_("A reply that was not saved")).id, None, "assistant", text)
        self._database.switch_to(path)
        self._session.start_again()
