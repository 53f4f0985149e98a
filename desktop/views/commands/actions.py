"""The table of commands: one row holds all that menus, keys, palette and slash commands know of a command.

To add one, write its row here and its function in a controller, which offers it by name in `commands()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from desktop.items.chats.messages import MESSAGE_ROLE, MessageItem
from desktop.items.models.local_models import starter_words
from desktop.services.session.chat_session import ChatSession
from desktop.services.system import speech
from engine.words import N_, _, translate

__all__ = ["COMMANDS", "ELSEWHERE", "MENUS", "Command", "always", "command_words"]

WhyNot = Callable[[ChatSession], str]


MENUS = (N_("File"), N_("Edit"), N_("Chat"), N_("View"), N_("Help"))
"""The titles of the menus, in the order of the menu bar."""


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
    return lambda session: _("This is not available in a notebook.") if session.notebook else why_not(session)


def _no_model(session: ChatSession) -> str:
    return "" if session.model is not None else _("No model is loaded.")


def no_pictures(session: ChatSession) -> str:
    """Why no pictures can be attached now; "" if they can."""
    return session.model.why_no_pictures if session.model is not None else ""


def _no_chat(session: ChatSession) -> str:
    return "" if session.conversation else _("No chat is open.")


def _cannot_name(session: ChatSession) -> str:
    return _("Temporary chats have no titles.") if session.temporary else _no_message(session)


def _saved(session: ChatSession) -> str:
    return "" if session.temporary else _("This chat is already saved.")


def _nothing_runs(session: ChatSession) -> str:
    # While nothing runs, Esc belongs to the focused widget: it clears a selection or ends an edit.
    runs = session.state not in ("no_model", "idle") or session.tools.running_in(session.conversation)
    return "" if runs else _("No reply is being written.")


def _no_message(session: ChatSession) -> str:
    return "" if session.messages.rowCount() or session.notebook else _("This chat has no messages yet.")


def _message(session: ChatSession, row: int) -> MessageItem:
    item: MessageItem = session.messages.index(row, 0).data(MESSAGE_ROLE)
    return item


def _no_reply(session: ChatSession) -> str:
    rows = reversed(range(session.messages.rowCount()))
    found = session.notebook or any(_message(session, row).role == "assistant" for row in rows)
    return "" if found else _("This chat has no reply yet.")


def _no_speech(session: ChatSession) -> str:
    if speech.find_speech_program() is None:
        return _("No program that reads text aloud was found on this system.")
    return _no_reply(session)


def _last_reply(session: ChatSession) -> MessageItem | None:
    rows = session.messages.rowCount()
    last = _message(session, rows - 1) if rows else None
    return last if last is not None and last.role == "assistant" else None


def _no_last_reply(session: ChatSession) -> str:
    found = session.notebook or _last_reply(session) is not None
    return "" if found else _("This chat does not end with a reply.")


def _cannot_continue(session: ChatSession) -> str:
    lacks = session.model.why_not("continue") if session.model is not None and not session.notebook else ""
    return _no_last_reply(session) or lacks


def _cannot_open(session: ChatSession) -> str:
    return session.model.why_not("continue") if session.model is not None else ""


def _no_switch(session: ChatSession) -> str:
    return session.adapted.why_not_thinking if session.adapted is not None else _no_model(session)


def _no_version_before(session: ChatSession) -> str:
    reply = _last_reply(session)
    return _one_version(reply) or ("" if reply and reply.variant_index else _("This is the first version."))


def _no_version_after(session: ChatSession) -> str:
    reply = _last_reply(session)
    more = reply is not None and reply.variant_index + 1 < reply.variant_count
    return _one_version(reply) or ("" if more else _("This is the last version."))


def _no_versions(session: ChatSession) -> str:
    return _one_version(_last_reply(session))


def _nothing_to_answer(session: ChatSession) -> str:
    return _no_model(session) or (_("A reply is being written.") if session.state != "idle" else "")


def _one_version(reply: MessageItem | None) -> str:
    if reply is None:
        return _("This chat does not end with a reply.")
    return "" if reply.variant_count > 1 else _("The last reply has only one version.")


COMMANDS: tuple[Command, ...] = (
    Command("new_chat", "File", N_("New chat"), ("Ctrl+N", "Ctrl+Shift+O"),
            slash="new", words="conversation start create"),
    Command("new_temporary", "File", N_("New temporary chat"), ("Ctrl+Shift+N",), slash="temp"),
    Command("new_notebook", "File", N_("New notebook"), ("Ctrl+Shift+K",)),
    Command("new_temporary_notebook", "File", N_("New temporary notebook")),
    Command("new_folder", "File", N_("New folder"), ("Ctrl+Shift+D",), words="group directory organise"),
    Command("", "File"),
    Command("library", "File", N_("Model library…"), ("Ctrl+Shift+M",),
            words="models manage browse"),
    Command("get_models", "File", N_("Get models…"), words="download recommended hub hugging face"),
    Command("servers", "File", N_("Models on servers…"),
            words="remote provider openai api vllm ollama llama.cpp lm studio sglang"),
    Command("tools", "File", N_("Tools…"), words="mcp model context protocol servers functions plugins"),
    Command("open_file", "File", N_("Open model file…"), ("Ctrl+O",), words="gguf load"),
    Command("open_folder", "File", N_("Open model folder…"), words="safetensors load"),
    Command("starter", "File", N_("Download starter model")),
    Command("unload", "File", N_("Unload the model"), why_not=_no_model,
            words="eject free memory close model"),
    Command("reload", "File", N_("Reload the model"), why_not=_no_model, words="restart apply"),
    Command("", "File"),
    Command("import_chats", "File", N_("Import chats…"),
            words="chatgpt claude lm studio gpt4all open webui json"),
    Command("export_chat", "File", N_("Export chat…"), ("Ctrl+Shift+E",),
            why_not=_no_message, slash="export", words="save markdown html pdf json share"),
    Command("export_all", "File", N_("Export all chats…"), words="save markdown html json backup share"),
    Command("restore_backup", "File", N_("Restore from a backup…"), words="recover snapshot"),
    Command("move_data", "File", N_("Move data…"), words="folder disk drive location where chats are kept"),
    Command("", "File"),
    Command("quit", "File", N_("Quit"), ("Ctrl+Q",), words="exit close"),
    Command("undo", "Edit", N_("Undo delete"), ("Ctrl+Z",)),
    Command("", "Edit"),
    Command("cut", "Edit", N_("Cut"), ("Ctrl+X",)),
    Command("copy", "Edit", N_("Copy"), ("Ctrl+C",)),
    Command("paste", "Edit", N_("Paste"), ("Ctrl+V",)),
    Command("select_all", "Edit", N_("Select all"), ("Ctrl+A",)),
    Command("", "Edit"),
    Command("copy_reply", "Edit", N_("Copy the last reply"), ("Ctrl+Shift+C",),
            why_not=_no_reply, words="clipboard answer"),
    Command("copy_code", "Edit", N_("Copy the last block of code"), ("Ctrl+Shift+;",),
            why_not=_chats_only(_no_reply), words="clipboard snippet program"),
    Command("copy_chat", "Edit", N_("Copy chat as Markdown"), why_not=_no_message),
    Command("", "Edit"),
    Command("find", "Edit", N_("Find in this chat"), ("Ctrl+F",),
            why_not=_no_message, slash="find", words="search in page"),
    Command("search", "Edit", N_("Search chats"), ("Ctrl+Shift+F",), words="find history messages"),
    Command("search_settings", "Edit", N_("Search settings")),
    Command("", "Edit"),
    Command("preferences", "Edit", N_("Preferences…"), ("Ctrl+,",),
            words="options configuration appearance theme dark behaviour notifications language"),
    Command("stop", "Chat", N_("Stop"), ("Esc",), why_not=_nothing_runs),
    Command("regenerate", "Chat", N_("Regenerate the last reply"), ("Ctrl+R",),
            why_not=_no_message, slash="regenerate", words="retry again another answer redo"),
    Command("continue", "Chat", N_("Continue the last reply"), ("Alt+Return", "Alt+Enter"),
            why_not=_cannot_continue, slash="continue", words="go on write more"),
    Command("several", "Chat", N_("Generate several replies"), ("Ctrl+Shift+S",),
            why_not=_chats_only(_nothing_to_answer), slash="several",
            words="best of n candidates alternatives swipes choose seeds"),
    Command("compare", "Chat", N_("Compare replies side by side…"), ("Ctrl+Shift+X",),
            why_not=_chats_only(_nothing_to_answer), slash="compare",
            words="side by side models presets personas settings arena columns"),
    Command("versions", "Chat", N_("Compare the versions of the last reply"),
            why_not=_chats_only(_no_versions), words="side by side variants"),
    Command("previous_variant", "Chat", N_("Previous version of the last reply"), ("Alt+Left",),
            why_not=_chats_only(_no_version_before), words="variant swipe back"),
    Command("next_variant", "Chat", N_("Next version of the last reply"), ("Alt+Right",),
            why_not=_chats_only(_no_version_after), words="variant swipe forward"),
    Command("", "Chat"),
    Command("attach", "Chat", N_("Attach files…"), ("Ctrl+U",),
            why_not=_chats_only(), slash="attach", words="file pdf word excel document csv upload"),
    Command("attach_pictures", "Chat", N_("Attach pictures…"),
            why_not=_chats_only(no_pictures), words="image photo screenshot upload vision"),
    Command("emoji", "Chat", N_("Insert an emoji…"), ("Ctrl+E",),
            why_not=_chats_only(), words="smiley emoticon symbol picker face"),
    Command("opening", "Chat", N_("Start the reply with…"), ("Ctrl+Shift+B",),
            why_not=_chats_only(_cannot_open), words="prefill begin"),
    Command("prompts", "Chat", N_("Saved prompts…"), ("Ctrl+Shift+L",),
            why_not=_chats_only(), slash="prompts", words="library templates snippets"),
    Command("thinking", "Chat", N_("Choose how much the model thinks…"),
            why_not=_chats_only(_no_switch), words="reasoning effort think budget"),
    Command("fork", "Chat", N_("Fork from the last message"),
            why_not=_chats_only(_no_message), slash="fork", words="branch split copy"),
    Command("", "Chat"),
    Command("persona", "Chat", N_("Choose a persona…"), ("Ctrl+Shift+A",),
            why_not=_chats_only(), slash="persona", words="character assistant role"),
    Command("personas", "Chat", N_("Manage personas…"), words="character assistant role edit"),
    Command("roles", "Chat", N_("Participants…"), ("Ctrl+Shift+R",),
            why_not=_chats_only(), slash="roles"),
    Command("keep", "Chat", N_("Keep the temporary chat"), why_not=_saved),
    Command("", "Chat"),
    Command("rename", "Chat", N_("Rename chat"), ("F2",), why_not=_no_chat, words="title"),
    Command("suggest_title", "Chat", N_("Suggest a title"), why_not=_chats_only(_cannot_name),
            words="name rename automatic generate"),
    Command("pin", "Chat", N_("Pin chat"), words="favourite star keep at the top unpin"),
    Command("local_only", "Chat", N_("This computer only"), why_not=_no_chat,
            words="private local offline never send server pin"),
    Command("delete_chat", "Chat", N_("Delete chat"), why_not=_no_chat, words="remove trash"),
    Command("palette", "View", N_("Command palette…"), ("Ctrl+K", "Ctrl+Shift+P"),
            words="command everything"),
    Command("", "View"),
    Command("write", "View", N_("Write a message"), ("Ctrl+L",), words="focus composer message box input"),
    Command("next_chat", "View", N_("Go to the next chat in the list"), ("Ctrl+PgDown",),
            words="below older switch down conversation"),
    Command("previous_chat", "View", N_("Go to the previous chat in the list"), ("Ctrl+PgUp",),
            words="above newer switch up conversation"),
    Command("next_pane", "View", N_("Go to the next pane"), ("F6",)),
    Command("previous_pane", "View", N_("Go to the previous pane"), ("Shift+F6",)),
    Command("", "View"),
    Command("sidebar", "View", N_("Chats"), ("Ctrl+B",), words="toggle history panel conversations"),
    Command("trash", "View", N_("Trash"), words="deleted chats bin restore recycle"),
    Command("inspector", "View", N_("Settings"), ("Ctrl+.",),
            words="toggle panel options parameters"),
    Command("tokens", "View", N_("Show token colours"), ("Ctrl+Shift+T",), words="probabilities logits"),
    Command("reading", "View", N_("Read messages with the caret"), ("F7",),
            why_not=_chats_only(_no_message),
            words="screen reader caret browsing accessibility blind headings tables"),
    Command("read_aloud", "View", N_("Read the last reply aloud"), ("Ctrl+Shift+H",),
            why_not=_chats_only(_no_speech), words="speak speech voice listen tts stop reading"),
    Command("origin", "View", N_("Details of the last reply…"), ("Ctrl+I",),
            why_not=_no_reply, words="prompt rendered tokens seed reproduce replay provenance details"),
    Command("figures", "View", N_("Chat statistics…"), ("Ctrl+Shift+G",),
            words="statistics speed tokens per second plot chart"),
    Command("context", "View", N_("Show context usage"),
            why_not=_chats_only(), words="window meter tokens used"),
    Command("", "View"),
    Command("larger", "View", N_("Larger text"), ("Ctrl++", "Ctrl+="), words="zoom in font bigger"),
    Command("smaller", "View", N_("Smaller text"), ("Ctrl+-",), words="zoom out font"),
    Command("normal", "View", N_("Normal text size"), ("Ctrl+0",), words="zoom reset font"),
    Command("shortcuts", "Help", N_("Keyboard shortcuts…"), ("Ctrl+/",),
            slash="help", words="keys hotkeys bindings keyboard"),
    Command("", "Help"),
    Command("local_server", "Help", N_("Local server…"),
            words="api openai http rest serve endpoint other programs port token"),
    Command("log", "Help", N_("Show log"), words="debug trouble errors"),
    Command("updates", "Help", N_("Check for updates…"), words="upgrade new version release roll back"),
    Command("menu_entry", "Help", N_("Applications menu…"), words="desktop entry icon install"),
    Command("", "Help"),
    Command("about", "Help", N_("About Inglenook"), words="version licence license"),
)  # fmt: skip


def command_words(command: Command) -> str:
    """The menu entry of a command in the user's language."""
    return starter_words() if command.name == "starter" else translate(command.text)


ELSEWHERE = (
    (N_("Send the message"), N_("Enter")),
    (N_("New line in the message"), N_("Shift+Enter")),
    (N_("At the start of a message: show commands and saved prompts"), "/"),
    (N_("Save an edited message without a new reply"), N_("Ctrl+Shift+Enter")),
    (N_("In an empty message box: edit your last message"), N_("Up")),
    (N_("In a reply with token colours: go from token to token"), N_("Arrows")),
    (N_("Show the alternatives to a token"), N_("Enter")),
    (N_("In a notebook: let the model continue the text"), N_("Ctrl+Enter")),
    (N_("In a notebook: show the alternatives to a token"), N_("Alt+Down")),
    (N_("In a comparison: keep the first, second, … reply"), N_("Ctrl+1 – Ctrl+8")),
    (N_("Close a comparison when no reply is being written"), N_("Esc")),
    (N_("Go to the beginning or the end of the chat"), N_("Home, End")),
    (N_("Scroll the chat by a page"), N_("Space, Shift+Space")),
    (N_("Open the menu of a message, a chat or a text box"), N_("Menu, Shift+F10")),
    (N_("Save an edited message; cancel editing"), N_("Ctrl+Enter, Esc")),
    (N_("Go to the next or previous match"), N_("Enter, Shift+Enter")),
    (N_("Go from the search box to the list of chats"), N_("Down")),
    (N_("Limit the command palette to one kind of result"), N_("Tab, Shift+Tab")),
    (N_("Search the model library; look for models again"), N_("Ctrl+F, F5")),
    (N_("Go to the next or previous control"), N_("Tab, Shift+Tab")),
    (N_("Open the menus"), "F10, Alt"),
    (N_("In the list of chats: open or close a folder"), N_("Right or Left")),
    (N_("In the list of chats: select several chats, or all"), N_("Shift+Arrows, Ctrl+A")),
    (N_("In the list of chats: delete the selected chats"), N_("Delete")),
)
"""Keys that belong to one place in the window, not to a menu: what they do, and the keys."""
