"""Fields of each program's newest files that are read, or meaningless elsewhere, are not kept again."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from desktop.store.transfer.importers.fields import compact, rest
from desktop.store.transfer.importers.programs.chatgpt import ChatGpt
from desktop.store.transfer.importers.programs.claude import Claude
from desktop.store.transfer.importers.programs.gpt4all import _Stream, _variant, read_chat
from desktop.store.transfer.importers.programs.llama_cpp import LlamaCpp
from desktop.store.transfer.importers.programs.lm_studio import LmStudio
from desktop.store.transfer.importers.programs.open_webui.export import OpenWebUi
from desktop.store.transfer.importers.programs.sharegpt import ShareGpt
from desktop.store.transfer.importers.programs.silly_tavern import SillyTavern
from desktop.store.transfer.importers.protocol import Format, Unreadable
from desktop.store.transfer.records import ConversationRecord
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import Qt, node


def read(format: Format, value: Any) -> ConversationRecord:
    notes: list[tuple[str, str]] = []
    record = format.read(value, lambda where, reason: notes.append((where, reason)))
    assert notes == []
    return record


def chatgpt(*nodes: dict[str, Any]) -> dict[str, Any]:
    """A conversation with every known field, and messages with every one of theirs."""
    metadata = {
        "model_slug": "m", "default_model_slug": "m", "is_visually_hidden_from_conversation": False,
        "is_user_system_message": False, "user_context_message_data": {"about_user_message": "x"},
        "request_id": "r", "parent_id": "p", "message_type": "next", "timestamp_": "absolute",
        "turn_exchange_id": "t", "is_complete": True, "message_source": "s",
        "serialization_metadata": {"custom_symbol_offsets": [1]}, "can_save": True,
    }  # fmt: skip
    for each in nodes:
        each["message"] |= {"end_turn": True, "weight": 1.0}
        each["message"]["metadata"] = metadata | each["message"]["metadata"]
    return {
        "mapping": {each["id"]: each for each in nodes}, "current_node": nodes[-1]["id"], "title": "T",
        "create_time": 10, "update_time": 20, "id": "c", "conversation_id": "c", "is_starred": False,
        "pinned_time": 15,
    }  # fmt: skip


def sharegpt() -> dict[str, Any]:
    message = {"timestamp": 11, "created_at": 12, "reasoning_content": "Hm.", "reasoning": "So."}
    return {
        "id": "s", "title": "T", "name": "N", "created_at": 10, "create_time": 9, "updated_at": 20,
        "system": "Be.", "system_prompt": "Do.",
        "items": [message], "messages": [message], "conversation": [],
        "conversations": [message | {"from": "human", "value": "Hi"},
        message | {"from": "gpt", "value": "Ho", "text": "x", "content": ""}],
    }  # fmt: skip


def llama_cpp() -> dict[str, Any]:
    session: dict[str, Any] = {
        "type": "session",
        "id": "l",
        "name": "T",
        "lastModified": 20,
        "currNode": "b",
        "pinned": True,
    }
    message: dict[str, Any] = {
        "convId": "l",
        "type": "text",
        "children": ["z"],
        "reasoningContent": "Hm.",
        "thinking": "So.",
        "model": "m",
    }
    message["timestamp"] = 11
    return {"conv": session, "messages": [
        message | {"id": "a", "role": "user", "content": "Hi", "parent": None},
        message | {"id": "b", "role": "assistant", "content": "Ho", "parent": "a"},
    ]}  # fmt: skip


def claude() -> dict[str, Any]:
    message = {
        "index": 1,
        "created_at": 11,
        "updated_at": 12,
        "attachments": [],
        "files": [],
        "files_v2": [],
        "role": "x",
    }
    parts = [
        {"type": "text", "text": "Ho", "start_timestamp": 1, "stop_timestamp": 2},
        {"type": "thinking", "thinking": "Hm."},
    ]
    return {
        "uuid": "k", "name": "N", "title": "T", "model": "m", "created_at": 10, "updated_at": 20,
        "current_leaf_message_uuid": "b",
        "is_starred": True, "account": {"uuid": "me"}, "chat_messages": [
            message | {"uuid": "a", "sender": "human", "text": "Hi"},
            message | {"uuid": "b", "sender": "assistant", "text": "x", "content": parts,
            "parent_message_uuid": "a"},
        ],
    }  # fmt: skip


def open_webui() -> dict[str, Any]:
    message = {
        "user_id": "u",
        "modelIdx": 1,
        "lastSentence": "x",
        "timestamp": 11,
        "model": "m",
        "done": True,
    }
    nodes = {
        "a": message | {"id": "a", "parentId": None, "childrenIds": ["b"], "role": "user", "content": "Hi"},
        "b": message | {"id": "b", "parentId": "a", "childrenIds": [], "role": "assistant", "content": "Ho"},
    }
    chat = {"id": "o", "title": "T", "system": "Be.", "history": {"currentId": "b", "messages": nodes},
        "messages": [nodes["a"]],
            "timestamp": 9, "currentId": "b", "params": {"system": "Be."}}  # fmt: skip
    return {"id": "o", "user_id": "u", "title": "T", "chat": chat, "created_at": 10, "updated_at": 20,
        "pinned": True, "meta": {"tags": []},
            "current_message_id": "b", "last_read_at": 12}  # fmt: skip


def lm_studio() -> dict[str, Any]:
    value = files.lm_studio()
    for entry in value["messages"]:
        for version in entry["versions"]:
            version |= {"senderInfo": {"senderName": "q"}, "preprocessed": {"x": 1}}
    return value | {"clientInput": " ", "userLastMessagedAt": 11, "assistantLastMessagedAt": 20_000,
        "usePerChatPredictionConfig": True,
                    "perChatPredictionConfig": {"fields": []}, "pinned": True}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "value"),
    [
        (ChatGpt(), chatgpt(node("a", None, ["b"], "user", "Hi"), node("b", "a", [], "assistant", "Ho"))),
        (ShareGpt(), sharegpt()), (LlamaCpp(), llama_cpp()), (Claude(), claude()),
        (OpenWebUi(), open_webui()), (LmStudio(), lm_studio()),
    ],
    ids=lambda value: getattr(value, "source", ""),
)  # fmt: skip
def test_what_is_read_is_not_kept_twice(format: Format, value: dict[str, Any]) -> None:
    record = read(format, value)
    assert [message.raw for message in record.messages] == [None] * len(record.messages)
    assert len(record.messages) >= 2
    assert next(message.stats for message in record.messages if message.role == "user") == {}
    assert all("model" in message.stats for message in record.messages if message.role == "assistant") == (
        format.source != "sharegpt"
    )
    assert record.left_out == ()


def test_what_is_kept_of_an_object_and_how_it_is_written() -> None:
    nothing = {"a": None, "b": False, "c": "", "d": [], "e": {}}
    assert rest(nothing | {"f": 0, "g": True, "h": "h", "known": "x"}, "known") == {
        "f": 0,
        "g": True,
        "h": "h",
    }
    assert compact({"q": "漢字"}) == '{"q": "漢字"}'
    assert compact({"q": "漢" * 91}).count("\n") == 0
    assert compact({"q": "漢" * 92}) == '{\n  "q": "' + "漢" * 92 + '"\n}'


def test_what_is_read_of_sharegpt() -> None:
    record = read(ShareGpt(), sharegpt())
    assert (record.title, record.created_at, record.updated_at, record.system_prompt) == (
        "T",
        10.0,
        20.0,
        "Be.",
    )
    assert [(message.role, message.text, message.created_at) for message in record.messages] == [
        ("user", "<think>\nHm.\n</think>\n\nHi", 11.0), ("assistant", "<think>\nHm.\n</think>\n\nHo", 11.0)
    ]  # fmt: skip
    later = sharegpt() | {"title": "", "created_at": None, "system": None}
    later["conversations"] = [
        {"from": "human", "value": None, "text": "Hi", "created_at": 12, "reasoning": "So."}
    ]
    record = read(ShareGpt(), later)
    assert (record.title, record.created_at, record.system_prompt) == ("N", 9.0, "Do.")
    assert [(message.text, message.created_at) for message in record.messages] == [
        ("<think>\nSo.\n</think>\n\nHi", 12.0)
    ]


def test_what_is_read_of_silly_tavern() -> None:
    head, *spoken = files.silly_tavern()
    head["chat_metadata"] = {"integrity": "x", "tainted": True}
    for line in spoken:
        line |= {"is_name": True}
    spoken[-1]["extra"] |= {"isSmallSys": True, "model": "x"}
    record = SillyTavern().read_lines([head, *spoken], lambda *_: None, {})
    assert [message.raw for message in record.messages] == [None] * len(record.messages)


def test_parts_of_chatgpt_that_are_only_text() -> None:
    """Code, its output and thoughts are text in full; the line below a thought is not shown, but kept."""
    thoughts = {
        "content_type": "thoughts",
        "thoughts": [{"summary": "S", "content": "C", "chunks": ["C"], "finished": True}],
    }
    value = chatgpt(
        node("a", None, ["b"], "user", "Hi"),
        node("b", "a", ["c"], "assistant", thoughts),
        node(
            "c",
            "b",
            ["d"],
            "assistant",
            {"content_type": "code", "language": "python", "text": "1 + 1"},
            recipient="python",
        ),
        node(
            "d",
            "c",
            ["e"],
            "tool",
            {"content_type": "execution_output", "text": "2"},
            author={"role": "tool", "name": "python"},
        ),
        node("e", "d", [], "assistant", "It is 2."),
    )
    user, reply = read(ChatGpt(), value).messages
    assert (user.raw, reply.raw) == (None, None)
    assert reply.text == (
        "<think>\nS\n\nC\n</think>\n\n**Tool call: python**\n\n````\n```python\n1 + 1\n```\n````\n\n"
        "**Tool result: python**\n\n```\n2\n```\n\nIt is 2."
    )
    recap = {"content_type": "reasoning_recap", "content": "Thought for 5 seconds"}
    value = chatgpt(
        node("a", None, ["b"], "user", "Hi"),
        node("b", "a", ["c"], "assistant", recap),
        node("c", "b", [], "assistant", "Ho"),
    )
    _, reply = read(ChatGpt(), value).messages
    assert reply.text == "Ho"
    assert "Thought for 5 seconds" in json.dumps(reply.raw)


def test_instructions_that_stand_in_a_chat_and_an_output_of_nothing() -> None:
    given = {
        "content_type": "user_editable_context",
        "user_profile": "I am Ann.",
        "user_instructions": "Be brief.",
    }
    value = chatgpt(
        node("a", None, ["b"], "user", given),
        node("b", "a", ["c"], "tool", {"content_type": "execution_output", "text": ""},
             author={"role": "tool", "name": "python"}),
        node("c", "b", [], "assistant", "Ho"),
    )  # fmt: skip
    user, reply = read(ChatGpt(), value).messages
    assert user.text == "I am Ann.\n\nBe brief."
    assert "execution_output" not in reply.text


@pytest.mark.parametrize(
    ("given", "block"),
    [
        ({"name": "Sort", "type": "code/python"}, "**Sort**\n\n```python\nx\n```"),
        ({"name": "Sort.js", "type": "document"}, "**Sort.js**\n\n```javascript\nx\n```"),
        ({"name": "Sort", "type": "document"}, "**Sort**\n\n```\nx\n```"),
    ],
)
def test_documents_of_the_canvas(given: dict[str, str], block: str) -> None:
    canvas = {"content_type": "code", "text": json.dumps(given | {"content": "x"})}
    made = node("b", "a", [], "assistant", canvas, recipient="canmore.create_textdoc")
    assert read(ChatGpt(), chatgpt(node("a", None, ["b"], "user", "Hi"), made)).messages[1].text == block


def variant(kind: int, data: bytes) -> bytes:
    return struct.pack(">I?", kind, False) + data


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (variant(0, b""), ""), (variant(1, b"\1"), True), (variant(1, b"\0"), False),
        (variant(2, struct.pack(">i", -2)), -2),
        (variant(3, struct.pack(">I", 3)), 3), (variant(4, struct.pack(">q", -4)), -4),
        (variant(5, struct.pack(">Q", 5)), 5),
        (variant(6, struct.pack(">d", 0.5)), 0.5), (variant(10, Qt.text("é")), "é"),
        (variant(9, struct.pack(">I", 2) + variant(0, b"") + variant(1, b"\1")), ["", True]),
        (variant(8, struct.pack(">I", 1) + Qt.text("a") + variant(9, struct.pack(">I", 0))), {"a": []}),
    ],
)  # fmt: skip
def test_values_of_qt(data: bytes, value: Any) -> None:
    stream = _Stream(data + b"behind")
    found = _variant(stream, 0)
    assert (type(found), found, stream.at) == (type(value), value, len(data))


@pytest.mark.parametrize(
    "data", [variant(7, b""), variant(11, b""), variant(9, struct.pack(">I", 1) + variant(12, b""))]
)
def test_values_of_qt_that_are_not_known(data: bytes) -> None:
    with pytest.raises(Unreadable, match="an unknown type"):
        _variant(_Stream(data), 0)


def test_sources_of_gpt4all_are_kept_by_name() -> None:
    _, reply = read_chat(files.gpt4all(8, ("Hello", "Hi")), lambda *_: None).messages
    names = dict(
        zip(("collection", "path", "file", "title", "author", "date", "text"), "abcdefg", strict=True)
    )
    assert reply.raw["sources"] == [names | {"page": 1, "from": -1, "to": -1}]


@pytest.mark.parametrize(("current", "shown"), [("b", "b"), ("c", "c"), ("gone", "b"), (None, "b")])
def test_the_reply_that_llama_cpp_showed_is_shown_else_the_newest(current: str | None, shown: str) -> None:
    value = llama_cpp()
    value["conv"]["currNode"] = current
    value["messages"][1]["timestamp"] = 20
    value["messages"].append(value["messages"][1] | {"id": "c", "content": "Hum", "timestamp": 12})
    assert read(LlamaCpp(), value).messages[0].shown_child == shown
