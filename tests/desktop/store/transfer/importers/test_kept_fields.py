"""Fields of each program's newest files: kept, written as text, or reported; unknown fields are kept."""

from __future__ import annotations

import contextlib
import copy
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from desktop.services.session.paths import request_messages
from desktop.services.session.pictures import SentMessages
from desktop.store.attachments.message_format import split
from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers.programs.open_webui.export import OpenWebUi
from desktop.store.transfer.importers.sampling import chat_settings
from desktop.store.transfer.records import ConversationRecord, LeftOut
from engine.words import set_language
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import imported, lines, node, run, shown, written


def taken(database: Database, path: Path) -> tuple[ConversationRecord, set[str]]:
    """The result of importing a file with one conversation, and the first word of each sentence reported."""
    events = run(database, path)
    (found,) = imported(events)
    return read_whole(database, found.conversation_id), {
        event.what.split()[0] for event in events if isinstance(event, LeftOut)
    }


# -- what nobody knows yet

INVENTED = {"of": ["a later", "version"], "n": 0}


def with_invention(sample: str) -> Iterator[tuple[str, Any]]:
    """The sample with an unknown field in one object, for each kind of object, and where that is."""
    values = {
        "chatgpt": files.chatgpt, "claude": files.claude, "lm-studio": files.lm_studio,
        "open-webui": files.open_webui, "sharegpt": files.sharegpt,
        "llama.cpp-old": lambda: json.loads(files.SAMPLES["llama.cpp-old"]()),
    }  # fmt: skip
    places: dict[str, list[tuple[Any, ...]]] = {
        "chatgpt": [
            (),
            ("mapping", "u", "message"),
            ("mapping", "a", "message", "metadata"),
            ("mapping", "w", "message", "author"),
        ],
        "claude": [
            (),
            ("chat_messages", 0),
            ("chat_messages", 1, "content", 0),
            ("chat_messages", 1, "content", 2),
        ],
        "lm-studio": [
            (),
            ("messages", 0, "versions", 0),
            ("messages", 1, "versions", 0, "steps", 1, "genInfo"),
        ],
        "open-webui": [(), ("chat",), ("chat", "history", "messages", "2"), ("meta",), ("chat", "params")],
        "sharegpt": [(), ("conversations", 1)],
        "llama.cpp-old": [("conv",), ("messages", 1)],
    }
    for place in places[sample]:
        value = at = copy.deepcopy(values[sample]())
        for key in place:
            at = at[key]
        at["later_invention"] = INVENTED
        yield "/".join(map(str, place)), value


@pytest.mark.parametrize(
    "sample", ["chatgpt", "claude", "lm-studio", "open-webui", "sharegpt", "llama.cpp-old"]
)
def test_fields_of_later_versions_are_kept(tmp_path: Path, sample: str) -> None:
    lost = []
    for number, (place, value) in enumerate(with_invention(sample)):
        database = Database(tmp_path / f"{number}.sqlite3")
        record, _ = taken(database, written(tmp_path / "a.json", value))
        if json.dumps(INVENTED) not in json.dumps([message.raw for message in record.messages]):
            lost.append(place)
        database.close()
    assert lost == []


def test_fields_of_later_versions_of_lines_are_kept(database: Database, tmp_path: Path) -> None:
    for place in (0, 1, 3):
        values = files.silly_tavern()
        values[place]["later_invention"] = INVENTED
        values[0]["create_date"] = place
        record, _ = taken(database, lines(tmp_path / "a.jsonl", *values))
        assert json.dumps(INVENTED) in json.dumps([message.raw for message in record.messages])


# -- Open WebUI


def test_open_webui(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    value = files.open_webui()
    params = {
        "system": "Be kind.",
        "temperature": 0.3,
        "top_k": 40,
        "max_tokens": 99,
        "stop": ["\n\n"],
        "num_ctx": 4096,
        "seed": None,
    }
    value |= {"pinned": True, "archived": True, "folder_id": "f-1", "meta": {"tags": ["work", "cooking"]}}
    value["chat"] |= {"params": params, "files": [{"type": "collection", "name": "Docs"}]}
    nodes = value["chat"]["history"]["messages"]
    nodes["2"] |= {
        "annotation": {"rating": 1},
        "sources": [{"source": {"name": "s"}}],
        "usage": {"total_tokens": 5},
    }
    nodes["1"]["files"] = [
        {"type": "file", "name": "a.py", "file": {"data": {"content": "x = 1\n"}}},
        {"type": "image", "url": "data:image/png;base64,AA=="},
    ]  # fmt: skip
    record, reported = taken(database, written(tmp_path / "a.json", [value]))
    assert record.pinned
    assert record.settings == {
        "SamplerSettings": {"temperature": 0.3, "top_k": 40},
        "StopSettings": {"max_tokens": 99, "stop_strings": ["\n\n"]},
    }  # fmt: skip
    assert reported == {"Tags", "Archived", "Ratings", "Folders", "Sampling", "Collections"}
    first, second = record.messages[:2]
    assert first.raw["chat"]["tags"] == ["work", "cooking"]
    assert first.raw["chat"]["params"] == {"num_ctx": 4096}
    assert (second.raw["usage"], second.raw["annotation"]) == ({"total_tokens": 5}, {"rating": 1})
    assert first.raw["files"][1]["url"].startswith("data:image")
    attached, place = split(first.text)
    assert [(file.name, file.text) for _, file in attached] == [("a.py", "x = 1")]
    assert first.text[place:] == "[image]\n\nHi"


def test_what_is_left_out_is_reported_in_the_users_language() -> None:
    value = files.open_webui() | {"meta": {"tags": ["work"]}}
    value["chat"]["history"]["messages"]["2"]["annotation"] = {"rating": 1}
    set_language("de")
    try:
        tags, ratings = OpenWebUi().read(value, lambda *_: None).left_out
    finally:
        set_language("en")
    assert (tags.split()[0], ratings.split()[0]) == ("Schlagwörter", "Bewertungen")


def test_what_open_webui_writes_as_html(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    value = files.open_webui()
    text = (
        '<details type="reasoning" done="true">\n<summary>Thought</summary>\n&gt; a &lt;b&gt; &amp; c\n'
        "</details>\n"
        '<details type="tool_calls" done="true" id="1" name="search" '
        'arguments="&quot;{\\&quot;q\\&quot;: \\&quot;sky\\&quot;}&quot;" '
        'result="&quot;Found &lt;it&gt;&quot;">\n<summary>Tool Executed</summary>\n</details>\n'
        '<details type="code_interpreter" done="true" output="{&quot;stdout&quot;: &quot;2&quot;}">\n'
        "<summary>Analyzed</summary>\n"
        "```python\nprint(2)\n```\n</details>\nSo it is.\n<details>\n<summary>Mine</summary>\nkept\n"
        "</details>"
    )
    value["chat"]["history"]["messages"]["2"]["content"] = text
    number = imported(run(database, written(tmp_path / "a.json", [value])))[0].conversation_id
    assert shown(store, number)[1][1] == (
        '<think>\na <b> & c\n</think>\n\n**Tool call: search**\n\n```\n{"q": "sky"}\n```\n\n'
        "**Tool result**\n\n```\nFound <it>\n```\n\n"
        "```python\nprint(2)\n```\n\n**Tool result**\n\n```\n2\n```\n\nSo it is.\n<details>\n"
        "<summary>Mine</summary>\nkept\n</details>"
    )


def test_replies_of_open_webui_made_of_items(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    value = files.open_webui()
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "output": [{"type": "input_text", "text": "one"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
        {"type": "message", "role": "assistant", "content": ["Bye."]},
    ]
    value["chat"]["history"]["messages"]["2"] |= {"content": "", "output": output}
    number = imported(run(database, written(tmp_path / "a.json", [value])))[0].conversation_id
    assert shown(store, number)[1][1] == (
        '<think>\nHm.\n</think>\n\n**Tool call: f**\n\n```\n{"a": 1}\n```\n\n**Tool '
        "result**\n\n```\none\n```\n\nHello.\n\nBye."
    )
    assert read_whole(database, number).messages[1].raw == {"output": output}


def test_chats_of_open_webui_without_a_tree(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    rows = [{"id": f"m{n}", "role": ("user", "assistant")[n % 2], "content": f"t{n}"} for n in range(4)]
    value = {"id": "o", "title": "Old", "chat": {"title": "Old", "messages": rows}, "pinned": False}
    number = imported(run(database, written(tmp_path / "a.json", [value])))[0].conversation_id
    assert [text for _, text in shown(store, number)] == ["t0", "t1", "t2", "t3"]
    assert read_whole(database, number).source == "open-webui"


def test_the_database_of_open_webui(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "webui.db"
    chat = files.open_webui()["chat"]
    with contextlib.closing(sqlite3.connect(path)) as other:
        columns = (
            "id TEXT, title TEXT, chat JSON, created_at, updated_at, pinned, archived, meta JSON, "
            "folder_id TEXT"
        )
        other.execute(f"CREATE TABLE chat ({columns})")
        other.execute("CREATE TABLE folder (id TEXT, name TEXT, parent_id TEXT)")
        other.executemany(
            "INSERT INTO folder VALUES (?, ?, ?)",
            [("a", "Outer", None), ("b", "Inner", "a"), ("c", "Loop", "c")],
        )
        rows = [
            ("1", 1, 0, '{"tags": ["x"]}', "b"),
            ("2", 0, 1, "not json", "gone"),
            ("3", None, None, None, "c"),
        ]
        for key, *about in rows:
            other.execute(
                "INSERT INTO chat VALUES (?, 'T', ?, 1, 2, ?, ?, ?, ?)", (key, json.dumps(chat), *about)
            )
        other.commit()
    events = run(database, path)
    first, second, third = (read_whole(database, event.conversation_id) for event in imported(events))
    assert (first.pinned, first.folder, first.messages[0].raw["chat"]["tags"]) == (
        True,
        ("Outer", "Inner"),
        ["x"],
    )
    assert (second.pinned, second.folder, second.messages[0].raw["chat"]["archived"]) == (False, (), 1)
    assert set(third.folder) == {"Loop"}
    assert [(event.what.split()[0], event.count) for event in events if isinstance(event, LeftOut)] == [
        ("Tags", 1), ("Archived", 1), ("Folders", 1),
    ]  # fmt: skip
    # an earlier import has reported it
    assert not any(isinstance(event, LeftOut) for event in run(database, path))


# -- LM Studio


def test_lm_studio(database: Database, tmp_path: Path) -> None:
    value = files.lm_studio()
    fields = {
        "temperature": 0.2, "topKSampling": 30, "topPSampling": {"checked": True, "value": 0.9},
        "minPSampling": {"checked": False, "value": 0.1}, "repeatPenalty": {"checked": True, "value": 1.1},
        "maxPredictedTokens": {"checked": True, "value": 64}, "stopStrings": ["END"],
        "contextOverflowPolicy": "rollingWindow", "llama.cpuThreads": 4,
    }  # fmt: skip
    value |= {
        "pinned": True, "usePerChatPredictionConfig": True, "clientInput": "not sent",
        "notes": [{"text": "mine"}], "plugins": ["p"],
        "perChatPredictionConfig": {"fields": [{"key": f"llm.prediction.{name}", "value": inner} for name,
        inner in fields.items()]},
    }  # fmt: skip
    steps = value["messages"][1]["versions"][0]["steps"]
    steps[1]["genInfo"]["stats"] = {"stopReason": "userStopped", "tokensPerSecond": 9.5}
    steps.append({"type": "debugInfoBlock", "debugInfo": "why"})
    picture = {"type": "file", "fileIdentifier": "17 - cat.png", "fileType": "image", "sizeBytes": 5}
    value["messages"][0]["versions"][0]["content"].append(picture)
    record, reported = taken(database, written(tmp_path / "a.json", value))
    assert record.pinned
    assert record.settings == {
        "SamplerSettings": {"temperature": 0.2, "top_k": 30, "top_p": 0.9, "repetition_penalty": 1.1},
        "StopSettings": {"max_tokens": 64, "stop_strings": ["END"]},
    }
    chat = record.messages[0].raw["chat"]
    assert chat["parameters"] == {
        "llm.prediction.contextOverflowPolicy": "rollingWindow", "llm.prediction.llama.cpuThreads": 4,
    }  # fmt: skip
    assert (chat["draft"], chat["notes"], chat["plugins"]) == ("not sent", [{"text": "mine"}], ["p"])
    assert reported == {"Unsent", "Notes", "Sampling"}
    assert record.messages[0].text == "Hello\n\n[image: 17 - cat.png]"
    reply = record.messages[1]
    assert reply.state == "stopped"
    assert {"genInfo": {"stats": {"stopReason": "userStopped", "tokensPerSecond": 9.5}}} in reply.raw
    assert {"type": "debugInfoBlock", "debugInfo": "why"} in reply.raw


def test_settings_that_lm_studio_does_not_use_are_not_taken(database: Database, tmp_path: Path) -> None:
    value = files.lm_studio() | {"usePerChatPredictionConfig": False}
    value["perChatPredictionConfig"] = {"fields": [{"key": "llm.prediction.temperature", "value": 0.2}]}
    record, _ = taken(database, written(tmp_path / "a.json", value))
    assert record.settings == {}
    assert record.messages[0].raw["chat"]["parameters"] == {"llm.prediction.temperature": 0.2}


def test_sampling_of_other_programs() -> None:
    settings, unused = chat_settings(
        {"temperature": 5000, "top_p": 0.5, "num_predict": -1, "stop": "x", "mirostat": 2, "num_gpu": 3}
    )
    assert settings["StopSettings"] == {"max_tokens": 0, "stop_strings": ("x",)}
    assert settings["SamplerSettings"] == {"top_p": 0.5, "mirostat": True}
    assert unused == {"temperature": 5000, "num_gpu": 3}
    assert chat_settings({"stop": ["a", "", 5, "b"]})[0] == {"StopSettings": {"stop_strings": ("a", "b")}}
    assert chat_settings({"max_tokens": "many", "stop": [1], "temperature": None}) == (
        {},
        {"max_tokens": "many", "stop": [1]},
    )


# -- SillyTavern


def tavern(*more: dict[str, Any], head: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    first = {
        "user_name": "Ann",
        "character_name": "Bo",
        "create_date": "2025-1-1 @01h 02m 36s",
        "chat_metadata": {"note_prompt": "Rain."},
    }
    return [first | (head or {}), *more]


def said(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "is_user": name == "Ann",
        "is_system": False,
        "send_date": "2025-01-01T00:00:00Z",
        "mes": text,
    } | more


def test_silly_tavern(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    rows = tavern(
        said("Bo", "Hello {{user}}, I am {{Char}} and <BOT>. {{time}}",
        extra={"reasoning": "{{user}} is here", "token_count": 7}),
        said("Bo", "Hidden by hand", is_system=True),
        said("SillyTavern System", "A tool ran", is_system=True,
             extra={"tool_invocations": [{"name": "roll", "parameters": '{"d": 6}', "result": "4"}]}),
        said("Ann", "I am {{user}}", extra={"media": [{"type": "image", "url": "/user/images/cat.png"}],
             "file": {"name": "n.txt", "text": "one"}}),
        said("Narrator", "Rain falls.", extra={"type": "narrator"}, is_system=False),
    )  # fmt: skip
    events = run(database, lines(tmp_path / "a.jsonl", *rows))
    (event,) = imported(events)
    path = store.path(event.conversation_id)
    assert [message.role for message in path] == ["assistant", "hidden", "hidden", "user", "system"]
    assert path[0].text == "<think>\nAnn is here\n</think>\n\nHello Ann, I am Bo and Bo. {{time}}"
    assert (
        path[2].text
        == 'A tool ran\n\n**Tool call: roll**\n\n```\n{"d": 6}\n```\n\n**Tool result: roll**\n\n```\n4\n```'
    )
    assert path[3].text == "Attached file: n.txt\n```\none\n```\n\n[image: cat.png]\n\nI am Ann"
    assert path[1].author.name == "Bo (hidden)"
    # one character: nobody joined it by being hidden
    assert store.get(event.conversation_id).cast.participants == ()
    asked = request_messages("", path, path[-1].id, SentMessages())
    assert [message.role for message in asked] == ["assistant", "user", "system"]
    record = read_whole(database, event.conversation_id)
    assert record.messages[0].raw["token_count"] == 7
    assert record.messages[0].raw["chat"] == {"note_prompt": "Rain."}
    assert record.messages[1].raw == {"is_system": True, "name": "Bo"} | {"is_user": False}
    assert [found.what.split()[0] for found in events if isinstance(found, LeftOut)] == ["Notes"]
    assert {found.outcome for found in imported(run(database, tmp_path / "a.jsonl"))} == {"known"}


def test_names_found_only_in_messages(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    """Newer files say "unused" in the first line; in a group each character is its own `{{char}}`."""
    rows = tavern(
        said("System", "note", is_system=True), said("Bo", "{{char}} greets {{user}}"),
        said("Cy", "{{char}} too"), said("Ann", "{{char}}?"),
        head={"user_name": "unused", "character_name": "unused"},
    )  # fmt: skip
    number = imported(run(database, lines(tmp_path / "a.jsonl", *rows)))[0].conversation_id
    assert [text for _, text in shown(store, number)] == ["note", "Bo greets Ann", "Cy too", "Bo?"]
    assert [who.name for who in store.get(number).cast.participants] == ["Bo", "Cy"]


# -- ChatGPT


def test_chatgpt_names_of_files_and_pictures(database: Database, tmp_path: Path) -> None:
    def pointer(identity: str, **metadata: Any) -> dict[str, Any]:
        return {
            "content_type": "image_asset_pointer",
            "asset_pointer": identity,
            "width": 5,
            "metadata": metadata,
        }

    asked = {"content_type": "multimodal_text", "parts": [pointer("sediment://file_1"), "Look"]}
    drawn = {
        "content_type": "multimodal_text",
        "parts": [pointer("file-service://file-9", dalle={"prompt": "A red cat"})],
    }
    attachments = [
        {"id": "file_1", "name": "holiday photo.jpg", "mime_type": "image/jpeg"},
        {"id": "file-2", "name": "paper.pdf", "mimeType": "application/pdf"},
    ]
    canvas = {
        "content_type": "code",
        "text": json.dumps({"name": "Poem", "type": "document", "content": "Roses\nare"}),
    }
    nodes = [
        node("u", None, ["c"], "user", asked, metadata={"attachments": attachments}),
        node("c", "u", ["d"], "assistant", canvas, recipient="canmore.create_textdoc"),
        node("d", "c", ["h"], "tool", drawn, author={"role": "tool", "name": "dalle.text2im"}),
        node("h", "d", ["z"], "tool", "secret", metadata={"is_visually_hidden_from_conversation": True}),
        node("z", "h", [], "assistant", "Done", metadata={"content_references": [{"url": "https://a.org"}],
             "finish_details": {"type": "interrupted"}}),
    ]  # fmt: skip
    value = {
        "title": "T",
        "mapping": {each["id"]: each for each in nodes},
        "conversation_id": "x",
        "current_node": "z",
    }
    value |= {"is_archived": True, "is_starred": True, "gizmo_id": "g-1"}
    record, reported = taken(database, written(tmp_path / "a.json", [value]))
    user, reply = record.messages
    assert user.text == "[file: paper.pdf]\n\n[image: holiday photo.jpg]\n\nLook"
    assert reply.text.startswith("**Poem**\n\n```\nRoses\nare\n```")
    assert "[image: A red cat]" in reply.text
    assert reply.text.endswith("Done")
    assert reply.state == "stopped"
    assert "https://a.org" in json.dumps(reply.raw)
    assert record.pinned
    assert (user.raw["chat"]["gizmo_id"], user.raw["attachments"]) == ("g-1", attachments)
    assert "secret" in json.dumps(user.raw["chat"]["hidden"])
    assert reported == {"Archived", "Messages"}


# -- Claude


def test_claude_attachments_and_artifacts(database: Database, tmp_path: Path) -> None:
    def use(name: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "name": name, "input": given}

    value = files.claude()
    value |= {
        "is_starred": True,
        "model": "claude-x",
        "summary": "About pg",
        "project": {"uuid": "p", "name": "Work"},
    }
    value["chat_messages"][0] |= {
        "files": [{"file_kind": "image", "file_name": "cat.png", "file_uuid": "f"}],
        "files_v2": [{"file_kind": "image", "file_name": "cat.png", "file_uuid": "f"}],
    }
    legacy = (
        'See:\n<antArtifact identifier="n" type="text/html" title="A &amp; B">\n<p>\n</antArtifact>\nDone.'
    )
    value["chat_messages"][1]["content"] = [
        {"type": "text", "text": legacy, "citations": [{"url": "https://a.org"}]},
        use("artifacts", command="create", title="Run", type="application/vnd.ant.code", language="python",
        content='print("\n")\nx = 1'),
        use("artifacts", command="update", id="i", old_str="a\nb", new_str="c\nd"),
        use("create_file", path="/home/draft.md", file_text="# One\ntwo"), use("bash_tool", command="ls"),
        use("create_file", display_content=json.dumps({"filename": "u.py", "language": "python",
        "code": "y = 2"})),
        {"type": "token_budget"}, {"type": "mystery", "payload": 5},
    ]  # fmt: skip
    value["current_leaf_message_uuid"] = "m2"
    record, reported = taken(database, written(tmp_path / "a.json", [value]))
    assert (record.pinned, record.folder, reported) == (True, ("Work",), {"Summaries"})
    user, reply = record.messages[:2]
    attached, place = split(user.text)
    assert [(file.name, file.text) for _, file in attached] == [("a.csv", "x,y\n1,2")]
    assert user.text[place:] == "[image: cat.png]\n\nPostgres?"
    assert reply.stats["model"] == "claude-x"
    assert "\\n" not in reply.text.replace('print("\\n")', "")
    assert reply.text == (
        'See:\n\n**A & B**\n\n```html\n<p>\n```\n\nDone.\n\n**Run**\n\n```python\nprint("\n")\nx = 1\n```\n\n'
        '**Tool call: artifacts**\n\n```\n{"command": "update", "id": "i"}\n```\n\nold_str:\n```\na\n'
        "b\n```\n\nnew_str:\n```\nc\nd\n```\n\n"
        "**/home/draft.md**\n\n```markdown\n# One\ntwo\n```\n\n**Tool call: bash_tool**\n\n```\n"
        '{"command": "ls"}\n```\n\n'
        "**u.py**\n\n```python\ny = 2\n```\n\n[mystery]"
    )
    assert "https://a.org" in json.dumps(reply.raw)
    assert '"payload": 5' in json.dumps(reply.raw)


# -- llama.cpp, GPT4All


def test_llama_cpp(database: Database, tmp_path: Path) -> None:
    value = json.loads(files.SAMPLES["llama.cpp-old"]())
    value["conv"] |= {"pinned": True, "reasoningEffort": "high"}
    call = [
        {"id": "t", "function": {"name": "write", "arguments": json.dumps({"path": "a", "text": "one\ntwo"})}}
    ]
    value["messages"][1]["extra"] = [
        {"type": "PDF", "name": "p.pdf", "content": "page one", "base64Data": "AA"},
        {"type": "IMAGE", "name": "i.png", "base64Url": "data:,x"},
        {"type": "MCP_RESOURCE", "name": "r", "uri": "u", "serverName": "s", "content": "resource"},
    ]  # fmt: skip
    value["messages"][2] |= {"toolCalls": json.dumps(call), "timings": {"predicted_n": 3}}
    record, _ = taken(database, written(tmp_path / "a.json", value))
    user, reply = record.messages
    attached, place = split(user.text)
    assert [(file.name, file.text) for _, file in attached] == [("p.pdf", "page one"), ("r", "resource")]
    assert user.text[place:] == "[image: i.png]\n\nAdd"
    assert '```\n{"path": "a"}\n```\n\ntext:\n```\none\ntwo\n```' in reply.text
    assert (record.pinned, user.raw["chat"]["reasoningEffort"]) == (True, "high")
    assert '"predicted_n": 3' in json.dumps(reply.raw)
    assert '"toolCallId": "t"' in json.dumps(reply.raw)
