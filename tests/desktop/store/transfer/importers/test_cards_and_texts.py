"""Character cards, chats in Markdown, and archives within archives."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.importers.programs.markdown_chats import markdown_chats
from desktop.store.transfer.records import LeftOut
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, imported, run, shown, written

V1 = {
    "name": "Bo", "description": "{{char}} is a robot.", "personality": "calm",
    "scenario": "{{user}} visits.", "first_mes": "Hello, {{user}}.",
    "mes_example": "<START>\n{{char}}: Beep.",
}  # fmt: skip
BOOK = {"entries": [{"keys": ["oil"], "content": "Oil is rare."}]}
MORE: dict[str, Any] = {
    "alternate_greetings": ["Hi.", "Hello, {{user}}."], "system_prompt": "Play.", "character_book": BOOK,
}  # fmt: skip
V2 = {
    "spec": "chara_card_v2", "spec_version": "2.0",
    "data": V1 | MORE,
}  # fmt: skip
OLD = {"char_name": "Bo", "char_persona": "A robot.", "char_greeting": "Hello, User.", "example_dialogue": ""}


def png(card: dict[str, Any], keyword: bytes = b"chara") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packed = base64.b64encode(json.dumps(card).encode())
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"tEXt", keyword + b"\0" + packed)
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def charx(card: dict[str, Any]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("card.json", json.dumps(card | {"spec": "chara_card_v3"}))
        archive.writestr("assets/icon/main.png", b"\x89PNG")
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("v1.json", json.dumps(V1).encode()), ("v2.json", json.dumps(V2).encode()), ("bo.png", png(V2)),
        ("v3.png", png(V2 | {"spec": "chara_card_v3"}, b"ccv3")), ("bo.charx", charx(V2)),
        ("old.json", json.dumps(OLD).encode()),
    ],
)  # fmt: skip
def test_a_card_becomes_a_persona_and_a_chat_with_its_greetings(
    name: str, data: bytes, database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert is_chats(path)
    events = run(database, path)
    assert broken(events) == []
    [event] = imported(events)
    assert (event.title, shown(store, event.conversation_id)) == ("Bo", [("assistant", "Hello, User.")])
    persona = read_whole(database, event.conversation_id).persona
    assert persona is not None
    assert persona.name == "Bo"
    if name == "old.json":
        assert persona.system_prompt == "A robot."
        return
    prompt = "Bo is a robot.\n\nBo's personality: calm\n\nScenario: User visits."
    prompt += "\n\nExamples of how Bo writes:\n\nBo: Beep."
    assert persona.system_prompt == (prompt if name == "v1.json" else f"Play.\n\n{prompt}")
    if name != "v1.json":
        assert store.path(event.conversation_id)[0].variant_count == 2
        notes = [one.what for one in events if isinstance(one, LeftOut) and not one.files]
        assert notes == ["Lorebooks are kept with the chat and in its JSON export, but not used"]


@pytest.mark.parametrize("card", [V1 | {"name": " "}, V1 | {"first_mes": ""}])
def test_a_card_without_a_name_or_a_greeting_is_refused(
    card: dict[str, Any], database: Database, tmp_path: Path
) -> None:
    events = run(database, written(tmp_path / "card.json", card))
    assert imported(events) == []
    assert broken(events)[0].reason.startswith("It has no ")


def test_a_picture_without_a_card_and_a_cut_one_are_no_chats(database: Database, tmp_path: Path) -> None:
    for number, data in enumerate((png({"a": 1}), png(V2)[:150], png(V2, b"other"))):
        path = tmp_path / f"{number}.png"
        path.write_bytes(data)
        assert not is_chats(path)
        assert imported(run(database, path)) == []


USERS = {
    "headings": "# Sum\n\n## User\n\n1+1?\n\n## Assistant\n\n2\n\n### Why\n\nSo.\n",
    "chatgpt": "# Sum\n\n#### You:\n1+1?\n\n#### ChatGPT:\n2\n\n### Why\n\nSo.\n",
    "bold": "**You:** 1+1?\n\n**Assistant:** 2\n\n### Why\n\nSo.\n",
    "rules": "**User**\n\n1+1?\n\n---\n\n**Claude**\n\n2\n\n### Why\n\nSo.\n\n---\n",
    "times": "# Sum\n\n## You · 2024-05-01 10:00\n\n1+1?\n\n## Qwen3-4B · 2024-05-01 10:01\n\n2\n\n### Why"
    "\n\nSo.\n",
    "open webui": "### USER\n1+1?\n\n### ASSISTANT\n2\n\n### Why\n\nSo.\n",
}


@pytest.mark.parametrize("form", USERS)
def test_chats_in_markdown_are_told_by_their_authors(
    form: str, database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = tmp_path / "Sum.md"
    path.write_text(USERS[form], encoding="utf-8")
    [event] = imported(run(database, path))
    assert event.title == "Sum"
    assert shown(store, event.conversation_id) == [("user", "1+1?"), ("assistant", "2\n\n### Why\n\nSo.")]


@pytest.mark.parametrize(
    "words",
    [
        "# Notes\n\n## User guide\n\nText\n\n## Installation\n\nMore",
        "```\n## User\n\nx\n\n## Assistant\n\ny\n```\n",
        "## You\n\nalone",
        "",
    ],
)
def test_other_markdown_is_no_chat(words: str, database: Database, tmp_path: Path) -> None:
    assert markdown_chats(words.encode(), "a.md") == []
    path = tmp_path / "a.md"
    path.write_text(words, encoding="utf-8")
    events = run(database, path)
    assert imported(events) == []
    assert broken(events)[-1].reason.startswith("It contains no chats")


def test_our_own_markdown_comes_back(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    session = [files.chatgpt(1), files.chatgpt(2)]
    events = imported(run(database, written(tmp_path / "conversations.json", session)))
    records = [read_whole(database, event.conversation_id) for event in events]
    path = tmp_path / "chats.md"
    path.write_text("".join(markdown(records)), encoding="utf-8")
    again = imported(run(database, path))
    assert [event.title for event in again] == [record.title for record in records]
    assert [shown(store, event.conversation_id) for event in again] == [
        shown(store, event.conversation_id) for event in events
    ]


def packed(path: Path, name: str, data: bytes) -> bytes:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return path.read_bytes()


def test_archives_within_an_archive_are_read(database: Database, tmp_path: Path) -> None:
    data = json.dumps([files.chatgpt(1)]).encode()
    inner = packed(tmp_path / "inner.zip", "conversations.json", data)
    path = tmp_path / "outer.zip"
    packed(path, "part/inner.zip", packed(tmp_path / "middle.zip", "inner.zip", inner))
    events = run(database, path)
    assert broken(events) == []
    assert [event.outcome for event in imported(events)] == ["new"]
    assert not [event for event in events if isinstance(event, LeftOut)]


def test_a_damaged_archive_within_an_archive_harms_no_other_file(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "outer.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.zip", b"PK\x03\x04" + bytes(100))
        archive.writestr("conversations.json", json.dumps([files.chatgpt(1)]))
    events = run(database, path)
    assert [event.outcome for event in imported(events)] == ["new"]
    assert "a.zip" in broken(events)[0].place
