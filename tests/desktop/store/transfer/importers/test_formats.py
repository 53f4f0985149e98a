"""Each format as its program writes it: texts, roles, variants, shown path, dates, models, thoughts, tools,
files.
"""

from __future__ import annotations

import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers import labels
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, imported, lines, run, shown, written

THINK = "<think>\n{}\n</think>\n\n"


def one(database: Database, path: Path) -> int:
    events = run(database, path)
    assert broken(events) == []
    assert [event.outcome for event in imported(events)] == ["new"]
    return imported(events)[0].conversation_id


def test_the_names_of_the_programs() -> None:
    assert labels() == (
        "Inglenook", "AnythingLLM", "BetterChatGPT", "Big-AGI", "Chatbox", "ChatGPT", "Cherry Studio",
        "Claude", "Claude Code", "Codex", "DeepSeek", "Gemini", "Google AI Studio", "GPT4All", "Grok",
        "HuggingChat", "Jan", "KoboldAI Lite", "Le Chat", "LibreChat", "llama.cpp web UI", "LM Studio",
        "LobeChat", "Microsoft Copilot", "NextChat", "Ollama", "Open WebUI", "Perplexity", "ShareGPT",
        "SillyTavern", "TextGen", "TypingMind",
    )  # fmt: skip


def test_chatgpt(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = one(database, written(tmp_path / "conversations.json", [files.chatgpt()]))
    assert shown(store, number) == [
        ("user", "Why is the sky blue?"), ("assistant", "Rayleigh scattering."), ("user", "Thanks"),
        ("assistant", "Gladly."),
    ]  # fmt: skip
    path = store.path(number)
    assert [(message.variant_index, message.variant_count) for message in path] == [
        (0, 1),
        (0, 2),
        (0, 1),
        (0, 1),
    ]
    assert path[1].stats["model"] == "gpt-4o"
    assert path[0].created_at == 1700000000.5
    head = store.get(number)
    assert (head.title, head.created_at, head.updated_at) == ("Sky 1", 1700000000.5, 1700000600.25)


def test_chatgpt_marks_become_what_they_stand_for(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    cited, place = "\ue200cite\ue202turn0search1\ue201", '\ue200entity\ue202["city","Paris","France"]\ue201'
    references = [{"matched_text": cited, "alt": "([Site](https://a.b))"}, {"matched_text": None, "alt": "x"}]
    words = f"{place} is big {cited}\ue200cite\ue202turn9\ue201."
    reply = files.node("a", "u", [], "assistant", words, metadata={"content_references": references})
    nodes = [files.node("u", None, ["a"], "user", "Big?"), reply]
    chat = {"conversation_id": "m", "title": "T", "mapping": {each["id"]: each for each in nodes}}
    number = one(database, written(tmp_path / "conversations.json", [chat]))
    assert shown(store, number)[1] == ("assistant", "Paris is big ([Site](https://a.b)).")


def test_chatgpt_tools_thoughts_pictures_and_instructions(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    own = {
        "is_user_system_message": True,
        "user_context_message_data": {"about_user_message": "I cook.", "about_model_message": "Be terse."},
    }
    picture = {
        "content_type": "multimodal_text",
        "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "file-1"}, "Look"],
    }
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "Count."}]}
    nodes = [
        files.node("r", None, ["i"]),
        files.node("i", "r", ["u"], "system", {"content_type": "text", "parts": [""]}, metadata=own),
        files.node("u", "i", ["t"], "user", picture),
        files.node("t", "u", ["c"], "assistant", thoughts),
        files.node(
            "c",
            "t",
            ["o"],
            "assistant",
            {"content_type": "code", "language": "unknown", "text": "1+1"},
            recipient="python",
        ),
        files.node(
            "o",
            "c",
            ["z"],
            "tool",
            {"content_type": "execution_output", "text": "2"},
            author={"role": "tool", "name": "python"},
        ),
        files.node("z", "o", [], "assistant", "Two."),
    ]
    value = {
        "title": "Sum",
        "mapping": {node["id"]: node for node in nodes},
        "conversation_id": "x",
        "current_node": "z",
    }
    number = one(database, written(tmp_path / "a", value))  # one conversation alone is also a valid file
    user, reply = store.path(number)
    assert store.get(number).system_prompt == "I cook.\n\nBe terse."
    assert user.text == "[image: file-1]\n\nLook"
    assert read_whole(database, number).messages[0].raw["content"] == picture  # nothing is lost
    assert reply.text.startswith(THINK.format("Plan\n\nCount.") + "**Tool call: python**")
    assert "**Tool result: python**\n\n```\n2\n```\n\nTwo." in reply.text
    assert read_whole(database, number).source == "chatgpt"


def test_claude(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = one(database, written(tmp_path / "conversations.json", [files.claude()]))
    assert shown(store, number) == [
        ("user", "Attached file: a.csv\n```csv\nx,y\n1,2\n```\n\nPostgres?"),
        ("assistant", "No."),
    ]
    assert store.get(number).created_at == datetime.fromisoformat("2026-02-14T10:04:22+00:00").timestamp()
    first = store.message(store.variants(store.path(number)[1].id)[0])
    assert first.text == THINK.format("Hm.") + 'Yes.\n\n**Tool call: search**\n\n```\n{"q": "pg"}\n```'


def test_claude_without_parents_is_a_sequence(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    rows = [
        {
            "uuid": str(n),
            "sender": "human" if n % 2 else "assistant",
            "text": f"t{n}",
            "created_at": "2025-01-01T00:00:00Z",
        }
        for n in range(1, 5)
    ]
    number = one(database, written(tmp_path / "a.json", [{"uuid": "u", "name": "n", "chat_messages": rows}]))
    assert [text for _, text in shown(store, number)] == ["t1", "t2", "t3", "t4"]
    rows[3]["parent_message_uuid"] = "2"  # one that says what it follows makes a tree
    tree = one(database, written(tmp_path / "b.json", [{"uuid": "v", "name": "n", "chat_messages": rows}]))
    assert [text for _, text in shown(store, tree)] == ["t2", "t4"]


def test_lm_studio(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = one(database, written(tmp_path / "1730.conversation.json", files.lm_studio()))
    assert shown(store, number) == [
        ("user", "Hello"),
        ("assistant", THINK.format("Let me see.") + "First"),
        ("user", "Go on"),
    ]
    reply = store.path(number)[1]
    assert (reply.variant_index, reply.variant_count, reply.stats["model"]) == (0, 2, "qwen/q-7b")
    assert reply.created_at == 1730000001.0
    assert (store.get(number).system_prompt, store.get(number).created_at) == ("Be brief.", 1730000000.0)


def test_open_webui(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = one(database, written(tmp_path / "a.json", [files.open_webui()]))
    assert shown(store, number) == [("user", "Hi"), ("assistant", THINK.format("One.\nTwo.") + "Hello.")]
    assert store.path(number)[1].variant_count == 2
    assert (store.get(number).system_prompt, store.get(number).updated_at) == ("Be kind.", 1710000099)


def test_variants_of_open_webui_are_in_the_order_of_its_lists(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    value = files.open_webui()
    history = value["chat"]["history"]
    history["messages"] = dict(reversed(history["messages"].items()))
    path = store.path(one(database, written(tmp_path / "a.json", [value])))
    assert [message.text[-6:] for message in path] == ["Hi", "Hello."]
    assert (path[1].variant_index, path[1].variant_count) == (0, 2)


def test_an_old_open_webui_export(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = one(database, written(tmp_path / "a.json", [files.open_webui()["chat"]]))
    assert store.get(number).title == "Greeting"


@pytest.mark.parametrize("sample", ["llama.cpp", "llama.cpp-old"])
def test_llama_cpp(database: Database, store: ConversationStore, tmp_path: Path, sample: str) -> None:
    (tmp_path / "a").write_bytes(files.SAMPLES[sample]())
    number = one(database, tmp_path / "a")
    user, reply = store.path(number)
    assert user.text == "Attached file: n.txt\n```\none\n```\n\nAdd"
    assert (
        reply.text
        == THINK.format("Use it.")
        + '**Tool call: add**\n\n```\n{"a": 1}\n```\n\n**Tool result**\n\n```\n2\n```\n\nIt is 2.'
    )
    assert (reply.role, reply.stats["model"], reply.created_at) == ("assistant", "m", 1720000002.0)


def test_several_sessions_of_llama_cpp_follow_each_other(database: Database, tmp_path: Path) -> None:
    sample = files.SAMPLES["llama.cpp"]()
    (tmp_path / "a.jsonl").write_bytes(
        sample + b"\n" + sample.replace(b'"l-1"', b'"l-2"').replace(b"Sum", b"Other")
    )
    assert [event.title for event in imported(run(database, tmp_path / "a.jsonl"))] == ["Sum", "Other"]


def test_silly_tavern(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = one(database, lines(tmp_path / "a.jsonl", *files.silly_tavern()))
    assert shown(store, number) == [
        ("assistant", "Welcome."),
        ("user", "Hi"),
        ("assistant", THINK.format("Hm") + "B!"),
    ]
    path = store.path(number)
    assert (path[2].variant_index, path[2].variant_count) == (1, 3)
    assert path[0].created_at == datetime(2024, 9, 28, 1, 2, 36).timestamp()
    assert path[1].created_at == datetime(2024, 9, 28, 1, 3).timestamp()
    assert store.message(store.variants(path[2].id)[0]).stats["model"] == "x"
    assert store.get(number).title == "Bo"


@pytest.mark.parametrize("shape", ["list", "lines", "one", "messages", "bare", "bare lines"])
def test_sharegpt(database: Database, store: ConversationStore, tmp_path: Path, shape: str) -> None:
    value = files.sharegpt()
    bare = [
        {"role": role, "content": text}
        for role, text in (("system", "Be good."), ("user", "1+1"), ("assistant", "2"))
    ]
    content: dict[str, Any] = {"list": [value], "one": value, "messages": {"messages": bare}, "bare": bare}
    path = (
        lines(tmp_path / "a", *(bare if shape == "bare lines" else [value]))
        if "lines" in shape
        else written(tmp_path / "a", content[shape])
    )
    number = one(database, path)
    assert shown(store, number) == [("user", "1+1"), ("assistant", "2")]
    assert store.get(number).system_prompt == "Be good."
    assert store.get(number).title == "1+1"  # as a conversation made here gets its title


@pytest.mark.parametrize("version", range(1, 13))
def test_gpt4all(database: Database, store: ConversationStore, tmp_path: Path, version: int) -> None:
    (tmp_path / "a.chat").write_bytes(files.gpt4all(version))
    number = one(database, tmp_path / "a.chat")
    path = store.path(number)
    assert [message.role for message in path] == ["user", "assistant", "user", "assistant"]
    assert path[0].text == ("Attached file: n.txt\n```\none\n```\n\n" if version >= 10 else "") + "Hello"
    assert path[1].text.endswith("Hi 😀")
    if version == 12:
        assert path[1].text.startswith(
            THINK.format("Hm")
            + "**Tool call: js**\n\n```\ncode: 1+1\n```\n\n**Tool result: js**\n\n```\n2\n```"
        )
    assert path[1].stats["model"] == "model.gguf"
    head = store.get(number)
    assert (head.title, head.created_at) == ("My chat", 1700000000.0)


def test_gpt4all_against_qt_itself(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    """The primitive types as Qt writes them: the file of version 11 again, by `QDataStream`."""
    from PySide6.QtCore import QByteArray, QDataStream, QIODevice

    data = QByteArray()
    out = QDataStream(data, QIODevice.OpenModeFlag.WriteOnly)
    out.setVersion(QDataStream.Version.Qt_6_2)
    out.writeUInt32(0xF5D553CC)
    out.writeInt32(11)
    out.writeInt64(1700000000)
    for text in ("g-2", "Größe 😀", "me", "model.gguf"):
        out.writeQString(text)
    out.writeQStringList([])
    out.writeInt32(1)
    out.writeInt32(0)
    for text in ("Prompt: ", "Grüße 😀", ""):
        out.writeQString(text)
    for flag in (False, True, False, False):
        out.writeBool(flag)
    out.writeInt64(0)
    out.writeInt64(0)
    (tmp_path / "a.chat").write_bytes(data.data())
    number = one(database, tmp_path / "a.chat")
    assert (store.get(number).title, shown(store, number)) == ("Größe 😀", [("user", "Grüße 😀")])
    assert store.path(number)[0].stats  # stopped there, and not by the end of this program


def test_a_zip_with_everything(database: Database, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", json.dumps({"id": "u", "email": "a@b"}))
        archive.writestr("chat.html", "<html>" + "x" * 5000)
        archive.writestr("media/picture.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
        archive.writestr("message_feedback.json", json.dumps([{"id": "f", "rating": "up"}]))
        archive.writestr("conversations.json", json.dumps([files.chatgpt(1), files.chatgpt(2)]))
        archive.writestr("more/c-1.json", json.dumps(files.chatgpt(1)))
        archive.writestr("old.chat", files.gpt4all())
    events = run(database, tmp_path / "export.zip")
    assert broken(events) == []
    assert [(event.source, event.outcome) for event in imported(events)] == [
        ("chatgpt", "new"), ("chatgpt", "new"), ("chatgpt", "known"), ("gpt4all", "new"),
    ]  # fmt: skip


def test_file_names_do_not_matter(database: Database, tmp_path: Path) -> None:
    for number, (name, sample) in enumerate(files.SAMPLES.items()):
        path = tmp_path / f"{number}.png"
        path.write_bytes(b"\xef\xbb\xbf" * (name != "gpt4all") + sample())
        assert {event.source for event in imported(run(database, path))} == {name.removesuffix("-old")}


def test_conversations_in_a_wrapper(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    damaged = files.chatgpt()
    damaged["mapping"]["n"] = 5
    events = run(
        database, written(tmp_path / "a", {"account": {}, "conversations": [files.claude(), 5, damaged]})
    )
    assert [event.source for event in imported(events)] == ["claude", "chatgpt"]
    assert [(event.place, event.reason) for event in broken(events)] == [
        ("a, line 1, 3 in it, node n", "It is not an object."),
        ("a", "Entries that are not chats of a known program were skipped: 1."),
    ]
    rows = [
        [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": "a"}]
        for number in range(3)
    ]
    events = run(database, written(tmp_path / "b", rows))
    assert [shown(store, event.conversation_id)[0][1] for event in imported(events)] == ["q0", "q1", "q2"]
