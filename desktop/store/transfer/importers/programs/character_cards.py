"""Character cards: a persona with the greetings that a chat with it begins with, as JSON or in a picture.

Formats: malfoyslastname/character-card-spec-v2 (V1 and V2) and kwaroran/character-card-spec-v3 on GitHub, the
latter also as CHARX, a zip archive with `card.json`. A PNG file has base64 of the JSON in a text chunk.
Lorebooks have no place here: they are kept with the chat.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import IO, Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.conversations.personas import Persona
from desktop.store.transfer.importers.fields import content_key, first_text, items, mapping, rest, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import join
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["PNG", "CharacterCard", "card_in_png", "is_card"]

PNG = b"\x89PNG\r\n\x1a\n"
_MOST_CARD = 64 << 20
_SPECS = ("chara_card_v2", "chara_card_v3")
_OLD = {
    "char_name": "name", "char_persona": "description", "char_greeting": "first_mes",
    "world_scenario": "scenario", "example_dialogue": "mes_example",
}  # fmt: skip
"""Names of the first editors, and those of V1."""
_READ = (
    "name", "nickname", "description", "personality", "scenario", "first_mes", "mes_example", "system_prompt",
    "post_history_instructions", "alternate_greetings", "avatar", "spec", "spec_version", "data", *_OLD,
)  # fmt: skip
_MACRO = re.compile(r"\{\{(char|user|original)\}\}|<(BOT|CHAR|USER)>", re.IGNORECASE)


class CharacterCard:
    source, label = "character-card", ""

    def recognises(self, value: Any) -> bool:
        about = mapping(value)
        if about.get("spec") in _SPECS:
            return isinstance(about.get("data"), dict)
        return all(isinstance(_fields(about).get(name), str) for name in ("name", "description", "first_mes"))

    def read(self, value: Any, note: Note) -> ConversationRecord:
        fields = _fields(value)
        name = " ".join(first_text(fields.get("nickname"), fields.get("name")).split())
        if not name:
            raise Unreadable(_("it has no name"))
        greetings = [
            text(one) for one in (fields.get("first_mes"), *items(fields.get("alternate_greetings")))
        ]
        found: dict[str, MessageRecord] = {}
        for words in (_filled(greeting, name) for greeting in greetings if greeting.strip()):
            key = chain_key(None, "assistant", words)
            found.setdefault(key, MessageRecord(key, None, "assistant", words, author=name))
        if not found:
            raise Unreadable(_("it has no greeting to begin a chat with"))
        kept = rest(fields, *_READ)
        notes = {"tags": kept.get("tags"), "lorebook": mapping(kept.get("character_book")).get("entries")}
        return ConversationRecord(
            self.source, content_key([name, fields.get("first_mes"), fields.get("description")]), name,
            messages=with_chat(tuple(found.values()), kept), shown_root=next(iter(found)),
            persona=Persona(0, name, system_prompt=_prompt(fields, name)), left_out=left_out_notes(notes),
        )  # fmt: skip


def _fields(value: dict[str, Any]) -> dict[str, Any]:
    """The card's fields by the names of V2; what V1 has stands beside `data` in the newer ones, too."""
    renamed = {_OLD[name]: inner for name, inner in value.items() if name in _OLD}
    return (
        renamed
        | {name: inner for name, inner in value.items() if name not in _OLD}
        | mapping(value.get("data"))
    )


def _filled(words: str, name: str) -> str:
    """The text with the names instead of its macros."""

    def said(match: re.Match[str]) -> str:
        kind = (match[1] or match[2]).lower()
        return {"user": "User", "original": ""}.get(kind, name)

    return _MACRO.sub(said, words).strip()


def _prompt(fields: dict[str, Any], name: str) -> str:
    """The system prompt, in the order in which SillyTavern has these parts."""

    def part(field: str, title: str = "") -> str:
        words = _filled(text(fields.get(field)), name)
        return f"{title}{words}" if words else ""

    examples = part("mes_example").replace("<START>", "").strip()
    return join([
        part("system_prompt"), part("description"), part("personality", f"{name}'s personality: "),
        part("scenario", "Scenario: "), f"Examples of how {name} writes:\n\n{examples}" if examples else "",
        part("post_history_instructions"),
    ])  # fmt: skip


def is_card(path: Path) -> bool:
    """Whether a PNG file has a character card; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return card_in_png(file) is not None
    except OSError:
        return False


def card_in_png(file: IO[bytes]) -> Any:
    """The card in a PNG file, as JSON, that of the newest version; None without one."""
    found: dict[bytes, bytes] = {}
    known = file.read(len(PNG)) == PNG
    while known and len(head := file.read(8)) == 8:
        size, kind = struct.unpack(">I4s", head)
        if kind == b"tEXt" and size <= _MOST_CARD:
            keyword, _zero, data = file.read(size).partition(b"\0")
            found[keyword.lower()] = data
            file.seek(4, 1)
        else:
            file.seek(size + 4, 1)
    for keyword in (b"ccv3", b"chara"):
        try:
            value = json.loads(base64.b64decode(found.get(keyword, b""), validate=False))
        except (ValueError, RecursionError):
            continue
        if CharacterCard().recognises(value):
            return value
    return None
