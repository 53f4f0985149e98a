"""Files of other programs, written from their documented formats, and their import for tests."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.exporters.own import own_json
from desktop.store.transfer.importers import import_conversations
from desktop.store.transfer.records import Broken, ConversationRecord, Event, Imported, MessageRecord


def run(database: Database, path: Path, **options: Any) -> list[Event]:
    return list(import_conversations(database, path, **options))


def imported(events: list[Event]) -> list[Imported]:
    return [event for event in events if isinstance(event, Imported)]


def broken(events: list[Event]) -> list[Broken]:
    return [event for event in events if isinstance(event, Broken)]


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def lines(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def shown(store: ConversationStore, number: int) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in store.path(number)]


def dump(database: Database) -> list[tuple[Any, ...]]:
    """All conversations and messages, in order."""
    return [
        *database.execute("SELECT * FROM conversations ORDER BY id"),
        *database.execute("SELECT * FROM messages ORDER BY id"),
    ]


def node(
    key: str, parent: str | None, children: list[str], role: str = "", text: Any = "", **more: Any
) -> dict[str, Any]:
    """A node of ChatGPT's tree."""
    message = None
    if role:
        content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
        message = {"id": key, "author": {"role": role, "name": None}, "create_time": 1700000000.5,
            "content": content,
                   "status": "finished_successfully", "recipient": "all", "metadata": {}} | more  # fmt: skip
    return {"id": key, "parent": parent, "children": children, "message": message}


def chatgpt(number: int = 1, text: str = "Why is the sky blue?") -> dict[str, Any]:
    """A conversation with two answers, the first of which was continued."""
    nodes = [
        node("client-created-root", None, ["s"]),
        node(
            "s",
            "client-created-root",
            ["u"],
            "system",
            "",
            metadata={"is_visually_hidden_from_conversation": True},
        ),
        node("u", "s", ["a", "b"], "user", text),
        node("b", "u", [], "assistant", "Because of the sea.", metadata={"model_slug": "gpt-4"}),
        node(
            "a",
            "u",
            ["v"],
            "assistant",
            "Rayleigh scattering\ue200cite\ue202turn0\ue201.",
            metadata={"model_slug": "gpt-4o"},
        ),
        node("v", "a", ["w"], "user", "Thanks"),
        node("w", "v", [], "assistant", "Gladly."),
    ]
    return {
        "title": f"Sky {number}", "create_time": 1700000000.5, "update_time": 1700000600.25,
        "mapping": {n["id"]: n for n in nodes}, "current_node": "w", "conversation_id": f"c-{number}",
        "id": f"c-{number}",
    }  # fmt: skip


def claude() -> dict[str, Any]:
    root = "00000000-0000-4000-8000-000000000000"
    return {
        "uuid": "k-1", "name": "Metrics", "created_at": "2026-02-14T10:04:22.000Z",
        "updated_at": "2026-02-14T10:22:41Z",
        "current_leaf_message_uuid": "m3",
        "chat_messages": [
            {"uuid": "m1", "sender": "human", "text": "Postgres?", "created_at": "2026-02-14T10:04:22.000Z",
            "parent_message_uuid": root,
             "attachments": [{"file_name": "a.csv", "extracted_content": "x,y\n1,2"}],
             "content": [{"type": "text", "text": "Postgres?"}]},
            {"uuid": "m2", "sender": "assistant", "parent_message_uuid": "m1",
            "created_at": "2026-02-14T10:05:00Z",
             "text": "", "content": [{"type": "thinking", "thinking": "Hm."},
             {"type": "text", "text": "Yes."},
                                     {"type": "tool_use", "name": "search", "input": {"q": "pg"}}]},
            {"uuid": "m3", "sender": "assistant", "parent_message_uuid": "m1", "text": "No.",
            "created_at": "2026-02-14T10:06:00Z"},
        ],
    }  # fmt: skip


def lm_studio() -> dict[str, Any]:
    def said(role: str, *texts: str) -> dict[str, Any]:
        return {
            "type": "singleStep",
            "role": role,
            "content": [{"type": "text", "text": text} for text in texts],
        }

    def replied(text: str, thought: str = "") -> dict[str, Any]:
        def block(stamp: int, *texts: str) -> dict[str, Any]:
            parts = [
                {"type": "text", "text": text, "fromDraftModel": place > 0}
                for place, text in enumerate(texts)
            ]
            return {"type": "contentBlock", "stepIdentifier": f"{stamp}-0.5", "content": parts}

        steps = [block(1730000001000, thought) | {"style": {"type": "thinking"}}] if thought else []
        steps.append(
            block(1730000002000, text[:3], text[3:]) | {"genInfo": {"indexedModelIdentifier": "qwen/q-7b"}}
        )
        return {"type": "multiStep", "role": "assistant", "senderInfo": {"senderName": "q"}, "steps": steps}

    return {
        "name": "Rust", "pinned": False, "createdAt": 1730000000000, "systemPrompt": "Be brief.",
        "tokenCount": 9,
        "messages": [
            {"versions": [said("user", "Hello")], "currentlySelected": 0},
            {"versions": [replied("First", "Let me see."), replied("Second")], "currentlySelected": 0},
            {"versions": [said("user", "Go on")], "currentlySelected": 0},
        ],
    }  # fmt: skip


def open_webui() -> dict[str, Any]:
    thought = (
        '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 '
        "seconds</summary>\n&gt; One.\n&gt; Two.\n</details>\n"
    )
    messages = {
        "1": {"id": "1", "parentId": None, "childrenIds": ["2", "3"], "role": "user", "content": "Hi",
        "timestamp": 1710000000},
        "2": {"id": "2", "parentId": "1", "childrenIds": [], "role": "assistant",
        "content": thought + "Hello.", "model": "llama",
              "timestamp": 1710000005, "done": True},
        "3": {"id": "3", "parentId": "1", "childrenIds": [], "role": "assistant", "content": "Hey",
        "timestamp": 1710000009},
    }  # fmt: skip
    chat = {
        "title": "Greeting",
        "models": ["llama"],
        "params": {"system": "Be kind."},
        "history": {"currentId": "2", "messages": messages},
    }
    return {
        "id": "o-1",
        "chat": chat,
        "meta": {"tags": []},
        "pinned": False,
        "created_at": 1710000000,
        "updated_at": 1710000099,
    }


def llama_messages() -> list[dict[str, Any]]:
    def message(key: str, parent: str, role: str, text: str, stamp: int, **more: Any) -> dict[str, Any]:
        kind = "root" if role == "system" and not text else "text"
        return {"id": key, "convId": "l-1", "type": kind, "timestamp": stamp, "role": role, "content": text,
            "parent": parent,
                "children": []} | more  # fmt: skip

    call = [{"id": "t", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]
    return [
        message("r", "", "system", "", 1720000000000),
        message(
            "a",
            "r",
            "user",
            "Add",
            1720000001000,
            extra=[{"type": "TEXT", "name": "n.txt", "content": "one"}],
        ),
        message(
            "b",
            "a",
            "assistant",
            "",
            1720000002000,
            reasoningContent="Use it.",
            toolCalls=json.dumps(call),
            model="m",
        ),
        message("c", "b", "tool", "2", 1720000003000, toolCallId="t"),
        message("d", "c", "assistant", "It is 2.", 1720000004000),
    ]


def silly_tavern() -> list[dict[str, Any]]:
    return [
        {"user_name": "Ann", "character_name": "Bo", "create_date": "2024-9-28 @01h 02m 36s",
        "chat_metadata": {}},
        {"name": "Bo", "is_user": False, "is_system": False, "send_date": "2024-9-28 @01h 02m 36s",
        "mes": "Welcome."},
        {"name": "Ann", "is_user": True, "send_date": "September 28, 2024 1:03am", "mes": "Hi"},
        {"name": "Bo", "is_user": False, "send_date": "2024-09-28T01:04:00.000Z", "mes": "B!",
        "swipes": ["A", "B", "C"], "swipe_id": 1,
         "swipe_info": [{"send_date": "2024-09-28T01:03:30Z", "extra": {"model": "x"}}, {}, {}],
         "extra": {"reasoning": "Hm"}},
    ]  # fmt: skip


def sharegpt() -> dict[str, Any]:
    return {
        "id": "s-1",
        "conversations": [
            {"from": "system", "value": "Be good."},
            {"from": "human", "value": "1+1"},
            {"from": "gpt", "value": "2"},
        ],
    }


def own() -> ConversationRecord:
    messages = (
        MessageRecord("1", None, "user", "Hi", 1700000000.25, shown_child="2"),
        MessageRecord(
            "2",
            "1",
            "assistant",
            "Hello",
            1700000001.5,
            "stopped",
            {"model": "m", "stats": {"new_tokens": 2}},
            tokens=b"\1\2",
        ),
        MessageRecord("3", "1", "assistant", "Hey", 1700000002.5, raw={"a": [1]}, deleted=True),
    )
    return ConversationRecord(
        "inglenook",
        "k",
        "T",
        1.5,
        2.5,
        messages,
        "1",
        "Be.",
        {"SamplerSettings": {"temperature": 0.5}},
        "/m",
        True,
    )


class Qt:
    """Qt's `QDataStream` in Python, reimplemented for tests."""

    @staticmethod
    def text(value: str) -> bytes:
        data = value.encode("utf-16-be")
        return struct.pack(">I", len(data)) + data


def gpt4all(
    version: int = 12,
    texts: tuple[str, ...] = ("Hello", "Hi 😀", "Bye", "Ciao"),
    names: tuple[str, ...] = ("Prompt: ", "Response: ") * 2,
    key: str = "g-1",
    has_state: bool | None = None,
) -> bytes:
    """A chat of alternating prompts and responses, as chat.cpp writes it; versions up to 5 always have the
    engine's state, and 6 has it unless it is said otherwise.
    """
    out = [
        b"\xf5\xd5\x53\xcc",
        struct.pack(">iq", version, 1700000000),
        *map(Qt.text, (key, "My chat", "me", "model.gguf")),
    ]
    if version >= 3:
        out.append(struct.pack(">I", 1) + Qt.text("docs"))
    if version < 11:
        out.append(_state(version, version <= 6 if has_state is None else has_state))
    out.append(struct.pack(">i", len(texts)))
    for name, text in zip(names, texts, strict=False):
        out.append(_item(version, name, text))
    return b"".join(out)


def _state(version: int, has_state: bool) -> bytes:
    """The engine's state before version 11; versions from 6 tell whether they have it."""
    found = struct.pack(">?", has_state) if version >= 6 else b""
    found += struct.pack(">ii", 1, 0) if version >= 2 else b""
    found += Qt.text("") + Qt.text("") + struct.pack(">I", 7)
    if not has_state:
        return found
    found += struct.pack(">I", 1) if version < 4 else b""
    found += struct.pack(">I", 3) + (struct.pack(">I", 2048) if version >= 7 else b"")
    found += struct.pack(">Q", 2) + b"\0" * 8 if version < 9 else b""
    found += struct.pack(">Q", 1) + b"\0" * 4
    return found + struct.pack(">I", 5) + b"state"


def _item(version: int, name: str, text: str) -> bytes:
    found = struct.pack(">i", 0) if version < 12 else b""
    found += Qt.text(name) + Qt.text(text if version < 12 or name != "Response: " else "")
    found += Qt.text("prompt") if version < 10 else b""
    found += Qt.text("") + struct.pack(">????", True, False, False, False)
    if version >= 11 and name == "Response: ":
        found += b"\0"
    if version >= 8:
        found += struct.pack(">q", 1) + b"".join(map(Qt.text, "abcdefg")) + struct.pack(">iii", 1, -1, -1)
    elif version >= 3:
        found += Qt.text("1. In f. ") + struct.pack(">I", 1) + Qt.text("context")
    if version >= 10:
        has_file = name == "Prompt: "
        found += struct.pack(">q", has_file)
        found += struct.pack(">I", 13) + b"file:///n.txt" + struct.pack(">I", 3) + b"one" if has_file else b""
    if version >= 12:
        think = Qt.text("Think: ") + Qt.text("Hm") + struct.pack(">iq", 5, 0)
        tool = (
            Qt.text("ToolCall: ")
            + Qt.text("code")
            + Qt.text("js")
            + struct.pack(">q", 1)
            + Qt.text("code")
            + struct.pack(">iI?", 0, 10, False)
        )
        tool += Qt.text("1+1") + Qt.text("2") + struct.pack(">i", 0) + Qt.text("") + struct.pack(">q", 0)
        inner = (
            [think, tool, Qt.text("Response: ") + Qt.text(text) + struct.pack(">q", 0)]
            if name == "Response: "
            else []
        )
        found += struct.pack(">q", len(inner)) + b"".join(inner)
    return found


SAMPLES: dict[str, Callable[[], bytes]] = {
    "chatgpt": lambda: json.dumps([chatgpt(1), chatgpt(2)]).encode(),
    "claude": lambda: json.dumps([claude()]).encode(),
    "lm-studio": lambda: json.dumps(lm_studio(), indent=2).encode(),
    "open-webui": lambda: json.dumps([open_webui()]).encode(),
    "llama.cpp": lambda: "\n".join(_llama_lines()).encode(),
    "llama.cpp-old": lambda: json.dumps(
        {"conv": {"id": "l-1", "name": "n", "currNode": "d"}, "messages": llama_messages()}
    ).encode(),
    "sharegpt": lambda: json.dumps([sharegpt()]).encode(),
    "silly-tavern": lambda: "\n".join(map(json.dumps, silly_tavern())).encode(),
    "gpt4all": gpt4all,
    "inglenook": lambda: "".join(own_json([own()])).encode(),
}
"""Bytes of a good file of each format."""


def _llama_lines() -> Iterator[str]:
    head = {
        "type": "session",
        "harness": "llama.app",
        "id": "l-1",
        "name": "Sum",
        "lastModified": 1720000009000,
        "currNode": "d",
    }
    yield json.dumps(head)
    yield json.dumps({"type": "later-invention", "x": 1})
    for message in llama_messages():
        yield json.dumps({"type": "message", "message": message})
