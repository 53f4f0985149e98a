"""Does what is asked for in the sidebar: chats, folders, the trash, the search and its hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QSettings, Qt, Signal, Slot
from PySide6.QtWidgets import QMessageBox, QPushButton

from desktop.items.chats.chat_list import CHAT
from desktop.services.services import Services
from desktop.services.settings.folder_settings import FolderSettings
from desktop.settings import Behaviour
from desktop.store.conversations.folders import Folder
from desktop.store.conversations.records import SearchHit
from desktop.store.database.database import StoreError
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.dialogs.message_box import question_box
from desktop.views.layout.panes import LEFT, Panes
from desktop.views.sidebar.sidebar import Sidebar
from desktop.views.widgets.listening import listen
from engine.words import _, ngettext

if TYPE_CHECKING:
    from desktop.views.sidebar.folder_dialog import FolderDialog

__all__ = ["SidebarController"]

_OPEN_FOLDERS = "open_folders"


class SidebarController(QObject):
    """Serves `sidebar`; `places` remembers which folders are open.

    `show_in_notebook(hit, words_at)` shows a hit in the open notebook; it returns False if a chat is open.
    `folder_dialog` is None while no folder's window is open.

    Signals:
        hit_chosen(): a message that was found is shown, so a narrow window may leave the sidebar.
        export_requested(list of ids): for another controller.
    """

    hit_chosen = Signal()
    export_requested = Signal(list)

    def __init__(
        self,
        services: Services,
        sidebar: Sidebar,
        panes: Panes,
        chat: ChatPane,
        show_in_notebook: Callable[[SearchHit, Callable[[str, int], str]], bool],
        places: QSettings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        chat_list = self._chat_list = services.chat_list
        self._titles = services.titles
        self._session, self._chat, self._places = chat_list.session, chat, places
        self._sidebar, self._panes, self._show_in_notebook = sidebar, panes, show_in_notebook
        self._validation = services.validation
        self.folder_dialog: FolderDialog | None = None
        opened = str(places.value(_OPEN_FOLDERS) or "")
        chat_list.rows.set_open_folders(int(number) for number in opened.split(",") if number.isdecimal())
        self._connect_list()
        self._connect_trash()
        self._connect_search()

    def _connect_list(self) -> None:
        rows, ask, chat_list = self._sidebar.list, self._sidebar.list.requests, self._chat_list
        rows.renamed.connect(self._session.rename_conversation)
        ask.suggest_title.connect(self.suggest_title)
        self._titles.suggested.connect(self._on_suggested)
        ask.delete.connect(self.delete)
        ask.export.connect(self.export_requested)
        ask.pin.connect(chat_list.pin)
        ask.move.connect(lambda ids, folder: self._move(ids, folder))
        ask.move_out.connect(lambda ids: chat_list.move(ids, None, unpin=True))
        ask.move_to_new_folder.connect(self._move_to_new)
        ask.new_chat.connect(lambda folder: self._toggle(folder, True))  # it would be out of sight
        ask.new_folder.connect(self.new_folder)
        rows.folder_renamed.connect(chat_list.rename_folder)
        ask.open_folder.connect(self._toggle)
        ask.move_folder.connect(self._move_folder)
        ask.step_folder.connect(self._step_folder)
        ask.remove_folder.connect(self.remove_folder)
        ask.edit_folder.connect(self.open_folder)
        chats = self._session.conversations
        for signal in (chats.dataChanged, chats.modelReset, chats.rowsMoved):  # One may be in another folder.
            listen(self, signal, lambda *_where: self._session.follow_place())

    def _connect_trash(self) -> None:
        page = self._sidebar.trash
        self._chat_list.trash_changed.connect(self._show_trash)
        self._sidebar.trash_requested.connect(self._fill_trash)
        page.restore_requested.connect(self._restore)
        page.delete_requested.connect(self._delete_for_good)
        page.empty_requested.connect(self._empty)

    def _connect_search(self) -> None:
        finder, page = self._chat_list.finder, self._sidebar.search
        self._sidebar.searched.connect(self._search)
        finder.titles_found.connect(page.hits.begin)
        finder.found.connect(self._add_hits)
        listen(self, finder.ended, lambda more: page.show_state(self._query(), False, more))
        page.more_requested.connect(self._more)
        page.list.hit_opened.connect(self.open_hit)
        self._session.conversations.rowsRemoved.connect(self._search_again)
        self._session.conversations.modelReset.connect(self._search_again)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands about chats and folders; those that act in the sidebar show it first."""
        return {
            "new_folder": self._new_folder,
            "trash": self._show_trash_page,
            "search": self._begin_search,
            "rename": self._rename,
            "suggest_title": lambda: self.suggest_title(self._session.conversation),
            "pin": self.toggle_pin,
            "delete_chat": lambda: self.delete([self._session.conversation]),
            "sidebar": lambda: self._panes.toggle(LEFT),
            "next_chat": lambda: self._step(1),
            "previous_chat": lambda: self._step(-1),
        }

    def _new_folder(self) -> None:
        self._panes.show_side(LEFT)
        self.new_folder()

    def _show_trash_page(self) -> None:
        self._panes.show_side(LEFT)
        self._sidebar.show_trash()

    def _begin_search(self) -> None:
        self._panes.show_side(LEFT)
        self._sidebar.query.setFocus()
        self._sidebar.query.selectAll()

    def _rename(self) -> None:
        self._panes.show_side(LEFT)
        self._sidebar.begin_rename(self._session.conversation)

    # -- chats

    def suggest_title(self, conversation: int) -> None:
        """Have the model write a title of a chat; says why it cannot."""
        try:
            why_not = self._titles.suggest(conversation)
        except StoreError as error:
            why_not = str(error)
        if not why_not and self._session.busy:
            why_not = _("The title is written when no reply is being written.")
        if why_not:
            self._chat.show_notice(why_not, "info")

    @Slot(int, str, str)
    def _on_suggested(self, conversation: int, title: str, before: str) -> None:
        """Name the chat so, unless it was renamed in the meantime; this can be undone."""
        session = self._session
        now = next((row.title for row in session.conversations.summaries() if row.id == conversation), None)
        if not title or title == now:
            words = _("The model suggested no other title for “{title}”.", title=before)
            self._chat.show_notice(words, "info")
        elif now == before and session.rename_conversation(conversation, title):
            session.push_undo(_("rename chat"), lambda: self._name_again(conversation, before))
            words = _("“{before}” is now called “{title}”.", before=before, title=title)
            self._chat.banner.show_notice(words, "info", undo=True)

    def _step(self, step: int) -> None:
        """Open the chat below (1) or above (-1) the open one in the list; the first if it is not there."""
        shown = [row.number for row in self._chat_list.rows.shown() if row.kind == CHAT]
        here = self._session.conversation
        place = shown.index(here) + step if here in shown else 0
        if 0 <= place < len(shown):
            self._sidebar.opened.emit(shown[place])

    def _name_again(self, conversation: int, title: str) -> None:
        self._session.rename_conversation(conversation, title)

    def delete(self, ids: Sequence[int]) -> None:
        """Move chats to the trash; this can be undone. The keyboard stays in the list."""
        in_list = self._sidebar.list.hasFocus()
        if list(ids) == [self._session.conversation] and self._session.temporary:
            if self._session.delete_conversation(self._session.conversation):
                self._chat.banner.show_notice(_("The temporary chat was discarded."), "info")
        elif ids and self._session.delete_conversations(tuple(ids), self._beside(ids)):
            words = ngettext("The chat was deleted.", "{n} chats were deleted.", len(ids))
            self._chat.banner.show_notice(words, "info", undo=True)
        if in_list:  # not in the text of the chat that is opened instead, where Del deletes words
            self._sidebar.list.setFocus()

    def _beside(self, ids: Sequence[int]) -> int:
        """The chat that is opened when these are deleted: below the open one in the list, else above it."""
        shown = [row.number for row in self._chat_list.rows.shown() if row.kind == CHAT]
        here = self._session.conversation
        if here not in ids or here not in shown:
            return 0
        place = shown.index(here)
        near = (*shown[place + 1 :], *reversed(shown[:place]))
        return next((chat for chat in near if chat not in ids), 0)

    def pinned(self) -> bool:
        """Whether all of the selected chats are pinned, or the open one if none is selected."""
        pinned = {chat.id for chat in self._session.conversations.summaries() if chat.pinned}
        return pinned.issuperset(self._chosen())

    def toggle_pin(self) -> None:
        """Pin these chats; if all of them are pinned, unpin them."""
        self._chat_list.pin(self._chosen(), not self.pinned())

    def _chosen(self) -> list[int]:
        return self._sidebar.list.chosen() or [self._session.conversation]

    def _move(self, ids: Sequence[int], folder: int) -> None:
        # A pinned chat stays at the top: in its folder it would be out of sight.
        # Moving does not unpin.
        self._chat_list.move(ids, folder or None)

    def _move_to_new(self, ids: Sequence[int]) -> None:
        made = self._chat_list.new_folder()
        if made and self._chat_list.move(ids, made):
            self._toggle(made, True)
            self._sidebar.list.begin_rename_folder(made)

    # -- folders

    def new_folder(self, parent: int = 0) -> None:
        """Make a folder, and edit its name."""
        self._sidebar.show_chats()
        made = self._chat_list.new_folder(parent or None)
        if made:
            for folder in (parent, made) if parent else (made,):
                self._toggle(folder, True)
            self._sidebar.list.begin_rename_folder(made)

    def remove_folder(self, folder: int) -> None:
        """Remove a folder; if there are chats in it, ask what to do with them."""
        found = self._chat_list.rows.folder(folder)
        count = self._chat_list.chats_in(folder)
        if found is None:
            return
        if not count:
            self._removed(found.name, self._chat_list.remove_folder(folder))
            return
        box = self._question(
            _("Remove the folder “{found}”?", found=found.name),
            ngettext(
                "It contains {n} chat. Keep the chat, or move it to the trash?",
                "It contains {n} chats. Keep the chats, or move them to the trash?",
                count,
            ),
        )
        keep = box.addButton(ngettext("Keep chat", "Keep chats", count), QMessageBox.ButtonRole.AcceptRole)
        throw = box.addButton(_("Move to trash"), QMessageBox.ButtonRole.DestructiveRole)
        box.addButton(QMessageBox.StandardButton.Cancel)
        keep.clicked.connect(lambda: self._removed(found.name, self._chat_list.remove_folder(folder)))
        throw.clicked.connect(
            lambda: self._removed(found.name, self._chat_list.remove_folder(folder, throw_away=True))
        )
        box.setDefaultButton(keep if isinstance(keep, QPushButton) else None)
        box.open()

    def _removed(self, name: str, done: bool) -> None:
        if done:
            self._chat.banner.show_notice(_("Folder “{name}” removed.", name=name), "info", undo=True)

    def _toggle(self, folder: int, opened: bool) -> None:
        rows = self._chat_list.rows
        rows.set_open_folders(rows.open_folders | {folder} if opened else rows.open_folders - {folder})
        known = (number for number in sorted(rows.open_folders) if rows.folder(number) is not None)
        self._places.setValue(_OPEN_FOLDERS, ",".join(map(str, known)))

    def _move_folder(self, folder: int, parent: int, position: int) -> None:
        self._chat_list.move_folder(folder, parent or None, position if position >= 0 else None)

    def _step_folder(self, folder: int, step: int) -> None:
        """Move a folder one place up or down among its siblings."""
        found = self._chat_list.rows.folder(folder)
        if found is not None:
            siblings = [
                other.id for other in self._chat_list.rows.folders() if other.parent_id == found.parent_id
            ]
            place = siblings.index(folder) + step
            if 0 <= place < len(siblings):
                self._chat_list.move_folder(folder, found.parent_id, place)

    def open_folder(self, folder: int) -> None:
        """Show the window of a folder instead of the one that is open."""
        self.close_folder()
        session = self._session
        try:
            settings = FolderSettings(session.stores.database, session.preferences, folder)
        except StoreError as error:
            session.notice.emit(str(error), "error")
            return
        settings.saved.connect(self._on_folder_saved)
        from desktop.views.sidebar.folder_dialog import FolderDialog  # Only when needed.

        self.folder_dialog = FolderDialog(settings, self._validation, self._sidebar.window())
        self.folder_dialog.destroyed.connect(self._on_folder_closed)
        self.folder_dialog.show()

    def close_folder(self) -> None:
        """Save pending changes of a folder and close its window."""
        if self.folder_dialog is not None:
            dialog, self.folder_dialog = self.folder_dialog, None
            dialog.finish()
            dialog.destroyed.disconnect(self._on_folder_closed)
            dialog.deleteLater()
            dialog.hide()

    def _on_folder_saved(self, _folder: Folder) -> None:
        self._session.follow_place()
        self._chat_list.load()

    def _on_folder_closed(self) -> None:
        self.folder_dialog = None

    # -- the trash

    def _show_trash(self, count: int) -> None:
        self._sidebar.show_trash_count(count)
        if self._sidebar.pages.currentWidget() is self._sidebar.trash:
            self._fill_trash()

    def _fill_trash(self) -> None:
        self._sidebar.trash.show_rows(self._chat_list.trash(), self._session.settings(Behaviour).trash_days)

    def _restore(self, ids: Sequence[int]) -> None:
        if self._chat_list.restore(ids):
            words = ngettext("The chat was restored.", "{n} chats were restored.", len(ids))
            self._chat.banner.show_notice(words, "info")

    def _delete_for_good(self, ids: Sequence[int]) -> None:
        question = ngettext("Permanently delete this chat?", "Permanently delete {n} chats?", len(ids))
        self._ask_to_delete(question, lambda: self._chat_list.delete_for_good(ids))

    def _empty(self) -> None:
        count = self._sidebar.trash.model.rowCount()
        question = ngettext(
            "Permanently delete the chat in the trash?",
            "Permanently delete all {n} chats in the trash?",
            count,
        )
        self._ask_to_delete(question, self._chat_list.empty_trash)

    def _ask_to_delete(self, question: str, act: Callable[[], None]) -> None:
        box = self._question(question, _("This cannot be undone."))
        button = box.addButton(_("Delete permanently"), QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
        button.clicked.connect(act)
        box.open()

    def _question(self, words: str, more: str) -> QMessageBox:
        box = question_box(self._sidebar.window(), words, more)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return box

    # -- searching

    def open_hit(self, hit: SearchHit) -> None:
        """Show a message that a search found, with the match marked."""
        self.hit_chosen.emit()
        if self._session.open_message(hit.message_id):
            if self._show_in_notebook(hit, self._chat_list.finder.words_at):
                return
            message = next(
                (item for item in self._session.messages.items() if item.id == hit.message_id), None
            )
            if message is not None:
                self._chat.transcript.finding.go_to(
                    hit.message_id, hit.place, self._chat_list.finder.words_at(message.text, hit.place)
                )

    def _query(self) -> str:
        return self._sidebar.query.text().strip()

    def _search(self, query: str) -> None:
        self._chat_list.finder.find(query) if query else self._chat_list.finder.stop()
        if query:
            self._sidebar.search.show_state(query, True)

    def _search_again(self) -> None:
        if self._query():
            self._search(self._query())

    def _add_hits(self, hits: Sequence[SearchHit]) -> None:
        self._sidebar.hits.add(hits)
        self._sidebar.search.show_state(self._query(), True)

    def _more(self) -> None:
        self._chat_list.finder.more()
        self._sidebar.search.show_state(self._query(), True)
