"""Chats of Jan, whose title is in a file beside them, and of TextGen."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers import peek
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.importers.sources import chat_files
from tests.desktop.store.transfer.importers.files import broken, imported, lines, run, shown, written

THREAD = {
    "id": "t1", "object": "thread", "title": "Sky", "created": 1750000000, "updated": 1750000100.5,
    "assistants": [{"id": "jan", "name": "Jan", "instructions": "Be brief.", "model": {"id": "qwen3"}}],
    "metadata": {"is_favorite": True, "project": {"id": "p", "name": "Physics"}},
}  # fmt: skip


def line(key: str, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    """A line of Jan's messages; a text is a part of its own."""
    content = [
        {"type": "text", "text": {"value": part, "annotations": []}} if isinstance(part, str) else part
        for part in parts
    ]
    return {"id": key, "object": "thread.message", "thread_id": "t1", "role": role, "content": content,
        "status": "ready", "created_at": 1750000000000, "completed_at": 0} | more  # fmt: skip


def test_jan(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    call = {"type": "tool_call", "tool_name": "search", "input": {"q": "sky"}, "output": {"content": [
        {"type": "text", "text": "Rayleigh"}]}}  # fmt: skip
    old = {"tool": {"function": {"name": "sum", "arguments": '{"a": 1}'}}, "response": "3"}
    path = lines(
        tmp_path / "messages.jsonl",
        line("1", "user", "Why?", {"type": "image_url", "image_url": {"url": url}},
             metadata={"inline_file_contents": [{"name": "a.txt", "content": "notes"}]}),
        line("2", "assistant", {"type": "reasoning", "text": {"value": "Hm."}}, call, "It scatters."),
        line("3", "user", {"type": "poem", "text": {"value": "And 1 + 2?"}}, {"type": "video"}),
        line("4", "assistant", "Three.", status="stopped", metadata={"tool_calls": [old]}),
        line("5", "robot", "beep"),
    )  # fmt: skip
    assert is_chats(path)
    written(tmp_path / "thread.json", THREAD)
    events = run(database, path)
    [chat] = imported(events)
    assert (chat.title, chat.messages) == ("Sky", 4)
    found = store.get(chat.conversation_id)
    assert (found.pinned, found.system_prompt, found.created_at) == (True, "Be brief.", 1750000000.0)
    assert found.folder_id is not None
    texts = shown(store, chat.conversation_id)
    assert [role for role, _text in texts] == ["user", "assistant", "user", "assistant"]
    assert "notes" in texts[0][1]
    assert "Why?\n\n[image" in texts[0][1], "no picture is read here"
    assert texts[1][1].startswith("<think>\nHm.\n</think>\n\n**Tool call: search**")
    assert "**Tool result: search**\n\n```\nRayleigh\n```\n\nIt scatters." in texts[1][1]
    assert texts[2][1] == "And 1 + 2?\n\n[video]"
    assert texts[3][1].startswith("Three.\n\n**Tool call: sum**")
    assert store.path(chat.conversation_id)[3].state == "stopped"
    assert store.path(chat.conversation_id)[1].stats["model"] == "qwen3"
    [note] = broken(events)
    assert "message 5" in note.place


def test_versions_of_jan_are_a_tree(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    def at(key: str, role: str, parent: str | None, child: str = "", **more: Any) -> dict[str, Any]:
        return line(key, role, key, metadata={"parentId": parent, "activeChildId": child or None}, **more)

    path = lines(
        tmp_path / "messages.jsonl",
        at("ask", "user", None, "first"),
        at("first", "assistant", "ask"),
        at("second", "assistant", "ask"),
        at("more", "user", "first"),
        at("lost", "assistant", None),  # Jan 0.7 lost the parents of some replies
        at("below a gap", "user", "deleted"),
        at("odd", "assistant", 5),  # type: ignore[arg-type]
    )
    [chat] = imported(run(database, path))
    assert [text for _role, text in shown(store, chat.conversation_id)] == [
        "ask", "first", "more", "lost", "below a gap", "odd",
    ]  # fmt: skip
    assert len(store.variants(store.path(chat.conversation_id)[1].id)) == 2


def test_a_greeting_of_jan_stays_above_what_answers_it(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = lines(
        tmp_path / "messages.jsonl",
        line("hi", "assistant", "Hi", metadata={"parentId": None}),
        line("ask", "user", "Why?", metadata={"parentId": "hi"}),
        line("so", "assistant", "So.", metadata={"parentId": "ask"}),
    )
    [chat] = imported(run(database, path))
    assert [text for _role, text in shown(store, chat.conversation_id)] == ["Hi", "Why?", "So."]


@pytest.mark.parametrize("about", ["", "[]", '{"title": 5, "assistants": 3, "metadata": []}', "\xff"])
def test_a_damaged_file_beside_jans_messages_costs_the_title_alone(
    database: Database, store: ConversationStore, tmp_path: Path, about: str
) -> None:
    lines(tmp_path / "messages.jsonl", line("1", "user", "Hello"))
    (tmp_path / "thread.json").write_bytes(about.encode("latin-1"))
    [chat] = imported(run(database, tmp_path / "messages.jsonl"))
    assert shown(store, chat.conversation_id) == [("user", "Hello")]


def test_a_zip_of_jans_threads(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "threads.zip", "w") as archive:
        for name in ("a", "b"):
            archive.writestr(f"threads/{name}/thread.json", json.dumps(THREAD | {"id": name, "title": name}))
            message = line("1", "user", f"Hello {name}", thread_id=name)
            archive.writestr(f"threads/{name}/messages.jsonl", json.dumps(message) + "\n")
    events = run(database, tmp_path / "threads.zip")
    assert [chat.title for chat in imported(events)] == ["a", "b"]
    assert not [event for event in events if getattr(event, "files", False)], "titles were read, too"


def test_a_folder_of_jans_threads(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    threads = tmp_path / "threads"
    for name in ("a", "b"):
        (threads / name).mkdir(parents=True)
        written(threads / name / "thread.json", THREAD | {"id": name, "title": name})
        lines(threads / name / "messages.jsonl", line("1", "user", f"Hello {name}", thread_id=name))
    lines(threads / "b" / "messages.jsonl", line("1", "user", "Hello b", thread_id="b"), {"object": "?"})
    (threads / "notes.txt").write_text("no chat")
    assert is_chats(threads)
    events = run(database, threads)
    assert [chat.title for chat in imported(events)] == ["a", "b"]
    assert [note.place for note in broken(events)] == ["threads/b/messages.jsonl, line 1, message 2"]
    assert not [event for event in events if getattr(event, "files", False)], "titles were read, too"
    (threads / "config.json").write_text("{}")
    assert not is_chats(threads), "a model's folder"
    assert not is_chats(tmp_path / "gone")


def test_a_folder_dragged_over_the_window_is_not_searched_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many").mkdir()
    for number in range(5):
        (tmp_path / "many" / f"{number}.txt").touch()
    lines(tmp_path / "many" / "z.jsonl", line("1", "user", "Hello"))
    assert is_chats(tmp_path / "many")
    monkeypatch.setattr(peek, "_FIRST_NAMES", 5)
    assert not is_chats(tmp_path / "many")
    assert len(list(chat_files(tmp_path / "many"))) == 1


def test_an_empty_folder_says_what_can_be_imported(database: Database, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()  # the test's own database lies beside it
    [note] = broken(run(database, tmp_path / "empty"))
    assert note.reason.startswith("It contains no chats of a known program (Inglenook, AnythingLLM, ")


def textgen() -> dict[str, Any]:
    return {
        "internal": [["<|BEGIN-VISIBLE-CHAT|>", "Welcome!"], ["Is 1 < 2?", "Yes: 1 < 2."], ["", "Indeed."]],
        "visible": [["", "Welcome!"], ["Is 1 &lt; 2?", "Yes: 1 &lt; 2."], ["", "Indeed."]],
        "metadata": {
            "user_1": {"timestamp": "May 05, 2026 14:30",
                       "attachments": [{"name": "a.txt", "type": "text/plain", "content": "notes"}]},
            "assistant_1": {"timestamp": "May 05, 2026 14:31", "model_name": "qwen3.gguf",
                            "versions": [{"content": "No.", "timestamp": "May 05, 2026 14:30"},
                                         {"content": "Yes: 1 < 2.", "timestamp": "May 05, 2026 14:31"}],
                            "current_version_index": 1},
        },
    }  # fmt: skip


def test_textgen(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = written(tmp_path / "20260505-14-30-00.json", textgen())
    assert is_chats(path)
    [chat] = imported(run(database, path))
    texts = shown(store, chat.conversation_id)
    assert [role for role, _text in texts] == ["assistant", "user", "assistant", "assistant"]
    assert texts[1][1].endswith("Is 1 < 2?")
    assert "notes" in texts[1][1]
    reply = store.path(chat.conversation_id)[2]
    assert (reply.text, reply.stats["model"]) == ("Yes: 1 < 2.", "qwen3.gguf")
    assert [store.message(one).text for one in store.variants(reply.id)] == ["No.", "Yes: 1 < 2."]
    assert reply.created_at is not None
    [again] = imported(run(database, path))
    assert (again.conversation_id, again.messages) == (chat.conversation_id, 0)


def test_an_old_chat_of_textgen(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    value = {"data": [["Hi", "Hello"], ["broken"], "worse"], "data_visible": []}
    events = run(database, written(tmp_path / "old.json", value))
    [chat] = imported(events)
    assert shown(store, chat.conversation_id) == [("user", "Hi"), ("assistant", "Hello")]
    assert len(broken(events)) == 2
