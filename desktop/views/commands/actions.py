"""Every command of the window, once: its menu, its words, its keys.

Menus, shortcuts and their list are made from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMainWindow, QMenu

from desktop.items.models.local_models import STARTER_SIZE
from desktop.views.layout.bidi import isolated

__all__ = ["COMMANDS", "ELSEWHERE", "Command", "add_menus", "with_mnemonics"]


@dataclass(frozen=True)
class Command:
    """One command. An empty `text` begins a new section of its menu; `keys[0]` is shown in the menu."""

    name: str
    menu: str
    text: str = ""
    keys: tuple[str, ...] = ()


COMMANDS: tuple[Command, ...] = (
    Command("new_chat", "File", "New chat", ("Ctrl+N", "Ctrl+Shift+O")),
    Command("new_temporary", "File", "New temporary chat", ("Ctrl+Shift+N",)),
    Command("new_notebook", "File", "New notebook", ("Ctrl+Shift+K",)),
    Command("new_temporary_notebook", "File", "New temporary notebook"),
    Command("new_folder", "File", "New folder", ("Ctrl+Shift+D",)),
    Command("", "File"),
    Command("library", "File", "Model library…", ("Ctrl+Shift+M",)),
    Command("open_file", "File", "Open model file…", ("Ctrl+O",)),
    Command("open_folder", "File", "Open model folder…"),
    Command("starter", "File", f"Download starter model ({STARTER_SIZE})"),
    Command("unload", "File", "Unload the model"),
    Command("reload", "File", "Load the model again"),
    Command("", "File"),
    Command("import_chats", "File", "Import chats…"),
    Command("export_chat", "File", "Export chat…", ("Ctrl+Shift+E",)),
    Command("export_all", "File", "Export all chats…"),
    Command("restore_backup", "File", "Restore from a backup…"),
    Command("", "File"),
    Command("quit", "File", "Quit", ("Ctrl+Q",)),
    Command("undo", "Edit", "Undo delete", ("Ctrl+Z",)),
    Command("", "Edit"),
    Command("cut", "Edit", "Cut", ("Ctrl+X",)),
    Command("copy", "Edit", "Copy", ("Ctrl+C",)),
    Command("paste", "Edit", "Paste", ("Ctrl+V",)),
    Command("select_all", "Edit", "Select all", ("Ctrl+A",)),
    Command("", "Edit"),
    Command("copy_reply", "Edit", "Copy the last reply", ("Ctrl+Shift+C",)),
    Command("copy_chat", "Edit", "Copy chat as Markdown"),
    Command("", "Edit"),
    Command("find", "Edit", "Find in this chat", ("Ctrl+F",)),
    Command("search", "Edit", "Search chats", ("Ctrl+Shift+F",)),
    Command("search_settings", "Edit", "Search settings"),
    Command("stop", "Chat", "Stop", ("Esc",)),
    Command("regenerate", "Chat", "Regenerate the last reply", ("Ctrl+R",)),
    Command("continue", "Chat", "Continue the last reply", ("Alt+Return", "Alt+Enter")),
    Command("previous_variant", "Chat", "Previous version of the last reply", ("Alt+Left",)),
    Command("next_variant", "Chat", "Next version of the last reply", ("Alt+Right",)),
    Command("origin", "Chat", "What produced the last reply…", ("Ctrl+I",)),
    Command("", "Chat"),
    Command("attach", "Chat", "Attach files…", ("Ctrl+U",)),
    Command("opening", "Chat", "Start the reply with…", ("Ctrl+Shift+B",)),
    Command("prompts", "Chat", "Saved prompts…", ("Ctrl+Shift+L",)),
    Command("fork", "Chat", "Fork from the last message"),
    Command("", "Chat"),
    Command("persona", "Chat", "Choose a persona…", ("Ctrl+Shift+A",)),
    Command("personas", "Chat", "Manage personas…"),
    Command("roles", "Chat", "Roles in this chat…", ("Ctrl+Shift+R",)),
    Command("keep", "Chat", "Keep the temporary chat"),
    Command("", "Chat"),
    Command("rename", "Chat", "Rename chat", ("F2",)),
    Command("pin", "Chat", "Pin or unpin chat"),
    Command("delete_chat", "Chat", "Delete chat"),
    Command("palette", "View", "Command palette…", ("Ctrl+K", "Ctrl+Shift+P")),
    Command("", "View"),
    Command("write", "View", "Write a message", ("Ctrl+L",)),
    Command("next_pane", "View", "Go to the next pane", ("F6",)),
    Command("previous_pane", "View", "Go to the previous pane", ("Shift+F6",)),
    Command("", "View"),
    Command("sidebar", "View", "Chats", ("Ctrl+B",)),
    Command("trash", "View", "Trash"),
    Command("inspector", "View", "Settings", ("Ctrl+.", "Ctrl+,")),
    Command("tokens", "View", "Inspect tokens", ("Ctrl+Shift+T",)),
    Command("figures", "View", "Figures of this chat…", ("Ctrl+Shift+G",)),
    Command("context", "View", "What fills the context"),
    Command("", "View"),
    Command("larger", "View", "Larger text", ("Ctrl++", "Ctrl+=")),
    Command("smaller", "View", "Smaller text", ("Ctrl+-",)),
    Command("normal", "View", "Normal text size", ("Ctrl+0",)),
    Command("shortcuts", "Help", "Keyboard shortcuts…", ("Ctrl+/",)),
    Command("", "Help"),
    Command("log", "Help", "Show log"),
    Command("menu_entry", "Help", "Applications menu…"),
    Command("", "Help"),
    Command("about", "Help", "About Inglenook"),
)

ELSEWHERE = (
    ("Send the message", "Enter"),
    ("New line in the message", "Shift+Enter"),
    ("Saved prompts and commands, at the start of a message", "/"),
    ("Save an edited message without an answer", "Ctrl+Shift+Enter"),
    ("Edit your last message, in an empty message box", "Up"),
    ("Go from token to token, in a reply whose tokens are shown", "Arrows"),
    ("Show what could have stood in a token's place", "Enter"),
    ("Let the model write on, in a notebook", "Ctrl+Enter"),
    ("Show what could have stood in a token's place, in a notebook", "Alt+Down"),
    ("Go to the beginning or the end of the conversation", "Home, End"),
    ("Page through the conversation", "Space, Shift+Space"),
    ("What can be done with a message, a chat or a text", "Menu, Shift+F10"),
    ("Save an edited message; leave it as it was", "Ctrl+Enter, Esc"),
    ("Next and previous place that was found", "Enter, Shift+Enter"),
    ("Go from the search box into the list of chats", "Down"),
    ("Narrow the command palette to one kind of thing", "Tab, Shift+Tab"),
    ("Search the model library; look again for models", "Ctrl+F, F5"),
    ("Go from control to control", "Tab, Shift+Tab"),
    ("Open the menus", "F10, Alt"),
    ("Open or close a folder, in the list of chats", "Right or Left"),
    ("Choose several, or all, in the list of chats", "Shift+Arrows, Ctrl+A"),
    ("Delete what is chosen, in the list of chats", "Delete"),
)
"""Keys that belong to a place in the window and not to a menu."""


def add_menus(window: QMainWindow, handlers: Mapping[str, Callable[[], object]]) -> dict[str, QAction]:
    """Make the menu bar, without keys; returns the actions by name.

    Raises KeyError for a command without a handler.
    """
    titles = list(dict.fromkeys(command.menu for command in COMMANDS))
    menus = {
        title: window.menuBar().addMenu(shown)
        for title, shown in zip(titles, with_mnemonics(titles), strict=True)
    }
    for menu in menus.values():
        menu.setToolTipsVisible(True)
        menu.aboutToShow.connect(lambda menu=menu: _mark_letters(menu))
    actions: dict[str, QAction] = {}
    for command in COMMANDS:
        if not command.text:
            menus[command.menu].addSeparator()
            continue
        handler = handlers[command.name]
        action = menus[command.menu].addAction(command.text)
        action.triggered.connect(lambda _checked=False, handler=handler: handler())
        actions[command.name] = action
    return actions


def _mark_letters(menu: QMenu) -> None:
    """Every entry gets a letter of its own, whatever its words are at the moment."""
    shown = [action for action in menu.actions() if not action.isSeparator()]
    for action, text in zip(shown, with_mnemonics(action.text() for action in shown), strict=True):
        action.setText(isolated(text))


def with_mnemonics(texts: Iterable[str]) -> list[str]:
    """The texts with an "&" before a letter that no other has: the first of a word where there is one
    left.
    """
    marked, taken = [], set()
    for text in texts:
        plain = text.replace("&", "")
        starts = [
            place
            for place, letter in enumerate(plain)
            if letter.isalnum() and (place == 0 or plain[place - 1] == " ")
        ]
        others = [place for place, letter in enumerate(plain) if letter.isalnum() and place not in starts]
        place = next((place for place in (*starts, *others) if plain[place].casefold() not in taken), -1)
        if place >= 0:
            taken.add(plain[place].casefold())
            plain = f"{plain[:place]}&{plain[place:]}"
        marked.append(plain)
    return marked
