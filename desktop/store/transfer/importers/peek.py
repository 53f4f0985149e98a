"""Whether a file is an export of chats, judging by its beginning: a few milliseconds however large it is; and
whether a folder has some.
"""

from __future__ import annotations

import json
import os
import re
from itertools import islice
from pathlib import Path

from desktop.store.transfer.importers.databases import MAGIC as DATABASE
from desktop.store.transfer.importers.databases import has_chats
from desktop.store.transfer.importers.formats import chats_in, format_of, line_format_of
from desktop.store.transfer.importers.programs import gemini_page
from desktop.store.transfer.importers.programs.character_cards import is_card
from desktop.store.transfer.importers.programs.gpt4all import MAGIC
from desktop.store.transfer.importers.programs.rows import ROWS, table_columns
from desktop.store.transfer.importers.sources import ARCHIVES, ENDINGS, UTF_16, chat_files
from engine.platform.regular_file import regular_file

__all__ = ["is_chats"]

HEAD = 1 << 16
_FIRST_FILES, _FIRST_NAMES = 20, 1000
"""Files of a folder that are read, and that are looked at: the window asks while something is dragged."""
_MARKS = (
    ("format", "inglenook-conversation"), ("mapping", "create_time"), ("mapping", "current_node"),
    ("chat_messages",), ("history", "currentId"), ("conv", "messages"), ("messages", "versions"),
    ("conversations", "from", "value"), ("messages", "role", "content"), ("chat_metadata",),
    ("user_name", "character_name"), ("type", "session"), ("object", "thread_id"), ("internal", "visible"),
    ("messageId", "isCreatedByUser"), ("chat-next-web-store", "sessions"), ("chatID", "messages"),
    ("conversation", "responses", "sender"), ("mapping", "inserted_at"), ("mapping", "fragments"),
    ("localStorage", "persist:cherry-studio"), ("role", "contentParts"), ("systemPurposeId", "messages"),
    ("chunkedPrompt", "chunks"), ("state", "messages", "sessionId"), ("chatId", "role", "content"),
    ("_id", "from", "content"), ("title", "messages", "titleSet"), ("data", "messages", "topicId"),
    ("sessionId", "parentUuid"), ("session_meta", "payload"), ("workspace", "prompt", "response"),
    ("title", "safeHtmlItem"), ("entries", "query_str"), ("conversations", "query", "answer"),
    ("gamestarted", "actions"), ("first_mes", "description"),
)  # fmt: skip
"""Quoted words that occur together where a conversation begins, for one that does not end in the part that is
read.
"""
_WORD = re.compile(r'"([\w:-]{1,40})"')


def _first_files(folder: Path) -> list[Path]:
    return [file.path for file in islice(chat_files(folder, _FIRST_NAMES), _FIRST_FILES)]


def is_chats(path: Path) -> bool:
    """Whether it looks like chats of a supported program, or is a folder whose first files do and which is no
    model; False if it cannot be read.
    """
    if os.path.isdir(path):
        model = os.path.exists(path / "config.json") or any(path.glob("*.safetensors"))
        return not model and any(map(is_chats, _first_files(path)))
    ending = path.suffix.lower()
    if ending == ".png":
        return is_card(path)
    if ending not in ENDINGS or ending == ".md":  # Markdown is rather meant to be attached to a message
        return False
    try:
        regular_file(path)
        with path.open("rb") as file:
            data = file.read(gemini_page.HEAD if ending in gemini_page.ENDINGS else HEAD)
    except OSError:
        return False
    if ending in (".db", ".sqlite", ".sqlite3"):
        return data.startswith(DATABASE) and has_chats(path)
    if ending in (*ARCHIVES, ".chat"):
        return data.startswith(MAGIC if ending == ".chat" else b"PK\x03\x04")
    text = data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "replace").lstrip()
    if ending in gemini_page.ENDINGS:
        return gemini_page.is_activity(text)
    if ending == ".csv":
        columns = table_columns(text)
        return any(one.begins(columns) for one in ROWS)
    if not text.startswith(("{", "[")):
        return False
    found = _first(text)
    return found if found is not None else _has_marks(text)


def _first(text: str) -> bool | None:
    """Whether the first value is a conversation or contains some; None if it does not end within `text`."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    inside = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    near = [
        value,
        *inside[:50],
        *(entry for part in inside[:50] if isinstance(part, list) for entry in part[:5]),
    ]
    known = any(format_of(entry) is not None or line_format_of(entry) is not None for entry in near)
    return known or bool(chats_in(value))


def _has_marks(text: str) -> bool:
    words = set(_WORD.findall(text))
    return any(words.issuperset(marks) for marks in _MARKS)
