"""Every command of the window, once: its menu, its words, its keys. Menus, shortcuts and their list are made from this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLabel, QMainWindow, QScrollArea, QVBoxLayout, QWidget

__all__ = ["COMMANDS", "Command", "ShortcutsDialog", "add_menus"]


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
    Command("starter", "File", "Download starter model (98 MB)"),
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
    Command("copy_reply", "Edit", "Copy the last reply", ("Ctrl+Shift+C",)),
    Command("copy_chat", "Edit", "Copy chat as Markdown"),
    Command("search", "Edit", "Search chats", ("Ctrl+K",)),
    Command("find", "Edit", "Find in this chat", ("Ctrl+F",)),
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
    Command("keep", "Chat", "Keep the temporary chat"),
    Command("", "Chat"),
    Command("rename", "Chat", "Rename chat", ("F2",)),
    Command("pin", "Chat", "Pin or unpin chat"),
    Command("delete_chat", "Chat", "Delete chat"),
    Command("write", "View", "Write a message", ("Ctrl+L",)),
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
    Command("shortcuts", "Help", "Keyboard shortcuts", ("Ctrl+/",)),
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
    ("Select the whole conversation, in the conversation", "Ctrl+A"),
    ("Open or close a folder, in the list of chats", "Right or Left"),
    ("Choose several, or all, in the list of chats", "Shift+Arrows, Ctrl+A"),
    ("Delete what is chosen, in the list of chats", "Delete"),
)
"""Keys that belong to a place in the window and not to a menu."""


def add_menus(window: QMainWindow, handlers: Mapping[str, Callable[[], object]]) -> dict[str, QAction]:
    """Make the menu bar; returns the actions by name. Raises KeyError for a command without a handler."""
    menus = {name: window.menuBar().addMenu(f"&{name}") for name in dict.fromkeys(command.menu for command in COMMANDS)}
    actions: dict[str, QAction] = {}
    for command in COMMANDS:
        if not command.text:
            menus[command.menu].addSeparator()
            continue
        handler = handlers[command.name]
        action = menus[command.menu].addAction(command.text)
        action.setShortcuts([QKeySequence(keys) for keys in command.keys])
        action.triggered.connect(lambda _checked=False, handler=handler: handler())
        actions[command.name] = action
    return actions


class ShortcutsDialog(QDialog):
    """The list of all keys."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        table = QWidget()
        grid = QGridLayout(table)
        grid.setHorizontalSpacing(32)
        rows = [*ELSEWHERE, *((c.text, _words(c.keys)) for c in COMMANDS if c.keys)]
        for row, (text, keys) in enumerate(rows):
            grid.addWidget(QLabel(text), row, 0)
            label = QLabel(keys)
            label.setProperty("tone", "muted")
            grid.addWidget(label, row, 1)
        scroll = QScrollArea()
        scroll.setWidget(table)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.addWidget(scroll)
        layout.addWidget(buttons)
        size = table.sizeHint()
        self.resize(min(size.width() + 70, parent.width()), min(size.height() + 90, parent.height()))


def _words(keys: tuple[str, ...]) -> str:
    return "  or  ".join(QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText) for key in keys)
