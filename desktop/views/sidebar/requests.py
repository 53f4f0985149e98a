"""What the list of chats and its context menus ask for."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

__all__ = ["ChatListRequests"]


class ChatListRequests(QObject):
    """Signals with the ids of chats and folders; folder 0 is none."""

    open = Signal(int)
    begin_rename = Signal(int)
    suggest_title = Signal(int)
    delete = Signal(list)
    export = Signal(list)
    pin = Signal(list, bool)
    move = Signal(list, int)
    """Move chats into a folder."""
    move_out = Signal(list)
    """Chats were dragged out of their folder: they are unpinned too."""
    move_to_new_folder = Signal(list)
    new_chat = Signal(int)
    """Begin a chat in a folder."""
    new_folder = Signal(int)
    """Make a folder inside another one."""
    begin_rename_folder = Signal(int)
    open_folder = Signal(int, bool)
    """Unfold a folder, or fold it."""
    move_folder = Signal(int, int, int)
    """Move a folder into another one, to a position, -1 for last."""
    step_folder = Signal(int, int)
    """Move a folder up or down among its siblings."""
    remove_folder = Signal(int)
    edit_folder = Signal(int)
    """Show a folder's settings and prompt."""
