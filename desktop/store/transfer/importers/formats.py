"""The table of formats, in the order in which they are tried."""

from __future__ import annotations

from typing import Any

from desktop.store.transfer.importers.databases import DATABASES
from desktop.store.transfer.importers.fields import first_text, items, mapping, text
from desktop.store.transfer.importers.programs.character_cards import CharacterCard
from desktop.store.transfer.importers.programs.chatgpt import ChatGpt
from desktop.store.transfer.importers.programs.claude import Claude
from desktop.store.transfer.importers.programs.coding_agents import ClaudeCode, Codex
from desktop.store.transfer.importers.programs.gemini import Gemini
from desktop.store.transfer.importers.programs.gpt4all import LABEL
from desktop.store.transfer.importers.programs.jan import Jan
from desktop.store.transfer.importers.programs.kobold_lite import KoboldLite
from desktop.store.transfer.importers.programs.le_chat import LeChat
from desktop.store.transfer.importers.programs.llama_cpp import LlamaCpp
from desktop.store.transfer.importers.programs.lm_studio import LmStudio
from desktop.store.transfer.importers.programs.message_lists.joined import LABELS, joined_chats
from desktop.store.transfer.importers.programs.message_lists.programs import JOINED, PROGRAMS
from desktop.store.transfer.importers.programs.open_webui.export import OpenWebUi
from desktop.store.transfer.importers.programs.own import Own
from desktop.store.transfer.importers.programs.perplexity import Perplexity
from desktop.store.transfer.importers.programs.rows import ROWS
from desktop.store.transfer.importers.programs.sharegpt import BareMessages, ShareGpt
from desktop.store.transfer.importers.programs.silly_tavern import SillyTavern
from desktop.store.transfer.importers.programs.textgen import TextGen
from desktop.store.transfer.importers.protocol import Format, LineFormat

__all__ = ["FORMATS", "LINE_FORMATS", "chats_in", "format_of", "labels", "line_format_of"]

FORMATS: tuple[Format, ...] = (
    Own(), JOINED, PROGRAMS[0], ChatGpt(), Claude(), OpenWebUi(), LlamaCpp(), LmStudio(), TextGen(),
    *PROGRAMS[1:], Gemini(), Perplexity(), KoboldLite(), CharacterCard(), ShareGpt(),
)  # fmt: skip
"""DeepSeek's chats look like ChatGPT's at first sight; ShareGPT comes last because it accepts the most."""
LINE_FORMATS: tuple[LineFormat, ...] = (
    Jan(),
    LlamaCpp(),
    SillyTavern(),
    ClaudeCode(),
    Codex(),
    *ROWS,
    LeChat(),
    BareMessages(),
)
_DEEPEST = 3
"""Objects around a list of chats."""


def format_of(value: Any) -> Format | None:
    """The format of which this JSON value is a conversation."""
    return next((found for found in FORMATS if found.recognises(value)), None)


def line_format_of(value: Any) -> LineFormat | None:
    """The format of which a conversation begins with this JSON value."""
    return next((found for found in LINE_FORMATS if found.begins(value)), None)


def labels() -> tuple[str, ...]:
    """The names of the programs whose files can be read: this one, then the others by name."""
    names = {
        *(one.label for one in FORMATS),
        *(one.label for one in LINE_FORMATS),
        *LABELS,
        LABEL,
        *(one[0] for one in DATABASES),
    }
    others = names - {FORMATS[0].label, "", "messages"}
    return FORMATS[0].label, *sorted(others, key=str.casefold)


def chats_in(value: Any) -> list[Any]:
    """The conversations in a value that is none itself, in a list or objects around one; else empty."""
    return joined_chats(value) or _listed(value, _DEEPEST)


def _listed(value: Any, deepest: int) -> list[Any]:
    if isinstance(value, list):
        if line_format_of(next(iter(value), None)) is not None:
            return [{"messages": value}]  # a bare list of messages
        return value if any(format_of(entry) is not None for entry in value) else []
    about = mapping(value)
    for below in about.values():
        if isinstance(below, list) and any(format_of(entry) is not None for entry in below):
            return _in_folders(below, about.get("folders"))
    if any(format_of(below) is not None for below in about.values()):
        return list(about.values())
    inner = (_listed(below, deepest - 1) for below in about.values() if deepest and isinstance(below, dict))
    return next((found for found in inner if found), [])


def _in_folders(chats: list[Any], folders: Any) -> list[Any]:
    """The chats with the names of their folders, which lie beside them in a list or by their ids."""
    known = mapping(folders) or {text(mapping(one).get("id")): one for one in items(folders)}
    names = {
        key: first_text(mapping(one).get("name"), mapping(one).get("title")) for key, one in known.items()
    }
    return [_in_folder(chat, names) for chat in chats] if names else chats


def _in_folder(chat: Any, names: dict[str, str]) -> Any:
    about = mapping(chat)
    ids = (about.get(name) for name in ("folder", "folderID", "folderId"))
    name = next((names[key] for key in ids if isinstance(key, str) and key in names), "")
    return about | {"folderName": name} if name else chat
