"""The table of commands: one row holds all that menus, keys, palette and slash commands know of a command.

To add one, write its row here and its function in a controller, which offers it by name in `commands()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from desktop.items.chats.messages import MESSAGE_ROLE, MessageItem
from desktop.items.models.local_models import starter_words
from desktop.services.session.chat_session import ChatSession

__all__ = ["COMMANDS", "ELSEWHERE", "Command", "always"]

WhyNot = Callable[[ChatSession], str]


def always(session: ChatSession) -> str:
    """For a command that is never disabled."""
    return ""


class Command(NamedTuple):
    """One command. Its handler is what a controller offers under `name` in its `commands()`.

    Attributes:
        text: its menu entry; "" begins a new section of the menu.
        keys: as Qt writes them; the first is shown in the menu.
        why_not: why the command is disabled, "" while it is not.
        slash: the word that runs it from the message box.
        words: what other programs call it, so that the palette finds it.
    """

    name: str
    menu: str
    text: str = ""
    keys: tuple[str, ...] = ()
    why_not: WhyNot = always
    slash: str = ""
    words: str = ""


# -- why a command is disabled


def _chats_only(why_not: WhyNot = always) -> WhyNot:
    return lambda session: "This is not available in a notebook." if session.notebook else why_not(session)


def _no_model(session: ChatSession) -> str:
    return "" if session.model is not None else "No model is loaded."


def _no_chat(session: ChatSession) -> str:
    return "" if session.conversation else "No chat is open."


def _saved(session: ChatSession) -> str:
    return "" if session.temporary else "This chat is already saved."


def _nothing_runs(session: ChatSession) -> str:
    # While nothing runs, Esc belongs to the focused widget: it clears a selection or ends an edit.
    return "" if session.state not in ("no_model", "idle") else "No reply is being written."


def _no_message(session: ChatSession) -> str:
    return "" if session.messages.rowCount() or session.notebook else "This chat has no messages yet."


def _message(session: ChatSession, row: int) -> MessageItem:
    item: MessageItem = session.messages.index(row, 0).data(MESSAGE_ROLE)
    return item


def _no_reply(session: ChatSession) -> str:
    rows = reversed(range(session.messages.rowCount()))
    found = session.notebook or any(_message(session, row).role == "assistant" for row in rows)
    return "" if found else "This chat has no reply yet."


def _last_reply(session: ChatSession) -> MessageItem | None:
    rows = session.messages.rowCount()
    last = _message(session, rows - 1) if rows else None
    return last if last is not None and last.role == "assistant" else None


def _no_last_reply(session: ChatSession) -> str:
    found = session.notebook or _last_reply(session) is not None
    return "" if found else "This chat does not end with a reply."


def _cannot_continue(session: ChatSession) -> str:
    lacks = session.model.why_not("continue") if session.model is not None and not session.notebook else ""
    return _no_last_reply(session) or lacks


def _cannot_open(session: ChatSession) -> str:
    return session.model.why_not("continue") if session.model is not None else ""


def _no_switch(session: ChatSession) -> str:
    return session.model.why_not_thinking if session.model is not None else _no_model(session)


def _no_version_before(session: ChatSession) -> str:
    reply = _last_reply(session)
    return _one_version(reply) or ("" if reply and reply.variant_index else "This is the first version.")


def _no_version_after(session: ChatSession) -> str:
    reply = _last_reply(session)
    more = reply is not None and reply.variant_index + 1 < reply.variant_count
    return _one_version(reply) or ("" if more else "This is the last version.")


def _no_versions(session: ChatSession) -> str:
    return _one_version(_last_reply(session))


def _nothing_to_answer(session: ChatSession) -> str:
    return _no_model(session) or ("A reply is being written." if session.state != "idle" else "")


def _one_version(reply: MessageItem | None) -> str:
    if reply is None:
        return "This chat does not end with a reply."
    return "" if reply.variant_count > 1 else "The last reply has only one version."


COMMANDS: tuple[Command, ...] = (
    Command("new_chat", "File", "New chat", ("Ctrl+N", "Ctrl+Shift+O"),
            slash="new", words="conversation start create"),
    Command("new_temporary", "File", "New temporary chat", ("Ctrl+Shift+N",), slash="temp"),
    Command("new_notebook", "File", "New notebook", ("Ctrl+Shift+K",)),
    Command("new_temporary_notebook", "File", "New temporary notebook"),
    Command("new_folder", "File", "New folder", ("Ctrl+Shift+D",), words="group directory organise"),
    Command("", "File"),
    Command("library", "File", "Model library…", ("Ctrl+Shift+M",),
            words="models download manage browse hub"),
    Command("servers", "File", "Models on servers…",
            words="remote provider openai api vllm ollama llama.cpp lm studio sglang"),
    Command("open_file", "File", "Open model file…", ("Ctrl+O",), words="gguf load"),
    Command("open_folder", "File", "Open model folder…", words="safetensors load"),
    Command("starter", "File", starter_words()),
    Command("unload", "File", "Unload the model", why_not=_no_model, words="eject free memory close model"),
    Command("reload", "File", "Reload the model", why_not=_no_model, words="restart apply"),
    Command("", "File"),
    Command("import_chats", "File", "Import chats…",
            words="chatgpt claude lm studio gpt4all open webui json"),
    Command("export_chat", "File", "Export chat…", ("Ctrl+Shift+E",),
            why_not=_no_message, slash="export", words="save markdown html pdf json share"),
    Command("export_all", "File", "Export all chats…", words="save markdown html json backup share"),
    Command("restore_backup", "File", "Restore from a backup…", words="recover snapshot"),
    Command("move_data", "File", "Move data…", words="folder disk drive location where chats are kept"),
    Command("", "File"),
    Command("quit", "File", "Quit", ("Ctrl+Q",), words="exit close"),
    Command("undo", "Edit", "Undo delete", ("Ctrl+Z",)),
    Command("", "Edit"),
    Command("cut", "Edit", "Cut", ("Ctrl+X",)),
    Command("copy", "Edit", "Copy", ("Ctrl+C",)),
    Command("paste", "Edit", "Paste", ("Ctrl+V",)),
    Command("select_all", "Edit", "Select all", ("Ctrl+A",)),
    Command("", "Edit"),
    Command("copy_reply", "Edit", "Copy the last reply", ("Ctrl+Shift+C",),
            why_not=_no_reply, words="clipboard answer"),
    Command("copy_chat", "Edit", "Copy chat as Markdown", why_not=_no_message),
    Command("", "Edit"),
    Command("find", "Edit", "Find in this chat", ("Ctrl+F",),
            why_not=_no_message, slash="find", words="search in page"),
    Command("search", "Edit", "Search chats", ("Ctrl+Shift+F",), words="find history messages"),
    Command("search_settings", "Edit", "Search settings"),
    Command("", "Edit"),
    Command("preferences", "Edit", "Preferences…", ("Ctrl+,",),
            words="options configuration appearance theme dark behaviour notifications language"),
    Command("stop", "Chat", "Stop", ("Esc",), why_not=_nothing_runs),
    Command("regenerate", "Chat", "Regenerate the last reply", ("Ctrl+R",),
            why_not=_no_message, slash="regenerate", words="retry again another answer redo"),
    Command("continue", "Chat", "Continue the last reply", ("Alt+Return", "Alt+Enter"),
            why_not=_cannot_continue, slash="continue", words="go on write more"),
    Command("several", "Chat", "Generate several replies", ("Ctrl+Shift+S",),
            why_not=_chats_only(_nothing_to_answer), slash="several",
            words="best of n candidates alternatives swipes choose seeds"),
    Command("compare", "Chat", "Compare replies side by side…", ("Ctrl+Shift+X",),
            why_not=_chats_only(_nothing_to_answer), slash="compare",
            words="side by side models presets personas settings arena columns"),
    Command("versions", "Chat", "Compare the versions of the last reply",
            why_not=_chats_only(_no_versions), words="side by side variants"),
    Command("previous_variant", "Chat", "Previous version of the last reply", ("Alt+Left",),
            why_not=_chats_only(_no_version_before), words="variant swipe back"),
    Command("next_variant", "Chat", "Next version of the last reply", ("Alt+Right",),
            why_not=_chats_only(_no_version_after), words="variant swipe forward"),
    Command("origin", "Chat", "Details of the last reply…", ("Ctrl+I",),
            why_not=_no_reply, words="prompt rendered tokens seed reproduce replay provenance details"),
    Command("", "Chat"),
    Command("attach", "Chat", "Attach files…", ("Ctrl+U",),
            why_not=_chats_only(), slash="attach", words="file pdf document csv upload"),
    Command("opening", "Chat", "Start the reply with…", ("Ctrl+Shift+B",),
            why_not=_chats_only(_cannot_open), words="prefill begin"),
    Command("prompts", "Chat", "Saved prompts…", ("Ctrl+Shift+L",),
            why_not=_chats_only(), slash="prompts", words="library templates snippets"),
    Command("thinking", "Chat", "Choose how much the model thinks…",
            why_not=_chats_only(_no_switch), words="reasoning effort think budget"),
    Command("fork", "Chat", "Fork from the last message",
            why_not=_chats_only(_no_message), slash="fork", words="branch split copy"),
    Command("", "Chat"),
    Command("persona", "Chat", "Choose a persona…", ("Ctrl+Shift+A",),
            why_not=_chats_only(), slash="persona", words="character assistant role"),
    Command("personas", "Chat", "Manage personas…", words="character assistant role edit"),
    Command("roles", "Chat", "Participants…", ("Ctrl+Shift+R",), slash="roles"),
    Command("keep", "Chat", "Keep the temporary chat", why_not=_saved),
    Command("", "Chat"),
    Command("rename", "Chat", "Rename chat", ("F2",), why_not=_no_chat, words="title"),
    Command("pin", "Chat", "Pin or unpin chat", words="favourite star keep at the top"),
    Command("local_only", "Chat", "This computer only", why_not=_no_chat,
            words="private local offline never send server pin"),
    Command("delete_chat", "Chat", "Delete chat", why_not=_no_chat, words="remove trash"),
    Command("palette", "View", "Command palette…", ("Ctrl+K", "Ctrl+Shift+P"), words="command everything"),
    Command("", "View"),
    Command("write", "View", "Write a message", ("Ctrl+L",), words="focus composer message box input"),
    Command("next_pane", "View", "Go to the next pane", ("F6",)),
    Command("previous_pane", "View", "Go to the previous pane", ("Shift+F6",)),
    Command("", "View"),
    Command("sidebar", "View", "Chats", ("Ctrl+B",), words="toggle history panel conversations"),
    Command("trash", "View", "Trash", words="deleted chats bin restore recycle"),
    Command("inspector", "View", "Settings", ("Ctrl+.",),
            words="toggle panel options parameters"),
    Command("tokens", "View", "Show token colours", ("Ctrl+Shift+T",), words="probabilities logits"),
    Command("reading", "View", "Read messages with the caret", ("F7",),
            why_not=_chats_only(_no_message),
            words="screen reader caret browsing accessibility blind headings tables"),
    Command("figures", "View", "Chat statistics…", ("Ctrl+Shift+G",),
            words="statistics speed tokens per second plot chart"),
    Command("context", "View", "Show context usage",
            why_not=_chats_only(), words="window meter tokens used"),
    Command("", "View"),
    Command("larger", "View", "Larger text", ("Ctrl++", "Ctrl+="), words="zoom in font bigger"),
    Command("smaller", "View", "Smaller text", ("Ctrl+-",), words="zoom out font"),
    Command("normal", "View", "Normal text size", ("Ctrl+0",), words="zoom reset font"),
    Command("shortcuts", "Help", "Keyboard shortcuts…", ("Ctrl+/",),
            slash="help", words="keys hotkeys bindings keyboard"),
    Command("", "Help"),
    Command("local_server", "Help", "Local server…",
            words="api openai http rest serve endpoint other programs port token"),
    Command("log", "Help", "Show log", words="debug trouble errors"),
    Command("updates", "Help", "Check for updates…", words="upgrade new version release roll back"),
    Command("menu_entry", "Help", "Applications menu…", words="desktop entry icon install"),
    Command("", "Help"),
    Command("about", "Help", "About Inglenook", words="version licence license"),
)  # fmt: skip

ELSEWHERE = (
    ("Send the message", "Enter"),
    ("New line in the message", "Shift+Enter"),
    ("At the start of a message: show commands and saved prompts", "/"),
    ("Save an edited message without a new reply", "Ctrl+Shift+Enter"),
    ("In an empty message box: edit your last message", "Up"),
    ("In a reply with token colours: go from token to token", "Arrows"),
    ("Show the alternatives to a token", "Enter"),
    ("In a notebook: let the model continue the text", "Ctrl+Enter"),
    ("In a notebook: show the alternatives to a token", "Alt+Down"),
    ("In a comparison: keep the first, second, … reply", "Ctrl+1 – Ctrl+8"),
    ("Close a comparison when no reply is being written", "Esc"),
    ("Go to the beginning or the end of the chat", "Home, End"),
    ("Scroll the chat by a page", "Space, Shift+Space"),
    ("Open the menu of a message, a chat or a text box", "Menu, Shift+F10"),
    ("Save an edited message; cancel editing", "Ctrl+Enter, Esc"),
    ("Go to the next or previous match", "Enter, Shift+Enter"),
    ("Go from the search box to the list of chats", "Down"),
    ("Limit the command palette to one kind of result", "Tab, Shift+Tab"),
    ("Search the model library; look for models again", "Ctrl+F, F5"),
    ("Go to the next or previous control", "Tab, Shift+Tab"),
    ("Open the menus", "F10, Alt"),
    ("In the list of chats: open or close a folder", "Right or Left"),
    ("In the list of chats: select several chats, or all", "Shift+Arrows, Ctrl+A"),
    ("In the list of chats: delete the selected chats", "Delete"),
)
"""Keys that belong to one place in the window, not to a menu: what they do, and the keys."""
