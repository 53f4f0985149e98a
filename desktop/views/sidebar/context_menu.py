"""The context menus of the sidebar: for one chat, for several, for a folder, and for the empty space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtWidgets import QMenu

from desktop.items.chats.chat_list import FOLDER, ChatListModel
from desktop.views.commands.keymap import native
from desktop.views.sidebar.requests import ChatListRequests
from engine.words import _, ngettext

__all__ = ["fill_menu"]


def fill_menu(
    menu: QMenu,
    ask: ChatListRequests,
    model: ChatListModel,
    row: tuple[str, int],
    chats: Sequence[int],
    pinned: bool,
) -> None:
    """Fill `menu` for a row, its kind and id, and the selected `chats`; `pinned` if all of them are."""
    kind, number = row
    if kind == FOLDER:
        _for_folder(menu, ask, number, number in model.open_folders)
    elif chats:
        _for_chats(menu, ask, list(chats), pinned)
        _folders_into(menu, ask, model, list(chats))
        _below_folders(menu, ask, list(chats))
    else:
        menu.addAction(_("New folder"), partial(ask.new_folder.emit, 0))


def _for_chats(menu: QMenu, ask: ChatListRequests, chats: list[int], pinned: bool) -> None:
    if len(chats) == 1:
        menu.addAction(_("Open"), partial(ask.open.emit, chats[0]))
        menu.addAction(_("Rename\tF2"), partial(ask.begin_rename.emit, chats[0]))
        menu.addAction(_("Suggest a title"), partial(ask.suggest_title.emit, chats[0]))
    count = len(chats)
    if count == 1:
        words = _("Unpin") if pinned else _("Pin")
    elif pinned:
        words = ngettext("Unpin {n} chat", "Unpin {n} chats", count)
    else:
        words = ngettext("Pin {n} chat", "Pin {n} chats", count)
    menu.addAction(words, partial(ask.pin.emit, chats, not pinned))


def _folders_into(menu: QMenu, ask: ChatListRequests, model: ChatListModel, chats: list[int]) -> None:
    folders = menu.addMenu(_("Move to folder"))
    folders.addAction(_("New folder"), partial(ask.move_to_new_folder.emit, chats))
    folders.addAction(_("No folder"), partial(ask.move.emit, chats, 0))
    folders.addSeparator()
    for folder in model.folders():
        name = "    " * _depth(model, folder.id) + folder.name.replace("&", "&&")
        folders.addAction(name, partial(ask.move.emit, chats, folder.id))


def _below_folders(menu: QMenu, ask: ChatListRequests, chats: list[int]) -> None:
    count = len(chats)
    export = _("Export…") if count == 1 else ngettext("Export {n} chat…", "Export {n} chats…", count)
    delete = _("Delete") if count == 1 else ngettext("Delete {n} chat", "Delete {n} chats", count)
    menu.addAction(export, partial(ask.export.emit, chats))
    menu.addSeparator()
    menu.addAction(f"{delete}\t{native('Del')}", partial(ask.delete.emit, chats))


def _depth(model: ChatListModel, folder_id: int) -> int:
    depth, folder = -1, model.folder(folder_id)
    while folder is not None:
        depth, folder = depth + 1, model.folder(folder.parent_id) if folder.parent_id is not None else None
    return depth


def _for_folder(menu: QMenu, ask: ChatListRequests, number: int, shown: bool) -> None:
    menu.addAction(_("New chat in this folder"), partial(ask.new_chat.emit, number))
    menu.addAction(_("Close") if shown else _("Open"), partial(ask.open_folder.emit, number, not shown))
    menu.addAction(_("Rename\tF2"), partial(ask.begin_rename_folder.emit, number))
    menu.addAction(_("New subfolder"), partial(ask.new_folder.emit, number))
    menu.addAction(_("Settings and prompt…"), partial(ask.edit_folder.emit, number))
    menu.addSeparator()
    menu.addAction(_("Move up"), partial(ask.step_folder.emit, number, -1))
    menu.addAction(_("Move down"), partial(ask.step_folder.emit, number, 1))
    menu.addSeparator()
    menu.addAction(f"{_('Remove…')}\t{native('Del')}", partial(ask.remove_folder.emit, number))
