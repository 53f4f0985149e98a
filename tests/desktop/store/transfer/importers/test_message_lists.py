"""Programs whose chats are lists of messages, each as it writes them: versions, thoughts, tools and files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from desktop.store.transfer.importers.formats import chats_in, format_of
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.importers.protocol import Unreadable
from desktop.store.transfer.records import ConversationRecord
from tests.desktop.store.transfer.importers.test_threads_and_pages import LOADED, MADE

TOP = "00000000-0000-0000-0000-000000000000"
DAY = "2024-05-01T10:00:00.000Z"
DAY_S, DAY_MS = 1714557600.0, 1714557600000


def read(value: Any) -> list[ConversationRecord]:
    """The chats in a file of this value; nothing of them may be noted as damaged."""

    def note(where: str, reason: str) -> None:
        raise AssertionError(f"{where}: {reason}")

    found = [value] if format_of(value) is not None else chats_in(value)
    formats = [(format_of(one), one) for one in found]
    return [format.read(one, note) for format, one in formats if format is not None]


def told(record: ConversationRecord) -> list[tuple[str, str]]:
    """Role and text on the shown path."""
    by_key = {message.key: message for message in record.messages}
    key, path = record.shown_root, []
    while key is not None:
        path.append((by_key[key].role, by_key[key].text))
        key = by_key[key].shown_child
    return path


def libre_chat(nested: bool) -> dict[str, Any]:
    parts = [
        {"type": "think", "think": "Hm"}, {"type": "text", "text": {"value": "Hello"}},
        {"type": "tool_call", "tool_call": {"name": "add", "args": "{}", "output": "2"}},
    ]  # fmt: skip
    user = {
        "messageId": "m1",
        "parentMessageId": TOP,
        "sender": "User",
        "isCreatedByUser": True,
        "text": "Hi",
    }
    old = {
        "messageId": "m2",
        "parentMessageId": "m1",
        "sender": "GPT",
        "isCreatedByUser": False,
        "text": "Hey",
    }
    new = old | {"messageId": "m3", "text": "", "content": parts, "model": "gpt-4", "createdAt": DAY}
    messages = [user | {"children": [old, new]}] if nested else [user, old, new]
    return {
        "conversationId": "c", "title": "L", "recursive": nested, "options": {"promptPrefix": "Be."},
        "messages": messages,
    }  # fmt: skip


@pytest.mark.parametrize("nested", [False, True])
def test_libre_chat_has_versions_thoughts_and_tools(nested: bool) -> None:
    [record] = read(libre_chat(nested))
    assert (record.source, record.key, record.title, record.system_prompt) == ("librechat", "c", "L", "Be.")
    assert told(record) == [
        ("user", "Hi"),
        (
            "assistant",
            "<think>\nHm\n</think>\n\nHello\n\n**Tool call: add**\n\n```\n{}\n```\n\n**Tool result: add**\n\n"
            "```\n2\n```",
        ),
    ]
    assert [message.parent for message in record.messages] == [None, "m1", "m1"]
    assert (record.messages[2].created_at, record.messages[2].stats) == (DAY_S, {"model": "gpt-4"})


def next_chat() -> dict[str, Any]:
    answer = {
        "id": "b",
        "date": "5/1/2024, 3:04:05 PM",
        "role": "assistant",
        "content": "Yo",
        "isError": True,
    }
    session = {
        "id": "s", "topic": "T", "memoryPrompt": "", "lastUpdate": DAY_MS, "stat": {},
        "messages": [{"id": "a", "date": "", "role": "user", "content": "Hi"}, answer],
        "mask": {"context": [{"role": "system", "content": "Be."}], "modelConfig": {"model": "m"}},
    }  # fmt: skip
    return {"chat-next-web-store": {"sessions": [session]}, "access-control": {"accessCode": ""}}


def test_next_chat_has_the_messages_of_its_mask_and_american_dates() -> None:
    [record] = read(next_chat())
    assert (record.source, record.title, record.system_prompt) == ("nextchat", "T", "Be.")
    assert told(record) == [("user", "Hi"), ("assistant", "Yo")]
    assert record.updated_at == DAY_S
    answer = record.messages[1]
    assert (answer.state, answer.stats) == ("failed", {"model": "m"})
    assert (answer.created_at or 0) % 60 == 5


def typing_mind() -> dict[str, Any]:
    messages = [
        {"uuid": "u", "role": "user", "content": [{"type": "text", "text": "Hi"}], "createdAt": DAY},
        {"uuid": "v", "role": "assistant", "content": "Yo"},
    ]
    chat = {"chatID": "t", "chatTitle": "T", "model": "m", "folderID": "f", "messages": messages}
    return {"data": {"chats": [chat], "folders": [{"id": "f", "title": "Work"}]}}


def better_chat_gpt() -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]
    chat = {"id": "b", "title": "T", "titleSet": True, "folder": "f", "messages": messages}
    return {"chats": [chat], "folders": {"f": {"id": "f", "name": "Work"}}, "version": 1}


@pytest.mark.parametrize("value", [typing_mind(), better_chat_gpt()])
def test_folders_lie_beside_the_chats(value: dict[str, Any]) -> None:
    [record] = read(value)
    assert record.folder == ("Work",)
    assert told(record)[0] == ("user", "Hi")


def big_agi() -> dict[str, Any]:
    document = {"pt": "doc", "l1Title": "n.txt", "data": {"idt": "text", "text": "one"}}
    call = {
        "pt": "tool_invocation",
        "invocation": {"type": "code_execution", "language": "python", "code": "1"},
    }
    result = {"pt": "tool_response", "response": {"type": "function_call", "name": "f", "result": "2"}}
    spoken = [{"pt": "ma", "aText": "Hm", "aType": "reasoning"}, {"pt": "text", "text": "Yo"}, call, result]
    messages = [
        {
            "id": "1", "role": "user", "created": DAY_MS,
            "fragments": [
                {"ft": "content", "part": {"pt": "text", "text": "Hi"}},
                {"ft": "attachment", "part": document},
            ],
        },
        {
            "id": "2", "role": "assistant", "generator": {"mgt": "named", "name": "m"},
            "fragments": [{"ft": "content", "part": part} for part in spoken],
        },
    ]  # fmt: skip
    chat = {
        "id": "B",
        "systemPurposeId": "Generic",
        "autoTitle": "T",
        "created": DAY_MS,
        "messages": messages,
    }
    return {"conversations": [chat], "models": {}}


def test_big_agi_has_fragments() -> None:
    [record] = read(big_agi())
    assert (record.source, record.title, record.created_at) == ("big-agi", "T", DAY_S)
    [(_, asked), (_, answered)] = told(record)
    assert asked == "Hi\n\nAttached file: n.txt\n```\none\n```"
    assert answered.startswith("<think>\nHm\n</think>\n\nYo\n\n**Tool call: code**")
    assert answered.endswith("**Tool result: f**\n\n```\n2\n```")
    assert record.messages[1].stats == {"model": "m"}


def grok() -> dict[str, Any]:
    def response(key: str, sender: str, words: str, above: str | None) -> dict[str, Any]:
        stamp = {"$date": {"$numberLong": str(DAY_MS)}}
        one = {
            "_id": key,
            "sender": sender,
            "message": words,
            "parent_response_id": above,
            "create_time": stamp,
        }
        return {"response": one}

    responses = [response("1", "human", "Hi", None), response("2", "ASSISTANT", "Yo", "1")]
    head = {"id": "g", "title": "T", "create_time": DAY, "starred": True}
    again = response("3", "assistant", "Hey", "1")
    return {"conversations": [{"conversation": head, "responses": [*responses, again]}], "projects": []}


def test_grok_has_versions_and_times_of_its_database() -> None:
    [record] = read(grok())
    assert (record.source, record.key, record.pinned, record.created_at) == ("grok", "g", True, DAY_S)
    assert told(record) == [("user", "Hi"), ("assistant", "Hey")]
    assert [message.text for message in record.messages] == ["Hi", "Yo", "Hey"]
    assert record.messages[0].created_at == DAY_S


def hugging_chat() -> list[dict[str, Any]]:
    def message(key: str, writer: str, words: str, *above: str) -> dict[str, Any]:
        return {"id": key, "from": writer, "content": words, "ancestors": list(above), "children": []}

    thought = message("3", "assistant", "Yo", "1", "2") | {"reasoning": "Hm", "interrupted": True}
    messages = [message("1", "system", "Be."), message("2", "user", "Hi", "1"), thought]
    return [{"_id": {"$oid": "h"}, "title": "T", "model": "m", "preprompt": "Be.", "messages": messages}]


def test_hugging_chat_names_its_ancestors() -> None:
    [record] = read(hugging_chat())
    assert (record.source, record.key, record.system_prompt) == ("huggingchat", "h", "Be.")
    assert told(record) == [("user", "Hi"), ("assistant", "<think>\nHm\n</think>\n\nYo")]
    assert record.messages[1].state == "stopped"


def deep_seek(old: bool) -> list[dict[str, Any]]:
    asked = {"content": "Hi"} if old else {"fragments": [{"type": "REQUEST", "content": "Hi"}]}
    pieces = [
        {"type": "SEARCH", "results": [{}]},
        {"type": "THINK", "content": "Hm"},
        {"type": "RESPONSE", "content": "Yo"},
    ]
    answered = {"content": "Yo", "reasoning_content": "Hm"} if old else {"fragments": pieces}
    common = {"model": "m", "inserted_at": DAY, "files": []}
    mapping = {
        "root": {"id": "root", "parent": None, "children": ["1"], "message": None},
        "1": {"id": "1", "parent": "root", "children": ["2"], "message": asked | common},
        "2": {"id": "2", "parent": "1", "children": [], "message": answered | common},
    }
    return [{"id": "d", "title": "T", "inserted_at": DAY, "mapping": mapping}]


@pytest.mark.parametrize("old", [False, True])
def test_deep_seek_is_not_taken_for_chat_gpt(old: bool) -> None:
    [record] = read(deep_seek(old))
    assert (record.source, record.created_at) == ("deepseek", DAY_S)
    assert told(record) == [("user", "Hi"), ("assistant", "<think>\nHm\n</think>\n\nYo")]
    assert record.messages[1].stats == {"model": "m"}


def ai_studio() -> dict[str, Any]:
    chunks = [
        {"text": "Hi", "role": "user"}, {"text": "Hm", "role": "model", "isThought": True},
        {"text": "Yo", "role": "model"},
    ]  # fmt: skip
    given = {"parts": [{"text": "Be."}]}
    return {"runSettings": {"model": "m"}, "systemInstruction": given, "chunkedPrompt": {"chunks": chunks}}


def test_ai_studio_has_thoughts_as_messages() -> None:
    [record] = read(ai_studio())
    assert record.system_prompt == "Be."
    assert told(record) == [("user", "Hi"), ("assistant", "<think>\nHm\n</think>\n\nYo")]


def ai_studio_files() -> dict[str, Any]:
    picture, words = {"mimeType": "image/png", "data": "aGk="}, {"mimeType": "text/csv", "data": "YSxiCg=="}
    sent = [
        {"role": "user", "inlineImage": picture}, {"role": "user", "inlineFile": words | {"name": "a.csv"}},
        {"role": "user", "driveDocument": {"id": "d"}}, {"role": "user", "youtubeVideo": {"id": "v"}},
        {"role": "user", "inlineFile": {"mimeType": "text/plain", "data": "?", "displayName": "b.txt"}},
        {"role": "user", "inlineFile": {"mimeType": "application/pdf", "data": "aGk=", "name": "c.pdf"}},
        {"role": "user", "text": "Sum", "createTime": DAY},
    ]  # fmt: skip
    code = {"executableCode": {"language": "PYTHON", "code": "print(2)\n1"}}
    came = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
    said = [
        {"role": "model"} | code, {"role": "model"} | came, {"role": "model", "parts": [{"text": "T"}]},
        {"role": "user", "text": "Go"}, {"role": "model", "text": "", "errorMessage": "Too busy"},
    ]  # fmt: skip
    return {"chunkedPrompt": {"chunks": sent + said}}


def test_what_was_sent_to_ai_studio_at_once_is_one_message_and_code_has_its_result() -> None:
    [record] = read(ai_studio_files())
    [asked, answered, more, failed] = told(record)
    assert asked == (
        "user", "![](data:image/png;base64,aGk=)\n\nAttached file: a.csv\n```csv\na,b\n```\n\n[file]\n\n"
        "[video: https://youtu.be/v]\n\n[file: b.txt]\n\n[file: c.pdf]\n\nSum",
    )  # fmt: skip
    assert answered[1].startswith(
        '**Tool call: code**\n\n```\n{"language": "python"}\n```\n\ncode:\n```python'
    )
    assert answered[1].endswith("**Tool result: code**\n\n```\n2\n```\n\nT")
    assert (more, failed) == (("user", "Go"), ("assistant", ""))
    assert record.messages[0].created_at == DAY_S
    assert (record.messages[-1].state, record.messages[-1].stats) == ("failed", {"error": "Too busy"})
    asked, *said = ai_studio_files()["chunkedPrompt"]["chunks"][6:9]
    [together] = read({"chunkedPrompt": {"chunks": [asked, said[0] | said[1]]}})
    assert told(together)[1][1] == answered[1].removesuffix("\n\nT")
    silent = {"role": "model", "codeExecutionResult": {"outcome": "OUTCOME_FAILED"}}
    [failed_code] = read({"chunkedPrompt": {"chunks": [asked, said[0], silent]}})
    assert told(failed_code)[1][1].endswith("**Tool result: code**")
    nameless = {"role": "user", "inlineFile": {"mimeType": "text/plain", "data": "aGk="}}
    [unnamed] = read({"chunkedPrompt": {"chunks": [nameless, said[0]]}})
    assert told(unnamed)[0][1].startswith("Attached file: file.txt\n")


def lobe_chat(new: bool) -> dict[str, Any]:
    where = {"sessionId": "s", "topicId": "t"}
    call = {"apiName": "search", "arguments": "{}"}
    answer = {"id": "2", "role": "assistant", "content": "Yo", "parentId": "1", "tools": [call]}
    messages = [
        where | {"id": "3", "role": "tool", "content": "Found", "parentId": "2", "createdAt": DAY_MS + 2000},
        where | {"id": "1", "role": "user", "content": "Hi", "createdAt": DAY_MS},
        where | answer | {"createdAt": DAY_MS + 1000},
        {"id": "9", "role": "user", "content": "Other", "sessionId": "s", "createdAt": DAY_MS},
    ]  # fmt: skip
    topics = [{"id": "t", "title": "T", "sessionId": "s", "favorite": True, "createdAt": DAY_MS}]
    if not new:
        session = {"id": "s", "meta": {"title": "Cook"}, "config": {"systemRole": "Be."}}
        return {"exportType": "all", "state": {"messages": messages, "topics": topics, "sessions": [session]}}
    return {
        "mode": "pglite", "schemaHash": "x",
        "data": {
            "messages": messages, "topics": topics, "sessions": [{"id": "s", "title": "Cook"}],
            "agents": [{"id": "a", "systemRole": "Be."}],
            "agentsToSessions": [{"agentId": "a", "sessionId": "s"}],
        },
    }  # fmt: skip


@pytest.mark.parametrize("new", [False, True])
def test_lobe_chat_puts_messages_of_a_topic_together(new: bool) -> None:
    record, other = sorted(read(lobe_chat(new)), key=lambda one: one.key, reverse=True)
    assert (record.source, record.key, record.title, record.folder) == ("lobechat", "t", "T", ("Cook",))
    assert (record.pinned, record.system_prompt) == (True, "Be.")
    assert told(record)[0] == ("user", "Hi")
    assert told(record)[1][1].startswith("Yo\n\n**Tool call: search**")
    assert told(record)[1][1].endswith("```\nFound\n```")
    assert (other.title, told(other)) == ("Cook", [("user", "Other")])


def cherry_studio() -> dict[str, Any]:
    assistants = {"assistants": [{"name": "Help", "prompt": "Be.", "topics": [{"id": "t", "name": "T"}]}]}
    blocks = [
        {"id": "b1", "type": "main_text", "content": "Hi"}, {"id": "b2", "type": "thinking", "content": "Hm"},
        {"id": "b3", "type": "main_text", "content": "Yo"},
        {"id": "b4", "type": "main_text", "content": "Hey"},
        {"id": "b5", "type": "tool", "toolName": "f", "arguments": {"a": 1}, "content": "Out"},
    ]  # fmt: skip
    messages = [
        {"id": "u", "role": "user", "createdAt": DAY, "blocks": ["b1"]},
        {"id": "v", "role": "assistant", "askId": "u", "model": {"name": "M"}, "blocks": ["b2", "b3", "b5"]},
        {"id": "w", "role": "assistant", "askId": "u", "status": "paused", "blocks": ["b4"]},
        {"id": "x", "role": "user", "content": "Old form"},
    ]
    return {
        "time": DAY_MS, "version": 5,
        "localStorage": {"persist:cherry-studio": json.dumps({"assistants": json.dumps(assistants)})},
        "indexedDB": {"topics": [{"id": "t", "messages": messages}], "message_blocks": blocks},
    }  # fmt: skip


def test_cherry_studio_puts_blocks_into_messages() -> None:
    [record] = read(cherry_studio())
    assert (record.source, record.title, record.folder, record.system_prompt) == (
        "cherry-studio",
        "T",
        ("Help",),
        "Be.",
    )
    assert told(record) == [("user", "Hi"), ("assistant", "Hey"), ("user", "Old form")]
    answers = [message for message in record.messages if message.parent == "u"]
    assert answers[0].text.startswith("<think>\nHm\n</think>\n\nYo\n\n**Tool call: f**")
    assert (answers[0].stats, answers[1].state) == ({"model": "M"}, "stopped")


def chatbox() -> dict[str, Any]:
    call = {"type": "tool-call", "toolName": "web", "args": {"q": 1}, "result": {"r": 2}}
    parts = [{"type": "reasoning", "text": "Hm"}, {"type": "text", "text": "Yo"}, call]
    before = {"id": "a0", "role": "assistant", "contentParts": [{"type": "text", "text": "First"}]}
    old = {"id": "k", "role": "user", "content": "Before"}
    session = {
        "id": "1", "type": "chat", "name": "T", "starred": True,
        "messages": [
            {"id": "s", "role": "system", "contentParts": [{"type": "text", "text": "Be."}]},
            {"id": "u", "role": "user", "content": "Hi", "timestamp": DAY_MS},
            {"id": "a", "role": "assistant", "contentParts": parts, "model": "M"},
        ],
        "threads": [{"id": "th", "name": "Old", "messages": [old]}],
        "messageForksHash": {"u": {"position": 1, "lists": [{"messages": [before]}, {"messages": []}]}},
    }  # fmt: skip
    return {"session:1": session, "chat-sessions-list": [{"id": "1", "name": "T"}], "settings": {}}


def test_chatbox_has_threads_and_other_continuations() -> None:
    record, thread = read(chatbox())
    assert (record.source, record.title, record.system_prompt, record.pinned) == ("chatbox", "T", "Be.", True)
    assert told(record)[0] == ("user", "Hi")
    assert told(record)[1][1].startswith("<think>\nHm\n</think>\n\nYo\n\n**Tool call: web**")
    assert [(one.text, one.parent) for one in record.messages if one.key == "a0"] == [("First", "u")]
    assert (thread.key, thread.title, told(thread)) == ("th", "Old", [("user", "Before")])


def test_deep_seeks_older_messages_are_told_by_their_depth_in_any_order() -> None:
    [chat] = deep_seek(old=True)
    nodes = reversed(list(chat["mapping"].items()))
    [record] = read([chat | {"mapping": dict(nodes)}])
    assert told(record) == [("user", "Hi"), ("assistant", "<think>\nHm\n</think>\n\nYo")]


def test_googles_parts_are_read() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {
            "role": "model",
            "parts": [{"text": "Hm", "thought": True}, {"functionCall": {"name": "f", "args": {}}}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"r": 1}}}]},
        {"role": "model", "parts": [{"text": "Yo"}]},
    ]
    [record] = read({"contents": contents})
    [asked, answered] = told(record)
    assert asked == ("user", "Hi")
    assert answered[1].startswith("<think>\nHm\n</think>\n\n**Tool call: f**")
    assert answered[1].endswith('**Tool result: f**\n\n```\n{"r": 1}\n```\n\nYo')


def test_what_lacks_the_messages_of_a_program_is_none_of_its_files() -> None:
    assert format_of({"chatID": "t", "chatTitle": "T"}) is None


FILES: dict[str, Any] = {
    "LibreChat": libre_chat(nested=True), "NextChat": next_chat(), "TypingMind": typing_mind(),
    "BetterChatGPT": better_chat_gpt(), "Big-AGI": big_agi(), "Grok": grok(), "HuggingChat": hugging_chat(),
    "DeepSeek": deep_seek(old=False), "AI Studio": ai_studio(), "AI Studio, files": ai_studio_files(),
    "LobeChat": lobe_chat(new=True),
    "Cherry Studio": cherry_studio(), "Chatbox": chatbox(), "Perplexity": LOADED, "Perplexity, made": MADE,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_dragged_file_is_recognised_however_long_it_is(name: str, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.json", tmp_path / "long.json"
    whole.write_text(json.dumps(FILES[name]), encoding="utf-8")
    cut.write_text(json.dumps(FILES[name])[:-2] + " " * (1 << 16), encoding="utf-8")
    assert is_chats(whole)
    assert is_chats(cut)


def _damaged(value: Any, old: Any, new: Any) -> Any:
    """The value with every text, number and null of it replaced, one kind at a time."""
    if isinstance(value, dict):
        return {key: _damaged(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [_damaged(inner, old, new) for inner in value]
    return new if isinstance(value, old) else value


@pytest.mark.parametrize("name", FILES)
def test_values_of_the_wrong_kind_are_noted_or_refused(name: str) -> None:
    wrong: tuple[Any, ...] = (None, [], {}, 0, float("nan"), -1e300, "\ud800", ["x", None], {"$oid": []})
    read_any = 0
    for old in (str, (int, float), type(None)):
        for new in wrong:
            value = _damaged(FILES[name], old, new)
            for one in [value] if format_of(value) is not None else chats_in(value):
                if (format := format_of(one)) is None:
                    continue
                with contextlib.suppress(Unreadable):
                    record = format.read(one, lambda where, reason: None)
                    assert all(message.text.encode() is not None for message in record.messages)
                    read_any += 1
    assert read_any
