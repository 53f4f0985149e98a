"""What the context menus of the sidebar ask for."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from desktop.items.chats.chat_list import CHAT, FOLDER, ChatListModel
from desktop.items.chats.conversations import ConversationsModel
from desktop.store.conversations.folders import Folder
from desktop.views.sidebar.context_menu import fill_menu
from desktop.views.sidebar.requests import ChatListRequests

SIGNALS = (
    "open", "begin_rename", "suggest_title", "delete", "export", "pin", "move", "move_to_new_folder",
    "new_chat", "new_folder", "begin_rename_folder", "open_folder", "step_folder", "remove_folder",
    "edit_folder",
)  # fmt: skip


@pytest.fixture
def model(qtbot: QtBot) -> ChatListModel:
    found = ChatListModel(ConversationsModel())
    found.set_folders([Folder(7, None, "R&D", 0, {}, ""), Folder(8, 7, "Inner", 0, {}, "")])
    return found


def asked(model: ChatListModel, row: tuple[str, int], chats: list[int], pinned: bool) -> dict[str, Any]:
    """What each entry of the menu asks for, by its text."""
    ask, menu, found = ChatListRequests(), QMenu(), dict[str, Any]()
    heard: list[tuple[Any, ...]] = []
    for name in SIGNALS:
        getattr(ask, name).connect(lambda *args, name=name: heard.append((name, *args)))
    fill_menu(menu, ask, model, row, chats, pinned)
    for entry in menu.actions():
        for action in entry.menu().actions() if entry.menu() else [entry]:
            heard.clear()
            action.trigger()
            if heard:
                (found[action.text().partition("\t")[0]],) = heard
    return found


def test_one_chat(model: ChatListModel) -> None:
    assert asked(model, (CHAT, 3), [3], True) == {
        "Open": ("open", 3), "Rename": ("begin_rename", 3), "Suggest a title": ("suggest_title", 3),
        "Unpin": ("pin", [3], False),
        "New folder": ("move_to_new_folder", [3]), "No folder": ("move", [3], 0),
        "R&&D": ("move", [3], 7), "    Inner": ("move", [3], 8),
        "Export…": ("export", [3]), "Delete": ("delete", [3]),
    }  # fmt: skip


def test_the_key_that_deletes_is_named_as_the_system_does(
    model: ChatListModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("desktop.views.sidebar.context_menu.native", lambda keys: f"<{keys}>")
    for row, words in (((CHAT, 3), "Delete"), ((FOLDER, 7), "Remove…")):
        menu = QMenu()
        fill_menu(menu, ChatListRequests(), model, row, [3], False)
        assert menu.actions()[-1].text() == f"{words}\t<Del>"


def test_several_chats(model: ChatListModel) -> None:
    found = asked(model, (CHAT, 3), [3, 4], False)
    assert found["Pin 2 chats"] == ("pin", [3, 4], True)
    assert found["Delete 2 chats"] == ("delete", [3, 4])
    assert not {"Open", "Rename", "Suggest a title"} & set(found)


def test_a_folder_and_the_empty_space(model: ChatListModel) -> None:
    is_open = 7 in model.open_folders
    assert asked(model, (FOLDER, 7), [], False) == {
        "New chat in this folder": ("new_chat", 7),
        "Close" if is_open else "Open": ("open_folder", 7, not is_open),
        "Rename": ("begin_rename_folder", 7), "New subfolder": ("new_folder", 7),
        "Settings and prompt…": ("edit_folder", 7), "Move up": ("step_folder", 7, -1),
        "Move down": ("step_folder", 7, 1), "Remove…": ("remove_folder", 7),
    }  # fmt: skip
    assert asked(model, (CHAT, 0), [], False) == {"New folder": ("new_folder", 0)}
