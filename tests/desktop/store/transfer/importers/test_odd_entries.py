"""Entries that are not as their program writes them: what is read of them, kept beside, noted or refused."""

from __future__ import annotations

from typing import Any

import pytest

from desktop.store.transfer.importers.programs.chatgpt import ChatGpt
from desktop.store.transfer.importers.programs.claude import Claude
from desktop.store.transfer.importers.programs.jan import Jan
from desktop.store.transfer.importers.programs.llama_cpp import LlamaCpp
from desktop.store.transfer.importers.programs.lm_studio import LmStudio
from desktop.store.transfer.importers.programs.open_webui.export import OpenWebUi
from desktop.store.transfer.importers.programs.sharegpt import ShareGpt
from desktop.store.transfer.importers.programs.silly_tavern import SillyTavern
from desktop.store.transfer.importers.programs.textgen import TextGen
from desktop.store.transfer.importers.protocol import Format, LineFormat, Unreadable
from desktop.store.transfer.records import ConversationRecord
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import node

HIDDEN = {"is_visually_hidden_from_conversation": True}


def read(format: Format, value: Any) -> tuple[ConversationRecord, list[tuple[str, str]]]:
    """What is read, and what is noted."""
    notes: list[tuple[str, str]] = []
    return format.read(value, lambda where, reason: notes.append((where, reason))), notes


def of_chat(record: ConversationRecord) -> dict[str, Any]:
    """What is kept of the whole conversation."""
    raw = record.messages[0].raw
    found: dict[str, Any] = raw.get("chat", {}) if isinstance(raw, dict) else {}
    return found


def chatgpt(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"title": "T", "conversation_id": "c", "mapping": {each["id"]: each for each in nodes}}


def test_what_chatgpt_hides_is_kept_if_it_says_something() -> None:
    said, empty = (
        node(key, "u", [], "system", text, metadata=HIDDEN) for key, text in (("s", "Psst"), ("e", ""))
    )
    user = node("u", None, ["s", "e"], "user", "Hi")
    record, notes = read(ChatGpt(), chatgpt(user, said, empty))
    assert [message.text for message in record.messages] == ["Hi"]
    assert [each["content"]["parts"] for each in of_chat(record)["hidden"]] == [["Psst"]]
    assert "hidden" not in of_chat(read(ChatGpt(), chatgpt(user, empty))[0])
    assert notes == []


def test_a_message_of_chatgpt_that_nobody_said_is_noted_and_not_hidden() -> None:
    record, notes = read(
        ChatGpt(), chatgpt(node("u", None, ["x"], "user", "Hi"), node("x", "u", [], "moderator", "Stop"))
    )
    assert notes == [("node x", "it has no author or no content")]
    assert "hidden" not in of_chat(record)


def test_a_message_of_claude_that_is_no_object_is_noted() -> None:
    value = files.claude()
    record, notes = read(Claude(), value | {"chat_messages": ["Hi", *value["chat_messages"]]})
    assert notes == [("message 1", "it has no sender or no text")]
    assert record.key == "k-1"
    assert len(record.messages) == len(value["chat_messages"])


def test_a_chat_of_claude_without_a_key_has_that_of_its_first_message() -> None:
    value = files.claude()
    record, _ = read(Claude(), {key: each for key, each in value.items() if key != "uuid"})
    assert record.key == record.messages[0].key == "m1"


def open_webui(*messages: Any) -> dict[str, Any]:
    return {"id": "w", "chat": {"title": "T", "messages": list(messages)}}


def test_old_chats_of_open_webui_need_a_key_for_each_message() -> None:
    first, second = ({"id": key, "role": "user", "content": key} for key in ("a", "b"))
    record, _ = read(OpenWebUi(), open_webui(first, second))
    assert [(message.key, message.parent) for message in record.messages] == [("a", None), ("b", "a")]
    assert OpenWebUi().recognises(open_webui(first, second))
    for wrong in ({"role": "user", "content": "x"}, {"id": "", "role": "user"}, first, "x"):
        assert not OpenWebUi().recognises(open_webui(first, wrong))


def test_replies_of_open_webui_are_in_the_order_that_it_gives_them_and_its_tags_are_kept() -> None:
    nodes = {
        "c": {"parentId": "a", "role": "assistant", "content": "second"},
        "b": {"parentId": "a", "role": "assistant", "content": "first"},
        "a": {"role": "user", "content": "Hi", "childrenIds": ["b", "c"]},
    }
    chat = {"history": {"messages": nodes, "currentId": "b"}, "tags": ["work"]}
    record, _ = read(OpenWebUi(), {"chat": chat})
    assert [message.text for message in record.messages] == ["Hi", "first", "second"]
    assert of_chat(record)["tags"] == ["work"]


def test_parts_of_open_webui_are_kept_as_they_are() -> None:
    parts = [{"type": "text", "text": "Look"}, {"type": "audio", "data": "x"}]
    record, _ = read(OpenWebUi(), open_webui({"id": "a", "role": "user", "content": parts}))
    (message,) = record.messages
    assert message.raw["content"] == parts
    assert message.text.startswith("Look")


def test_a_file_of_open_webui_is_named_as_its_chat_names_it() -> None:
    inner = {"filename": "stored.txt", "data": {"content": "x"}}
    for file, name in (({"name": "shown.txt", "file": inner}, "shown.txt"), ({"file": inner}, "stored.txt")):
        message = {"id": "a", "role": "user", "content": "See", "files": [file]}
        record, _ = read(OpenWebUi(), open_webui(message))
        assert record.messages[0].text.startswith(f"Attached file: {name}")


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ({"messages": [], "createdAt": 1, "systemPrompt": ""}, True), ({"messages": []}, False),
        ({"messages": [], "createdAt": 1}, False), ({"messages": [], "systemPrompt": ""}, False),
        ({"messages": [{"role": "user"}], "createdAt": 1, "systemPrompt": ""}, False),
        ({"messages": [{"versions": []}]}, True), ({"messages": {}}, False), ([], False),
    ],
)  # fmt: skip
def test_which_files_are_lm_studios(value: Any, is_one: bool) -> None:
    assert LmStudio().recognises(value) is is_one


@pytest.mark.parametrize(("selected", "shown"), [(0, "a"), (1, "b"), (2, "b"), (-1, "b"), (None, "b")])
def test_what_follows_a_message_of_lm_studio_hangs_below_the_shown_version(selected: Any, shown: str) -> None:
    def version(role: str, words: str) -> dict[str, Any]:
        return {"type": "singleStep", "role": role, "content": [{"type": "text", "text": words}]}

    entries = [
        {"versions": [version("user", "a"), version("user", "b")], "currentlySelected": selected},
        {"versions": [version("user", "c")], "currentlySelected": 0},
    ]
    record, _ = read(LmStudio(), {"messages": entries})
    texts = {message.key: message.text for message in record.messages}
    (last,) = (message for message in record.messages if message.text == "c")
    assert texts[last.parent or ""] == shown


def jan(role: str, words: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": {"value": words}}]
    return {
        "id": words,
        "object": "thread.message",
        "thread_id": "t",
        "role": role,
        "content": content,
    } | more


def of_jan(*messages: dict[str, Any]) -> ConversationRecord:
    return Jan().read_lines(messages, lambda where, reason: None, {})


@pytest.mark.parametrize(
    ("status", "state"),
    [("ready", "complete"), (None, "complete"), ("stopped", "stopped"), ("error", "failed")],
)
def test_how_replies_of_jan_ended(status: str | None, state: str) -> None:
    assert of_jan(jan("user", "Hi", status=status)).messages[0].state == state


def test_tools_and_files_of_jan() -> None:
    old = {"tool": {"function": {"name": "sum", "arguments": '{"a": 1}'}}, "response": "3"}
    reply = jan("assistant", "Three.", metadata={"tool_calls": [old]})
    file = {"name": "a.txt", "content": "notes"}
    user, answer = of_jan(jan("user", "Sum?", metadata={"inline_file_contents": [file]}), reply).messages
    assert user.text == "Attached file: a.txt\n```\nnotes\n```\n\nSum?"
    assert answer.text == (
        'Three.\n\n**Tool call: sum**\n\n```\n{"a": 1}\n```\n\n**Tool result: sum**\n\n```\n3\n```'
    )
    assert (user.raw, answer.raw) == (None, None)
    call = {"tool": {"function": {"name": "sum"}}}
    (running,) = of_jan(jan("assistant", "", metadata={"tool_calls": [call]})).messages
    assert running.text == "**Tool call: sum**"
    later = of_jan(jan("user", "Hi", mood="good"), jan("assistant", "Hello")).messages
    assert later[0].raw == {"mood": "good"}
    assert later[1].parent == later[0].key


def test_results_and_unknown_parts_of_jan() -> None:
    asked, result = of_jan(
        jan("user", "Sum?"),
        jan("tool", "3", content=[{"type": "text", "text": {"value": "3"}}, {"type": "map"}, {}]),
    ).messages
    assert (asked.text, result.parent) == ("Sum?", asked.key)
    assert result.text == "**Tool result**\n\n```\n3\n\n[map]\n\n[unknown]\n```"


def test_pictures_versions_and_unknown_fields_of_textgen() -> None:
    attachments = [
        {"name": "p.png", "image_data": "AAAA"},
        {"name": "q.jpg", "image_data": "data:image/jpeg;base64,BBBB"},
        {"name": "n.txt", "content": "notes"},
    ]  # fmt: skip
    versions = [{"content": "No.", "timestamp": "2026-05-05 14:30:05"}, {"content": "Yes."}, {"content": " "}]
    value = {
        "internal": [["<|BEGIN-VISIBLE-CHAT|>", "Hi!"], ["See", "Yes."]],
        "visible": [],
        "metadata": {
            "user_1": {"attachments": attachments, "mood": "good"},
            "assistant_1": {"versions": versions, "model_name": "m", "later": 1},
        },
    }
    record, notes = read(TextGen(), value)
    greeting, asked, no, yes = record.messages
    assert notes == []
    assert (greeting.role, greeting.text, greeting.parent) == ("assistant", "Hi!", None)
    assert asked.text == (
        "Attached file: n.txt\n```\nnotes\n```\n\n![p.png](data:image/png;base64,AAAA)\n\n"
        "![q.jpg](data:image/jpeg;base64,BBBB)\n\nSee"
    )
    assert (asked.raw, no.raw, yes.raw) == ({"mood": "good"}, None, {"later": 1})
    assert [message.text for message in (no, yes)] == ["No.", "Yes."]
    assert (no.parent, yes.parent, asked.shown_child) == (asked.key, asked.key, yes.key)
    assert no.stats == yes.stats == {"model": "m"}
    assert no.created_at is not None
    assert yes.created_at is None


def test_a_row_of_textgen_that_is_no_exchange_is_noted() -> None:
    record, notes = read(TextGen(), {"internal": [["Hi", "Hello"], ["alone"], ["Bye", 5]], "visible": []})
    assert [message.text for message in record.messages] == ["Hi", "Hello"]
    assert [place for place, _reason in notes] == ["message 2", "message 3"]


def test_a_chat_of_textgen_keeps_its_key_while_it_grows_and_its_replies_change() -> None:
    def key(*rows: list[str], begun: str | None = "May 05, 2026 14:30") -> str:
        cells = {
            "user_0": {"timestamp": begun},
            f"assistant_{len(rows) - 1}": {"timestamp": "May 06, 2026 14:31"},
        }
        return read(TextGen(), {"internal": [*rows], "visible": [], "metadata": cells if begun else {}})[
            0
        ].key

    assert key(["Hi", "Hello"]) == key(["Hi", "Hey"], ["More", "Yes"])
    different = [key(["Hi", "Hello"]), key(["Ho", "Hello"]), key(["Hi", "Hello"], begun="May 05, 2026 14:32"),
                 key(["Hi", "Hello"], begun=None), key(["Hi", "Hey"], begun=None)]  # fmt: skip
    assert len(set(different)) == len(different)


def test_calls_of_tools_in_shared_files() -> None:
    entries = [
        {"from": "human", "value": "2?"}, {"from": "function_call", "value": '{"a": 1}'},
        {"from": "observation", "value": "2"}, {"from": "gpt", "value": "Two.", "reasoning": "Hm."},
    ]  # fmt: skip
    record, notes = read(ShareGpt(), {"conversations": entries})
    user, reply = record.messages
    assert (user.role, user.text, notes) == ("user", "2?", [])
    assert reply.text == (
        '**Tool call: tool**\n\n```\n{"a": 1}\n```\n\n**Tool result**\n\n```\n2\n```\n\n'
        "<think>\nHm.\n</think>\n\nTwo."
    )


@pytest.mark.parametrize(
    ("format", "value"),
    [
        *((LlamaCpp(), {"conv": {"id": "c", "name": "Sky"}, "messages": messages}) for messages in (
            [], [{"id": "a", "role": "robot", "content": "beep"}], ["odd"])),
        (OpenWebUi(), {"chat": {"history": {"messages": {"a": {"role": "robot", "content": "beep"}}}}}),
        (OpenWebUi(), {"chat": {"messages": [{"id": "a", "role": "robot", "content": "beep"}]}}),
        (TextGen(), {"internal": [["<|BEGIN-VISIBLE-CHAT|>", ""], [" ", " "]], "visible": []}),
    ],
)  # fmt: skip
def test_a_chat_without_messages_is_refused(format: Format, value: Any) -> None:
    with pytest.raises(Unreadable, match=r"^it has no messages$"):
        read(format, value)


@pytest.mark.parametrize(
    ("format", "values"),
    [
        (Jan(), [{"object": "thread.message", "id": "a", "role": "robot", "content": []}]),
        (SillyTavern(), [{"user_name": "Ann", "character_name": "Bo"}, {"name": "Bo", "mes": None}]),
    ],
)
def test_a_chat_in_lines_without_messages_is_refused(format: LineFormat, values: list[Any]) -> None:
    with pytest.raises(Unreadable, match=r"^it has no messages$"):
        format.read_lines(values, lambda where, reason: None, {})


def test_a_message_of_open_webui_that_cannot_be_read_leaves_no_gap() -> None:
    nodes = {
        "a": {"id": "a", "parentId": None, "role": "user", "content": "Hi"},
        "b": {"id": "b", "parentId": "a", "role": "robot", "content": "beep"},
        "c": {"id": "c", "parentId": "b", "role": "assistant", "content": "Hello"},
    }
    record, notes = read(OpenWebUi(), {"chat": {"history": {"messages": nodes, "currentId": "c"}}})
    assert [(message.key, message.parent) for message in record.messages] == [("a", None), ("c", "a")]
    assert notes == [("message b", "it has no role or no content")]


def test_a_version_of_lm_studio_without_content_is_noted() -> None:
    good = {"role": "user", "content": "Hi"}
    record, notes = read(LmStudio(), {"messages": [{"versions": [{"role": "user", "content": 5}, good]}]})
    assert [message.text for message in record.messages] == ["Hi"]
    assert notes == [("message 1", "one of its versions has no role or no content")]


def test_a_step_of_lm_studio_that_is_not_known_is_kept() -> None:
    step = {"type": "map", "places": ["Rome"]}
    version = {"role": "assistant", "steps": [step, {"content": "There."}]}
    record, _ = read(LmStudio(), {"messages": [{"versions": [version]}], "mood": "good"})
    assert (record.messages[0].text, record.messages[0].raw) == (
        "[map]\n\nThere.", {"parts": [step], "chat": {"mood": "good"}},
    )  # fmt: skip


def test_empty_lines_around_a_text_are_kept() -> None:
    words = "\n\n  a\n"
    message = {"id": "a", "role": "user", "content": words}
    assert read(LlamaCpp(), {"conv": {"id": "c"}, "messages": [message]})[0].messages[0].text == words
    version = {"role": "user", "content": [{"type": "text", "text": words}]}
    assert read(LmStudio(), {"messages": [{"versions": [version]}]})[0].messages[0].text == words


@pytest.mark.parametrize(
    ("line", "continues"),
    [({"type": "message"}, True), ({"type": "later"}, True), ({"type": "session"}, False), ({}, False),
     ({"type": 5}, False), ([], False)],
)  # fmt: skip
def test_which_lines_belong_to_a_session_of_llama_cpp(line: Any, continues: bool) -> None:
    assert LlamaCpp().continues(line) is continues


def test_calls_of_llama_cpp_that_are_damaged_are_shown_as_they_are() -> None:
    message = {"id": "a", "role": "assistant", "content": "Hm.", "toolCalls": "[{cut"}
    record, notes = read(LlamaCpp(), {"conv": {"id": "c"}, "messages": [message]})
    assert record.messages[0].text == "Hm.\n\n**Tool call: tool**\n\n```\n[{cut\n```"
    assert notes == []


@pytest.mark.parametrize("role", [{"name": "user"}, 3, None])
def test_objects_that_only_look_like_messages_are_no_chat(role: Any) -> None:
    assert not ShareGpt().recognises({"messages": [{"role": role, "content": "Hi"}]})
    assert not ShareGpt().recognises({"conversations": [{"from": role, "value": "Hi"}]})
    assert not ShareGpt().recognises({"messages": [{"role": "user"}]})
    assert ShareGpt().recognises({"messages": [{"role": "user", "content": "Hi"}]})
