"""Calls of tools in exports and imports."""

from __future__ import annotations

import json
from pathlib import Path

from desktop.store.conversations.bulk_insert import RecordWriter, read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.tool_calls import StoredCall
from desktop.store.database.database import Database
from desktop.store.database.open import open_conversations
from desktop.store.transfer.exporters.html import html_page
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.own import own_json
from desktop.store.transfer.exporters.print import print_pieces
from desktop.store.transfer.exporters.reading import named_path, shown_path
from desktop.store.transfer.importers.programs.own import Own

CALL = StoredCall("call_1", "files_read", '{"path": "/a"}', "files", "read")


def called(store: ConversationStore, waiting: bool = False) -> int:
    chat = store.create().id
    above = store.add_message(chat, None, "user", "What does it say?").id
    above = store.add_message(chat, above, "assistant", "I look.").id
    above = store.add_message(chat, above, "tool", "It says\n```no```.", "complete", call=CALL).id
    if waiting:
        store.add_message(chat, above, "tool", "", "stopped", call=CALL._replace(waiting=True))
    return chat


def test_texts_have_the_call_and_its_result(store: ConversationStore, database: Database) -> None:
    record = read_whole(database, called(store))
    text = "".join(markdown([record]))
    assert "> **Called read (files)**" in text
    assert '> ```json\n> {\n>   "path": "/a"\n> }\n> ```\n>\n> ````\n> It says\n> ```no```.\n> ````' in text
    assert text.count("It says") == 1
    page = "".join(html_page([record]))
    assert "Called read (files)" in page
    assert "```no```" in page
    assert [message.author for message in shown_path(record)] == ["", "", "Called read (files)"]


def test_a_call_is_folded_in_a_web_page(store: ConversationStore, database: Database) -> None:
    page = "".join(html_page([read_whole(database, called(store, waiting=True))]))
    calls = [part.partition("</details>")[0] for part in page.split("<details>\n")[1:]]
    assert ["<summary><bdi>Called read (files)</bdi>" in calls[0], "```no```" in calls[0]] == [True, True]
    assert "<summary><bdi>The model wants to call read (files)</bdi>" in calls[1]
    assert "<h2><bdi>Called" not in page
    assert page.count("</details>") == 2


def test_a_reply_that_goes_on_after_calls_is_not_named_again(
    store: ConversationStore, database: Database
) -> None:
    chat = store.create().id
    above = store.add_message(chat, None, "user", "What does it say?").id
    for text in ("I look.", "Once more."):
        above = store.add_message(chat, above, "assistant", text).id
        above = store.add_message(chat, above, "tool", "No.", "complete", call=CALL).id
    above = store.add_message(chat, above, "assistant", "It says no.").id
    store.add_message(chat, above, "assistant", "It says no, I repeat.")
    record = read_whole(database, chat)
    named = [(message.text, is_named) for message, is_named in named_path(record) if message.call is None]
    assert named == [
        ("What does it say?", True), ("I look.", True), ("Once more.", False), ("It says no.", False),
        ("It says no, I repeat.", True),
    ]  # fmt: skip
    assert "".join(markdown([record])).count("## Assistant") == 2
    assert "".join(html_page([record])).count("<h2><bdi>Assistant") == 2
    printed = [piece.html for piece in print_pieces(record)]
    assert sum('<p class="who">Assistant' in html for html in printed) == 2
    called = [piece.bar for piece in print_pieces(record) if "path" in piece.html]
    assert called == [True, True]


def test_another_model_that_goes_on_is_named(store: ConversationStore, database: Database) -> None:
    chat = store.create().id
    above = store.add_message(chat, None, "assistant", "I look.").id
    store.finish(above, "I look.", "complete", {"model": "One"})
    above = store.add_message(chat, above, "tool", "No.", "complete", call=CALL).id
    above = store.add_message(chat, above, "assistant", "It says no.").id
    store.finish(above, "It says no.", "complete", {"model": "Two"})
    assert [is_named for _message, is_named in named_path(read_whole(database, chat))] == [True, True, True]


def test_a_reply_of_nothing_but_calls_is_left_out_of_texts(
    store: ConversationStore, database: Database
) -> None:
    chat = store.create().id
    above = store.add_message(chat, None, "user", "What does it say?").id
    above = store.add_message(chat, above, "assistant", "\n").id
    above = store.add_message(chat, above, "tool", "No.", "complete", call=CALL).id
    above = store.add_message(chat, above, "tool", "Yes.", "complete", call=CALL).id
    store.add_message(chat, above, "assistant", "")
    record = read_whole(database, chat)
    assert [message.role for message in shown_path(record)] == ["user", "tool", "tool", "assistant"]
    assert len(json.loads("".join(own_json([record])))[0]["messages"]) == 5


def test_our_own_form_loses_nothing_but_the_wish_to_be_allowed(
    store: ConversationStore, database: Database, tmp_path: Path
) -> None:
    record = read_whole(database, called(store, waiting=True))
    text = "".join(own_json([record]))
    found = [message.get("call") for message in json.loads(text)[0]["messages"]]
    assert found == [None, None, CALL._asdict(), CALL._replace(waiting=True)._asdict()]
    other = open_conversations(tmp_path / "other.sqlite3")
    again = Own().read(json.loads(text)[0], lambda *_: None)
    made = RecordWriter(other).save(again)
    path = ConversationStore(other).path(made.conversation_id)
    assert [message.call for message in path] == [None, None, CALL, CALL]
    assert [message.text for message in path][2] == "It says\n```no```."
    other.close()


def test_a_broken_call_in_a_file_is_none(store: ConversationStore, database: Database) -> None:
    value = json.loads("".join(own_json([read_whole(database, called(store))])))[0]
    for broken in ([], {"name": 3}, {}, "x"):
        value["messages"][2]["call"] = broken
        record = Own().read(value, lambda *_: None)
        assert record.messages[2].call is None
    value["messages"][2]["call"] = {"name": "a", "waiting": True, "server": 4}
    record = Own().read(value, lambda *_: None)
    assert record.messages[2].call == StoredCall("", "a", "")
