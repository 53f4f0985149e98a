"""The context menus of the sidebar: of one chat, of several, of a folder, and of the free space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu

from desktop.items.chats.chat_list import FOLDER, ChatListModel

if TYPE_CHECKING:
    from desktop.views.sidebar.chat_list import ChatListView

__all__ = ["make_menu"]


def make_menu(view: ChatListView, kind: str, number: int, chats: Sequence[int], pinned: bool) -> QMenu:
    """For the row of `kind` and `number`, with the chosen `chats`; `pinned` when all of these are."""
    menu = QMenu(view)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    if kind == FOLDER:
        _for_folder(menu, view, number)
    elif chats:
        _for_chats(menu, view, tuple(chats), pinned)
    else:
        menu.addAction("New folder", lambda: view.new_folder_requested.emit(0))
    return menu


def _for_chats(menu: QMenu, view: ChatListView, chats: tuple[int, ...], pinned: bool) -> None:
    count = len(chats)
    if count == 1:
        menu.addAction("Open", lambda: view.opened.emit(chats[0]))
        menu.addAction("Rename\tF2", lambda: view.begin_rename(chats[0]))
    words = "Unpin" if pinned else "Pin"
    menu.addAction(
        words if count == 1 else f"{words} {count:,} chats",
        lambda: view.pin_requested.emit(list(chats), not pinned),
    )
    _folders_into(menu.addMenu("Move to folder"), view, chats)
    menu.addAction(
        "Export…" if count == 1 else f"Export {count:,} chats…",
        lambda: view.export_requested.emit(list(chats)),
    )
    menu.addSeparator()
    menu.addAction(
        "Delete\tDel" if count == 1 else f"Delete {count:,} chats\tDel",
        lambda: view.delete_requested.emit(list(chats)),
    )


def _folders_into(menu: QMenu, view: ChatListView, chats: tuple[int, ...]) -> None:
    model = view.chat_list()
    menu.addAction("New folder", lambda: view.folder_for_requested.emit(list(chats)))
    menu.addAction("No folder", lambda: view.move_requested.emit(list(chats), 0))
    menu.addSeparator()
    for folder in model.folders():
        name = "    " * _depth(model, folder.id) + folder.name.replace("&", "&&")
        menu.addAction(name, partial(view.move_requested.emit, list(chats), folder.id))


def _depth(model: ChatListModel, folder_id: int) -> int:
    depth, folder = -1, model.folder(folder_id)
    while folder is not None:
        depth, folder = depth + 1, model.folder(folder.parent_id) if folder.parent_id is not None else None
    return depth


def _for_folder(menu: QMenu, view: ChatListView, number: int) -> None:
    shown = number in view.chat_list().open_folders
    menu.addAction("Close" if shown else "Open", lambda: view.folder_toggled.emit(number, not shown))
    menu.addAction("Rename\tF2", lambda: view.begin_rename_folder(number))
    menu.addAction("New folder in it", lambda: view.new_folder_requested.emit(number))
    menu.addAction("Settings and prompt…", lambda: view.folder_settings_requested.emit(number))
    menu.addSeparator()
    menu.addAction("Move up", lambda: view.folder_stepped.emit(number, -1))
    menu.addAction("Move down", lambda: view.folder_stepped.emit(number, 1))
    menu.addSeparator()
    menu.addAction("Remove…\tDel", lambda: view.remove_folder_requested.emit(number))
