"""Sessions of coding agents, tables of messages, Ollama's database, Le Chat, Gemini and KoboldAI Lite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from desktop.services.composer.pictures import encoded
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers.formats import line_format_of
from desktop.store.transfer.importers.peek import is_chats
from tests.desktop.picture_files import drawn, saved
from tests.desktop.store.transfer.importers.files import broken, imported, lines, run, shown, written

DAY, DAY_S = "2024-05-01T10:00:00.000Z", 1714557600.0


def claude_code() -> list[dict[str, Any]]:
    def line(key: str, above: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
        message = {"role": role, "content": content} | (
            {"id": "r", "model": "m"} if role == "assistant" else {}
        )
        place = {"uuid": key, "parentUuid": above, "sessionId": "s", "cwd": "/home/me/shop", "timestamp": DAY}
        return place | {"type": role, "message": message} | more

    use = [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a.py"}]}]
    return [
        {"type": "file-history-snapshot", "messageId": "0", "snapshot": {}},
        {"type": "summary", "summary": "Listing files", "leafUuid": "5"},
        line("0", None, "user", "<command-name>/clear</command-name>"),
        line("00", "0", "user", [{"type": "text", "text": "<ide_selection>x</ide_selection>"}]),
        line(
            "1",
            "00",
            "user",
            [
                {"type": "text", "text": "<ide_opened_file>a.py</ide_opened_file>"},
                {"type": "text", "text": "List them"},
            ],
        ),
        line("2", "1", "assistant", [{"type": "thinking", "thinking": "Hm"}]),
        line("3", "2", "assistant", use),
        line("x", "3", "user", "Look", isSidechain=True),
        line("4", "3", "user", result),
        {"type": "progress", "uuid": "p", "parentUuid": "4", "sessionId": "s"},
        line("5", "p", "assistant", [{"type": "text", "text": "One file."}]),
    ]


def test_a_session_of_claude_code(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = lines(tmp_path / "s.jsonl", *claude_code())
    assert is_chats(path)
    events = run(database, path)
    assert broken(events) == []
    [event] = imported(events)
    found = store.get(event.conversation_id)
    assert (event.source, found.title, found.created_at) == ("claude-code", "Listing files", DAY_S)
    [asked, answered] = shown(store, event.conversation_id)
    assert asked == ("user", "List them")
    assert answered[1].startswith("<think>\nHm\n</think>\n\n**Tool call: Bash**")
    assert answered[1].endswith("```\na.py\n```\n\nOne file.")
    assert store.path(event.conversation_id)[1].stats["model"] == "m"
    assert imported(run(database, path))[0].outcome == "known"


def codex() -> list[dict[str, Any]]:
    def item(kind: str, **more: Any) -> dict[str, Any]:
        return {"timestamp": DAY, "type": "response_item", "payload": {"type": kind} | more}

    def said(role: str, words: str) -> dict[str, Any]:
        return item("message", role=role, content=[{"type": "input_text", "text": words}])

    meta = {"id": "c", "timestamp": DAY, "cwd": "C:\\work\\shop"}
    return [
        {"timestamp": DAY, "type": "session_meta", "payload": meta},
        {"timestamp": DAY, "type": "turn_context", "payload": {"model": "gpt-5"}},
        said("developer", "You may write."),
        said("user", "<environment_context>\nlinux\n</environment_context>"),
        said("user", "<turn_aborted>\nx\n</turn_aborted>"),
        said("user", "List them"),
        {"timestamp": DAY, "type": "event_msg", "payload": {"type": "user_message", "message": "List them"}},
        item("reasoning", summary=[{"type": "summary_text", "text": "Hm"}], encrypted_content="x"),
        item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id="t"),
        item("function_call_output", call_id="t", output="a.py"),
        item("message", role="assistant", content=[{"type": "output_text", "text": "One file."}]),
    ]


def test_a_session_of_codex(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = lines(tmp_path / "rollout.jsonl", *codex())
    assert is_chats(path)
    [event] = imported(run(database, path))
    assert event.source == "codex"
    [asked, answered] = shown(store, event.conversation_id)
    assert asked == ("user", "List them")
    assert answered[1].startswith("<think>\nHm\n</think>\n\n**Tool call: shell**")
    assert answered[1].endswith("```\na.py\n```\n\nOne file.")
    assert store.path(event.conversation_id)[1].stats["model"] == "gpt-5"
    assert store.get(event.conversation_id).system_prompt == ""  # that is the agent's


def test_a_beginning_of_codex_that_is_no_object_is_no_session() -> None:
    beginning = codex()[0]
    assert line_format_of(beginning) is not None
    assert line_format_of(beginning | {"payload": "x"}) is None


def test_le_chat_is_known_by_the_id_in_its_messages(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    asked = {"id": "1", "chatId": "c", "role": "user", "content": "Hi", "createdAt": DAY}
    answer = {
        "id": "2",
        "chatId": "c",
        "role": "assistant",
        "content": "",
        "contentChunks": [{"type": "text", "text": "Yo"}],
    }
    path = written(tmp_path / "chat-c.json", [asked, answer])
    [event] = imported(run(database, path))
    assert (event.source, shown(store, event.conversation_id)) == (
        "le-chat",
        [("user", "Hi"), ("assistant", "Yo")],
    )
    again = imported(run(database, written(tmp_path / "later.json", [asked, answer, asked | {"id": "3"}])))
    assert [(one.outcome, one.conversation_id) for one in again] == [("extended", event.conversation_id)]


def test_le_chat_writes_messages_in_any_order_and_words_in_chunks(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    """References break a sentence into chunks; calls, pictures and files made stand between the texts."""
    chunks = [
        {"type": "text", "text": "Paris"}, {"type": "reference", "referenceIds": [1]},
        {"type": "text", "text": " it is."},
        {"type": "tool_call", "name": "web_search", "publicArguments": '{"q": 1}', "publicResult": "Found"},
        {"type": "image_url", "imageUrl": "https://a.b/c.png"}, {"type": "canva", "id": "x"},
        {"type": "file_reference", "fileReference": "plan.docx", "fileUrl": "https://a.b"},
        {"type": "text", "text": "Done."},
    ]  # fmt: skip
    base = {"chatId": "c", "version": 0, "reaction": "", "canvas": [], "files": []}
    answer = base | {
        "id": "2", "role": "assistant", "content": "Paris it is.Done.", "contentChunks": chunks,
        "createdAt": "2024-05-01T10:00:00.250Z",
        "canvas": [{"type": "text/markdown", "title": "Plan", "content": "# Go"}],
    }  # fmt: skip
    files = [{"type": "image", "name": "my cat.png"}, {"type": "document", "name": "a.pdf"}]
    asked = base | {"id": "1", "role": "user", "content": "Where?", "createdAt": DAY, "files": files}
    more = base | {"id": "3", "role": "user", "content": "Go", "createdAt": "2024-05-01T11:00:00Z"}
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("chat-c.json", json.dumps([more, answer, asked]))
        archive.writestr("chat-c-files/my cat.png", saved(drawn()))
    [event] = imported(run(database, path, encode=encoded))
    [first, second, third] = shown(store, event.conversation_id)
    assert first[1].startswith("![my cat.png](picture:")
    assert first[1].endswith("[file: a.pdf]\n\nWhere?")
    assert second == (
        "assistant",
        'Paris it is.\n\n**Tool call: web_search**\n\n```\n{"q": 1}\n```\n\n**Tool result: web_search**\n\n'
        "```\nFound\n```\n\n[image]\n\n[file: plan.docx]\n\nDone.\n\n**Plan**\n\n```markdown\n# Go\n```",
    )
    assert third == ("user", "Go")


def test_le_chats_words_are_its_content_where_chunks_say_no_more(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    halves = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    entry = {"id": "1", "chatId": "c", "role": "user", "content": "Hello!", "contentChunks": halves}
    later = entry | {"id": "2", "role": "assistant", "content": "", "createdAt": DAY}
    [event] = imported(run(database, written(tmp_path / "chat-c.json", [entry, later])))
    assert shown(store, event.conversation_id) == [("user", "Hello!"), ("assistant", "Hello")]


COPILOT = (
    '\ufeffConversation,Time,Author,Message\r\n"B",2026-07-26T23:20:56,AI,"Two, yes"\r\n'
    '"A",2026-07-26T23:20:55,AI,"**One**\nline"\r\n"B",2026-07-26T23:20:56,Human,"1+1?"\r\n'
    '"A",2026-07-25T23:20:54,Human,Hi\r\n'
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_copilots_rows_are_put_in_order_by_chat(
    encoding: str, database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = tmp_path / "copilot-activity-history.csv"
    path.write_bytes(COPILOT.removeprefix("\ufeff" if encoding == "utf-16" else "").encode(encoding))
    assert is_chats(path)
    found = {event.title: shown(store, event.conversation_id) for event in imported(run(database, path))}
    assert found == {
        "A": [("user", "Hi"), ("assistant", "**One**\nline")],
        "B": [("user", "1+1?"), ("assistant", "Two, yes")],
    }


def test_a_table_of_anything_else_is_no_chat(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("name,price\nBread,2\n", encoding="utf-8")
    assert not is_chats(path)
    events = run(database, path)
    assert imported(events) == []
    assert broken(events)[0].reason.startswith("It contains no chats of a known program")


@pytest.mark.parametrize("form", ["json", "csv"])
def test_anything_llm_puts_rows_of_a_workspace_together(
    form: str, database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    rows = [
        {"id": 1, "workspace": "W", "prompt": "Hi", "response": "Yo", "sent_at": DAY, "rating": "--"},
        {"id": 2, "workspace": "V", "prompt": "Other", "response": "Yes", "sent_at": DAY, "rating": "--"},
        {"id": 3, "workspace": "W", "prompt": "More", "response": "Sure", "sent_at": DAY, "rating": "--"},
    ]
    path = tmp_path / f"chats.{form}"
    table = [",".join(rows[0]), *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
    path.write_text(json.dumps(rows) if form == "json" else "\n".join(table), encoding="utf-8")
    assert is_chats(path)
    found = {event.title: shown(store, event.conversation_id) for event in imported(run(database, path))}
    assert found == {
        "W": [("user", "Hi"), ("assistant", "Yo"), ("user", "More"), ("assistant", "Sure")],
        "V": [("user", "Other"), ("assistant", "Yes")],
    }


def test_gemini_has_a_chat_for_each_prompt(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    html = [{"html": "<p>It is <strong>two</strong>.</p><ul><li>a</li></ul>"}]
    one = {"header": "Gemini-Apps", "title": "Prompted 1+1?", "time": DAY, "products": ["Gemini-Apps"]}
    one |= {"attachedFiles": ["a.txt", 3], "imageFile": "b.png"}
    path = written(
        tmp_path / "MyActivity.json", [one | {"safeHtmlItem": html}, one | {"title": "Used Gemini Apps"}]
    )
    assert is_chats(path)
    events = run(database, path)
    [event] = imported(events)
    assert shown(store, event.conversation_id) == [
        ("user", "[file: a.txt]\n\n[file: b.png]\n\n1+1?"),
        ("assistant", "It is **two**.\n\n- a"),
    ]
    assert store.get(event.conversation_id).created_at == DAY_S
    assert "skipped: 1" in broken(events)[0].reason


@pytest.mark.parametrize(
    ("prompt", "actions", "settings"),
    [
        ("\n{{[INPUT]}}\nHi", ["\n{{[OUTPUT]}}\n", "Yo"], {"opmode": 4}),
        ("### Instruction:\nHi", ["\n### Response:\n", "Yo"],
         {"opmode": 4, "instruct_starttag": "\\n### Instruction:\\n",
          "instruct_endtag": "\\n### Response:\\n"}),
        ("{{[INPUT]}}Hi{{[INPUT_END]}}\n", ["{{[OUTPUT]}}Yo", "{{[OUTPUT_END]}}\n"], {"opmode": 4}),
        ("<|im>user\nHi<|end>\n", ["<|im>\nYo<|end>\n"],
         {"opmode": "4", "instruct_starttag": "<|im>user\\n", "instruct_starttag_end": "<|end>\\n",
          "instruct_endtag": "<|im>", "instruct_endtag_end": "<|end>\\n"}),
        ("Ann: Hi", ["\nBo: Yo"], {"opmode": 3, "chatname": "Ann", "chatopponent": "Bo"}),
        ("Ann: Hi", ["\nBo: Yo"], {"opmode": 3, "chatname": "Ann"}),
    ],
)  # fmt: skip
def test_kobold_lite_tells_turns_by_marks_and_names(
    prompt: str, actions: list[str], settings: dict[str, Any], database: Database, store: ConversationStore,
    tmp_path: Path,
) -> None:  # fmt: skip
    save = {
        "gamestarted": True,
        "prompt": prompt,
        "memory": "Be.",
        "actions": actions,
        "savedsettings": settings,
    }
    path = written(tmp_path / "saved_story.json", save)
    assert is_chats(path)
    [event] = imported(run(database, path))
    assert shown(store, event.conversation_id) == [("user", "Hi"), ("assistant", "Yo")]
    assert store.get(event.conversation_id).system_prompt == "Be."


def ollama(path: Path, **old: bool) -> Path:
    """A database as Ollama's app has it, without the newer tables if it is `old`."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE chats (id TEXT PRIMARY KEY, title TEXT, created_at TIMESTAMP);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_id TEXT, role TEXT, content TEXT, "
            "thinking TEXT, model_name TEXT, created_at TIMESTAMP);"
            "INSERT INTO chats VALUES ('c', 'Sum', '2024-05-01 10:00:00.5+00:00'), ('e', 'Empty', NULL);"
            "INSERT INTO messages VALUES (1, 'c', 'user', 'Hi', '', NULL, '2024-05-01 10:00:00+00:00'),"
            "(2, 'c', 'assistant', 'Yo', 'Hm', 'm', '2024-05-01 10:00:01+00:00');"
        )
        if not old:
            database.executescript(
                "CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, message_id INTEGER, type TEXT, "
                "function_name TEXT, function_arguments TEXT, function_result TEXT);"
                "CREATE TABLE attachments (id INTEGER PRIMARY KEY, message_id INTEGER, filename TEXT, "
                "data BLOB);"
                "INSERT INTO tool_calls VALUES (1, 2, 'function', 'add', '{}', '2');"
                "INSERT INTO attachments VALUES (1, 1, 'n.txt', CAST('one' AS BLOB));"
            )
    return path


def test_ollamas_database(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = ollama(tmp_path / "db.sqlite")
    assert is_chats(path)
    events = run(database, path)
    [event] = imported(events)
    assert (event.source, store.get(event.conversation_id).created_at) == ("ollama", DAY_S + 0.5)
    [asked, answered] = shown(store, event.conversation_id)
    assert asked == ("user", "Attached file: n.txt\n```\none\n```\n\nHi")
    assert answered[1].startswith("<think>\nHm\n</think>\n\nYo\n\n**Tool call: add**")
    assert store.path(event.conversation_id)[1].stats["model"] == "m"
    assert [note.reason for note in broken(events)] == ["It has no messages."]


def test_an_older_database_of_ollama(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    [event] = imported(run(database, ollama(tmp_path / "db.sqlite", old=True)))
    assert shown(store, event.conversation_id)[1] == ("assistant", "<think>\nHm\n</think>\n\nYo")


def test_what_kobold_lite_marks_as_the_systems_is_a_prompt(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    told = "{{[SYSTEM]}}Be kind{{[SYSTEM_END]}}{{[INPUT]}}Hi{{[OUTPUT]}}"
    save = {"gamestarted": True, "prompt": told, "actions": ["Yo"], "savedsettings": {"opmode": 4}}
    [event] = imported(run(database, written(tmp_path / "s.json", save)))
    assert shown(store, event.conversation_id) == [("user", "Hi"), ("assistant", "Yo")]
    assert store.get(event.conversation_id).system_prompt == "Be kind"


@pytest.mark.parametrize("mode", [1, 3])
def test_a_story_of_kobold_lite_is_one_reply(
    mode: int, database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    save = {
        "gamestarted": True,
        "prompt": "Once",
        "actions": [" upon", " a time"],
        "savedsettings": {"opmode": mode},
    }
    [event] = imported(run(database, written(tmp_path / "s.json", save)))
    assert shown(store, event.conversation_id) == [("assistant", "Once upon a time")]
