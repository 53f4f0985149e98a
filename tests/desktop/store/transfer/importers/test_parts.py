"""How files, tool calls and odd values are written into a message, and names found in several places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers.fields import compact, content_key, first_text, rest
from desktop.store.transfer.importers.parts import (
    document,
    fenced,
    made_file,
    part_picture,
    tool_call,
    tool_result,
    with_files,
)
from desktop.store.transfer.importers.programs.chatgpt import ChatGpt
from desktop.store.transfer.importers.programs.claude import Claude
from desktop.store.transfer.importers.programs.lm_studio import LmStudio
from desktop.store.transfer.importers.programs.sharegpt import ShareGpt
from desktop.store.transfer.importers.protocol import Format, Unreadable
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, imported, run, shown, written


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (fenced("\n  a\n\n"), "```\n\n  a\n```"),
        (fenced("````\nb", "md"), "`````md\n````\nb\n`````"),
        (fenced("```\n````\nb"), "`````\n```\n````\nb\n`````"),
        (document("a.py", "\n  x\n\n"), "Attached file: a.py\n```python\n\n  x\n```"),
        (document("a.py", " \n", "image"), "[image: a.py]"),
        (document("w" * 130, ""), f"[file: {'w' * 119}…]"),
        (document("w" * 120, ""), f"[file: {'w' * 120}]"),
        (made_file("", "x"), "**File**\n\n```\nx\n```"),
        (made_file("a.js", " "), "**a.js**"),
        (tool_result("", " "), "**Tool result**"),
        (tool_result("t", "x"), "**Tool result: t**\n\n```\nx\n```"),
        (tool_call("", None), "**Tool call: tool**"),
        (tool_call("t", {}), "**Tool call: t**"),
        (tool_call("t", {"a": 1}), '**Tool call: t**\n\n```\n{"a": 1}\n```'),
        (tool_call("t", '{"a": "b"}'), '**Tool call: t**\n\n```\n{"a": "b"}\n```'),
        (tool_call("t", "say \\n {"), "**Tool call: t**\n\n```\nsay \\n {\n```"),
        (tool_call("t", '{"a": "b\\nc"'), '**Tool call: t**\n\n```\n{"a": "b\\nc"\n```'),
        (tool_call("t", '{"a": "b\\nc"}'), "**Tool call: t**\n\na:\n```\nb\nc\n```"),
        (tool_call("t", {"language": "not a word", "code": "a\nb"}),
         '**Tool call: t**\n\n```\n{"language": "not a word"}\n```\n\ncode:\n```\na\nb\n```'),
        (tool_call("t", {"language": "rust", "code": "a\nb", "short": "c\n"}),
         '**Tool call: t**\n\n```\n{"language": "rust", "short": "c\\n"}\n```\n\ncode:\n```rust\na\nb\n```'),
        (with_files([], "\nw\n"), "\nw\n"),
        (part_picture({"type": "image_url", "image_url": {"url": "u"}}), "u"),
        (part_picture({"type": "input_image", "image_url": "u"}), "u"),
        (part_picture({"type": "image_url", "image_url": {"url": 5}}), ""),
        (part_picture({"type": "text", "image_url": "u"}), ""),
        (part_picture("u"), ""),
        (with_files(["[image]", document("a", "x")], "w"), "Attached file: a\n```\nx\n```\n\n[image]\n\nw"),
        (compact({"k": "é" * 40}), '{"k": "' + "é" * 40 + '"}'),
        (compact({"k": "é" * 100}), '{\n  "k": "' + "é" * 100 + '"\n}'),
        (first_text(5, None, "", "a"), "a"),
        (rest({"a": 0, "b": None, "c": False, "d": "", "e": [], "f": {}, "g": 1, "h": True, "known": 1},
        "known"),
         {"a": 0, "g": 1, "h": True}),
    ],
)  # fmt: skip
def test_what_is_written(found: Any, expected: Any) -> None:
    assert found == expected


def test_keys_of_content_never_change() -> None:
    """With another key a conversation that is already here would be imported twice."""
    assert (
        content_key({"b": "é\ud800", "a": [1]})
        == content_key({"a": [1], "b": "é\ud800"})
        == "b5ed69c2ffdbb8085dfbe509d4c25bfb"
    )


def first(database: Database, store: ConversationStore, path: Path) -> str:
    return shown(store, imported(run(database, path))[0].conversation_id)[0][1]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"files": [{"name": "n.txt"}]}, "[file: n.txt]\n\nPostgres?"),
        ({"content": [{"type": "document", "title": "D"}]}, "[document: D]"),
        ({"content": [], "text": "plain"}, "plain"),
        ({"content": [{"type": "tool_use", "name": "artifacts",
        "input": {"id": "i", "content": "x", "type": "text/html"}}]},
         "**i**\n\n```html\nx\n```"),
        ({"content": [{"type": "tool_use", "name": "artifacts",
        "input": {"id": "i", "command": "update", "content": "x"}}]},
         '**Tool call: artifacts**\n\n```\n{"id": "i", "command": "update", "content": "x"}\n```'),
    ],
)  # fmt: skip
def test_claude(
    database: Database, store: ConversationStore, tmp_path: Path, message: dict[str, Any], expected: str
) -> None:
    value = files.claude() | {"name": None, "title": "Named"}
    value["chat_messages"][0].pop("attachments")
    value["chat_messages"][0] |= message
    assert first(database, store, written(tmp_path / "a.json", value)) == expected
    assert store.list()[0].title == "Named"


def chatgpt(*contents: Any, **more: Any) -> dict[str, Any]:
    user = files.node("u", None, ["a"], "user", {"content_type": "multimodal_text", "parts": [*contents]})
    user["message"] |= more
    nodes = [user, files.node("a", "u", [], "assistant", "Yes.")]
    return {"mapping": {node["id"]: node for node in nodes}, "current_node": "a", "id": "c"}


def sharegpt(*entries: Any) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": "Hi"}, *entries]}


def claude(part: Any) -> dict[str, Any]:
    value = files.claude()
    value["chat_messages"][0] |= {"content": [part], "text": "", "attachments": []}
    return value


def lm_studio(*steps: Any) -> dict[str, Any]:
    value = files.lm_studio()
    value["messages"][0]["versions"][0] = {"role": "assistant", "steps": [*steps]}
    return value


@pytest.mark.parametrize(
    ("format", "value", "place", "expected"),
    [
        (ChatGpt(), chatgpt({"content_type": "audio_transcription", "text": "Said."}), 0, "Said."),
        (ChatGpt(), chatgpt(7, {"content_type": "x"}, {"text": "T"}), 0, "7\n\n[x]\n\nT"),
        (ChatGpt(), chatgpt(), 0, "[multimodal_text]"),
        (Claude(), claude("plain"), 0, "plain"),
        (Claude(), claude({"type": "tool_result", "name": "t", "content": [{"type": "text", "text": "r"}]}),
         0,
         "**Tool result: t**\n\n```\nr\n```"),
        (Claude(), claude({"type": "tool_use", "name": "create_file", "input": {"path": "p"},
         "display_content": "{"}), 0, '**Tool call: create_file**\n\n```\n{"path": "p"}\n```'),
        (Claude(), claude({"type": "novel"}), 0, "[novel]"),
        (LmStudio(), lm_studio({"type": "toolStatus", "statusState": {"status": {"type": "ran"}}}), 0,
         "[tool: ran]"),
        (LmStudio(), lm_studio(3, {"type": "novel"}, {"content": "Words."}), 0, "[novel]\n\nWords."),
        (ShareGpt(), sharegpt({"from": "function_call", "value": '{"a": 1}'}), 1,
         '**Tool call: tool**\n\n```\n{"a": 1}\n```'),
        (ShareGpt(), sharegpt({"from": "observation", "value": "r", "name": "t"}), 1,
         "**Tool result: t**\n\n```\nr\n```"),
        (ShareGpt(), sharegpt({"role": "assistant", "content": None, "tool_calls": [
            {"function": {"name": "t", "arguments": {"a": 1}}}]}), 1,
         '**Tool call: t**\n\n```\n{"a": 1}\n```'),
        (ShareGpt(), sharegpt({"role": "user", "content": ["a", {"text": "b"}, {"type": "novel"}, {}]}), 1,
         "a\n\nb\n\n[novel]\n\n[unknown]"),
    ],
)  # fmt: skip
def test_parts_of_every_kind_are_shown(format: Format, value: Any, place: int, expected: str) -> None:
    assert format.read(value, lambda where, reason: None).messages[place].text == expected


@pytest.mark.parametrize(
    ("format", "value", "where", "reason"),
    [
        (Claude(), {"chat_messages": [*files.claude()["chat_messages"], {"uuid": "m4", "sender": "human"}]},
         "message 4", "it has no sender or no text"),
        (ShareGpt(), sharegpt({"from": "human"}), "message 2", "no known role or no text"),
        (ShareGpt(), sharegpt("odd"), "message 2", "no known role or no text"),
        (ShareGpt(), sharegpt({"from": "nobody", "value": "x"}), "message 2", "no known role or no text"),
        (ShareGpt(), sharegpt({"from": "gpt", "value": 5}), "message 2", "no known role or no text"),
        (ChatGpt(), chatgpt("Hi") | {"mapping": chatgpt("Hi")["mapping"] | {"n": 5}}, "node n",
         "it is not an object"),
        (LmStudio(), {"messages": [{}, *files.lm_studio()["messages"]]}, "message 1", "it has no versions"),
        (LmStudio(), {"messages": [*files.lm_studio()["messages"], {"versions": [{"role": "user"}]}]},
         "message 4", "one of its versions has no role or no content"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named_and_the_rest_is_read(
    format: Format, value: Any, where: str, reason: str
) -> None:
    notes: list[tuple[str, str]] = []
    assert format.read(value, lambda where, reason: notes.append((where, reason))).messages
    assert [place for place, _ in notes] == [where]
    assert reason in notes[0][1]


@pytest.mark.parametrize("format", [ShareGpt(), LmStudio()])
def test_a_chat_without_messages_is_refused(format: Format) -> None:
    with pytest.raises(Unreadable, match="it has no messages"):
        format.read({"messages": []}, lambda where, reason: None)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "file", "name": "n.txt"}, "[file: n.txt]"),
        (
            {"type": "toolCallRequest", "name": "t", "parameters": {"a": 1}},
            '**Tool call: t**\n\n```\n{"a": 1}\n```',
        ),
        ({"type": "toolCallResult", "content": None}, "**Tool result**"),
        ({"type": "toolCallResult", "content": [1]}, "**Tool result**\n\n```\n[1]\n```"),
    ],
)
def test_lm_studio(
    database: Database, store: ConversationStore, tmp_path: Path, part: dict[str, Any], expected: str
) -> None:
    value = files.lm_studio()
    value["messages"][0]["versions"][0]["content"] = [part]
    assert first(database, store, written(tmp_path / "a.json", value)) == expected
    assert store.path(store.list()[0].id)[1].state == "complete"


@pytest.mark.parametrize(
    ("node", "expected", "error", "state"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}, "a\n\n[image_url]", None,
         "complete"),
        ({"files": [{"type": "file", "name": "a", "data": {"content": "x"}}]},
         "Attached file: a\n```\nx\n```\n\nHi", None, "complete"),
        ({"files": [{"name": "a"}]}, "[file: a]\n\nHi", None, "complete"),
        ({"files": [{"type": "web", "url": "https://a.org"}]}, "[web: https://a.org]\n\nHi", None,
         "complete"),
        ({"done": False}, "Hi", None, "stopped"), ({"done": True}, "Hi", None, "complete"),
        ({"error": "No model", "done": False}, "Hi", "No model", "failed"),
        ({"error": {"content": "Gone"}}, "Hi", "Gone", "failed"),
        ({"error": True}, "Hi", "The reply failed.", "failed"),
    ],
)  # fmt: skip
def test_open_webui(
    database: Database,
    store: ConversationStore,
    tmp_path: Path,
    node: dict[str, Any],
    expected: str,
    error: str | None,
    state: str,
) -> None:
    value = files.open_webui()
    value["chat"]["history"]["messages"]["1"] |= node
    assert first(database, store, written(tmp_path / "a.json", value)) == expected
    message = store.path(store.list()[0].id)[0]
    assert (message.stats.get("error"), message.state) == (error, state)


def test_llama_cpp_skips_what_is_damaged(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    value = json.loads(files.SAMPLES["llama.cpp-old"]())
    value["messages"] = [
        {"id": 1, "type": "root", "role": "system", "content": ""},
        {"id": 2, "role": "user", "content": "a", "parent": 1},
        {"id": 3, "role": "assistant", "content": None, "parent": 2},
        {"id": 4, "role": "user", "content": "b", "parent": 3},
        {"role": "user", "content": "no id", "parent": 4},
        {"id": 5, "role": "oracle", "content": "c", "parent": 4},
        {"id": 6, "role": "assistant", "content": "d", "parent": 4, "extra": [{"name": "n"}]},
    ]  # fmt: skip
    value["conv"]["currNode"] = 6
    events = run(database, written(tmp_path / "a.json", value))
    assert [text for _, text in shown(store, imported(events)[0].conversation_id)] == [
        "a",
        "b",
        "[unknown: n]\n\nd",
    ]
    assert [(event.place.rpartition(", ")[2], event.reason) for event in broken(events)] == [
        (f"message {number}", "It has no id, no role or no content.") for number in (3, 5, 6)
    ]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"generation": {"prompt": "A dog"}}, "[image: A dog]"),
        ({"dalle": {"prompt": "A cat"}}, "[image: A cat]"),
        (None, "[image: file_7]"),
    ],
)
def test_chatgpt_pictures(
    database: Database, store: ConversationStore, tmp_path: Path, metadata: Any, expected: str
) -> None:
    part = {
        "content_type": "image_asset_pointer",
        "asset_pointer": "sediment://file_7#frame?x",
        "metadata": metadata,
    }
    value = {
        "mapping": {
            "u": files.node("u", None, [], "user", {"content_type": "multimodal_text", "parts": [part]})
        },
        "id": "only",
    }
    assert first(database, store, written(tmp_path / "a.json", value)) == expected
