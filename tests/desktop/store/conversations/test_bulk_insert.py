"""Importing a conversation again: new messages are added in place, changed texts are taken, and what was
written here stays; times and titles.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from desktop.store.conversations.bulk_insert import (
    OWN,
    RecordWriter,
    chain_key,
    conversation_ids,
    discard_unfinished,
    read_whole,
)
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.database.database import Database
from desktop.store.database.errors import StoreError
from desktop.store.transfer.records import ConversationRecord, Imported, MessageRecord


def m(key: str, parent: str | None, role: str = "user", **more: Any) -> MessageRecord:
    return MessageRecord(key, parent, role, more.pop("text", key), **more)


def record(*messages: MessageRecord, **more: Any) -> ConversationRecord:
    return ConversationRecord(**({"source": "s", "key": "k", "title": "T"} | more), messages=messages)


def save(database: Database, *messages: MessageRecord, **more: Any) -> Imported:
    return RecordWriter(database).save(record(*messages, **more))


def keys(database: Database, number: int) -> list[tuple[str, str | None, str | None]]:
    return [(each.key, each.parent, each.shown_child) for each in read_whole(database, number).messages]


A, B = m("a", None, created_at=10.0, shown_child="b"), m("b", "a", "assistant", created_at=11.0)


def test_what_is_new_is_added_and_shown(database: Database) -> None:
    first = save(database, A, B, shown_root="a", updated_at=50.0)
    assert (first.outcome, first.messages, first.title, first.source) == ("new", 2, "T", "s")
    again = save(database, A, B, shown_root="a", updated_at=70.0)
    assert again == Imported(first.conversation_id, "T", "s", "known", 0)
    assert read_whole(database, first.conversation_id).updated_at == 50.0  # nothing new: as it was
    longer = (
        dataclasses.replace(A, shown_child="c"),
        B,
        m("c", "a", "assistant", created_at=12.0, shown_child="d"),
        m("d", "c"),
    )
    more = save(
        database, *longer, m("e", None, shown_child=None), shown_root="e", updated_at=60.0, title="Other"
    )
    assert more == Imported(first.conversation_id, "T", "s", "extended", 3)
    found = read_whole(database, first.conversation_id)
    assert keys(database, first.conversation_id) == [
        ("a", None, "c"), ("b", "a", None), ("c", "a", "d"), ("d", "c", None), ("e", None, None),
    ]  # fmt: skip
    assert (found.shown_root, found.updated_at, found.title) == ("e", 60.0, "T")
    save(database, *longer, m("f", None), shown_root="a", updated_at=5.0)
    # an old file does not make it older
    assert read_whole(database, first.conversation_id).updated_at == 60.0
    # only what is new is brought to the front
    assert read_whole(database, first.conversation_id).shown_root == "e"
    assert conversation_ids(database) == (first.conversation_id,)


def test_what_the_reader_chose_stays_shown(database: Database, store: ConversationStore) -> None:
    number = save(database, A, B, m("c", "a", "assistant", created_at=12.0), shown_root="a").conversation_id
    shown = store.path(number)[1]
    other = next(key for key in store.variants(shown.id) if key != shown.id)
    store.show_variant(other)
    longer = (dataclasses.replace(A, shown_child="b"), B, m("c", "a", "assistant"), m("x", "c"))
    assert save(database, *longer, shown_root="a").outcome == "extended"
    assert store.path(number)[1].id == other


def test_a_conversation_in_the_trash_stays_there(database: Database, store: ConversationStore) -> None:
    number = save(database, A).conversation_id
    store.delete(number)
    assert save(database, A, B) == Imported(number, "T", "s", "deleted", 0)
    assert save(database, A, B, deleted=True).outcome == "extended"  # a file that also has it in the trash
    other = save(database, A, key="k2", deleted=True, deleted_at=5.0)
    assert (other.outcome, read_whole(database, other.conversation_id).deleted_at) == ("new", 5.0)
    assert read_whole(database, other.conversation_id).deleted


def test_source_and_key_identify_a_conversation(database: Database) -> None:
    numbers = [save(database, A, source=source, key=key).conversation_id for source in "st" for key in "kl"]
    assert len(set(numbers)) == 4
    assert save(database, A, source="t", key="l") == Imported(numbers[3], "T", "t", "known", 0)


def test_a_conversation_created_here_is_found_by_its_key(
    database: Database, store: ConversationStore
) -> None:
    number = store.create("Mine").id
    store.add_message(number, None, "user", "Hi")
    whole = read_whole(database, number)
    assert whole.source == OWN
    assert RecordWriter(database).save(whole).outcome == "known"
    assert RecordWriter(database).save(dataclasses.replace(whole, key="other")).outcome == "new"
    assert (
        RecordWriter(database)
        .save(dataclasses.replace(whole, created_at=(whole.created_at or 0) + 1))
        .outcome
        == "new"
    )


def test_a_message_with_an_unknown_parent_goes_to_the_top(database: Database) -> None:
    assert keys(database, save(database, m("x", "nowhere")).conversation_id) == [("x", None, None)]


@pytest.mark.parametrize(
    ("messages", "created", "times"),
    [
        # as what it answers
        ((A, m("x", "a"), m("y", "x", created_at=20.0), m("z", "y")), 5.0, [10.0, 10.0, 20.0, 20.0]),
        ((m("x", None), B), 5.0, [5.0, 11.0]),
        ((m("x", None), m("y", None, created_at=8.0), m("z", None, created_at=3.0)), None, [3.0, 8.0, 3.0]),
    ],
)
def test_missing_times(
    database: Database, messages: tuple[MessageRecord, ...], created: float | None, times: list[float]
) -> None:
    found = read_whole(database, save(database, *messages, created_at=created).conversation_id)
    assert [message.created_at for message in found.messages] == times
    assert found.created_at == (created if created is not None else min(times))
    latest = max(message.created_at for message in messages if message.created_at is not None)
    assert found.updated_at == latest


def test_times_of_a_file_without_any(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desktop.store.conversations.bulk_insert.time.time", lambda: 77.0)
    plain = read_whole(database, save(database, m("x", None)).conversation_id)
    assert (plain.created_at, plain.updated_at, plain.messages[0].created_at) == (77.0, 77.0, 77.0)
    dated = read_whole(database, save(database, m("x", None), key="l", created_at=5.0).conversation_id)
    assert (dated.created_at, dated.updated_at) == (5.0, 5.0)
    thrown = read_whole(database, save(database, m("x", None), key="m", deleted=True).conversation_id)
    assert thrown.deleted_at == 77.0


def test_titles(database: Database, store: ConversationStore) -> None:
    asked = (m("s", None, "system", text="Not this"), m("u", "s", text="What is it?"))
    cases: list[tuple[dict[str, Any], tuple[str, bool]]] = [
        ({"title": "  Two \n words "}, ("Two words", False)),
        ({"title": " "}, ("What is it?", True)),
        ({"title": "**Peas** in `C#`", "source": "ollama"}, ("Peas in C#", False)),
        ({"title": "**Peas** of my own", "source": OWN}, ("**Peas** of my own", False)),
        ({"title": " own  one ", "auto_title": True}, (" own  one ", True)),
    ]
    for number, (given, expected) in enumerate(cases):
        found = read_whole(database, save(database, *asked, key=str(number), **given).conversation_id)
        assert (found.title, found.auto_title) == expected


def test_states_and_authors(database: Database, store: ConversationStore) -> None:
    who = PersonaStore(database).save(Persona(0, "Bo")).id
    given = [
        m("a", None, "assistant", state="running", author="Bo"),
        m("b", "a", "assistant", state="failed", author="Nobody"),
        m("c", "b", "user", state="strange", author="Bo"),
        m("d", "c", "assistant", state="complete", tokens=b"\1", raw={"x": 1}),
    ]  # fmt: skip
    number = save(database, *given).conversation_id
    path = store.path(number)
    assert [message.state for message in path] == ["stopped", "failed", "stopped", "complete"]
    assert [tuple(message.author) for message in path] == [("Bo", who), ("Nobody", 0), ("Bo", 0), ("", 0)]
    last = read_whole(database, number).messages[-1]
    assert (last.tokens, last.raw) == (b"\1", {"x": 1})


def texts(database: Database, number: int) -> list[str]:
    return [message.text for message in read_whole(database, number).messages]


def test_texts_that_have_changed_in_the_file_are_taken(database: Database, store: ConversationStore) -> None:
    number = save(database, A, B, m("c", "b", text="As it was")).conversation_id
    edited = (A, dataclasses.replace(B, text="b, and more", state="complete"), m("c", "b", text="Edited"))
    assert save(database, *edited, updated_at=90.0) == Imported(number, "T", "s", "extended", 2)
    assert texts(database, number) == ["a", "b, and more", "Edited"]
    assert read_whole(database, number).updated_at == 90.0
    assert [hit.message_id for hit in store.search("edited")] == [store.path(number)[2].id]
    assert save(database, *edited).outcome == "known"
    longer = (*edited[:2], m("c", "b", text="Edited again"), m("d", "c"))
    assert save(database, *longer).messages == 2
    assert texts(database, number) == ["a", "b, and more", "Edited again", "d"]


def test_what_was_written_here_is_kept(database: Database, store: ConversationStore) -> None:
    number = save(database, A, B).conversation_id
    reply = store.path(number)[1].id
    store.finish(reply, "b, continued here", "complete", {"stats": {"new_tokens": 2}}, b"tokens")
    for text in ("b", "Edited"):
        assert save(database, A, dataclasses.replace(B, text=text)).outcome == "known"
        assert texts(database, number) == ["a", "b, continued here"]
    whole = dataclasses.replace(B, text="b, continued here and there", tokens=b"others")
    assert save(database, A, whole).outcome == "extended"
    assert (store.message(reply).text, store.tokens(reply)) == (whole.text, b"others")
    document = save(database, A, key="n", kind=NOTEBOOK).conversation_id
    assert save(database, m("a", None, text="Edited"), key="n", kind=NOTEBOOK).outcome == "known"
    assert texts(database, document) == ["a"]


def test_a_longer_version_of_a_reply_is_added_beside_it(database: Database, store: ConversationStore) -> None:
    """A run of a thought and a tool call has the key of its last part: with another one it is another
    message.
    """
    number = save(database, A, m("call", "a", "assistant", text="call"), shown_root="a").conversation_id
    grown = dataclasses.replace(A, shown_child="answer")
    assert (
        save(database, grown, m("answer", "a", "assistant", text="call\n\nanswer"), shown_root="a").outcome
        == "extended"
    )
    assert [message.text for message in store.path(number)] == ["a", "call\n\nanswer"]
    assert [store.message(key).text for key in store.variants(store.path(number)[1].id)] == [
        "call",
        "call\n\nanswer",
    ]


def test_everything_in_a_record_comes_back(database: Database, store: ConversationStore) -> None:
    given = ConversationRecord(
        "s", "k", "Title", 5.0, 6.0,
        (
            MessageRecord("a", None, "user", "Hi", 7.0, shown_child="b"),
            MessageRecord("b", "a", "assistant", "Yo", 8.0, "stopped", {"model": "m"}, None, True, b"\1\2",
            {"r": [1]}, author="Bo"),
        ),
        "a", "Be.", {"SamplerSettings": {"temperature": 0.5}}, "/m", False, True, ("Outer", "Inner"), True,
        Persona(0, "Who", "W", "prompt", "preset", "/p"), False, 9.0,
        {"participants": [{"name": "Bo"}], "own": ["Me"]}, NOTEBOOK,
    )  # fmt: skip
    number = RecordWriter(database).save(given).conversation_id
    found = read_whole(database, number)
    roles = found.cast
    assert dataclasses.replace(found, persona=None, cast=given.cast) == dataclasses.replace(
        given, persona=None
    )
    assert found.persona is not None
    assert (found.persona.name, found.persona.preset) == ("Who", "preset")
    assert ([entry["name"] for entry in roles["participants"]], list(roles["own"])) == (["Bo"], ["Me"])
    plain = read_whole(database, save(database, A, key="plain").conversation_id)
    assert (plain.folder, plain.pinned, plain.persona, plain.inherits_prompt, plain.deleted_at) == (
        (),
        False,
        None,
        True,
        None,
    )
    assert (plain.messages[0].raw, plain.messages[0].tokens, plain.messages[0].deleted) == (None, b"", False)
    assert database.execute("SELECT count(*) FROM imported_messages WHERE raw IS NOT NULL").fetchone()[0] == 1
    with pytest.raises(StoreError, match=r"There is no chat number 99\. It may have been deleted"):
        read_whole(database, 99)
    assert conversation_ids(database) == (number + 1,)
    assert conversation_ids(database, deleted=True) == (number, number + 1)


def test_a_running_reply_is_read_as_a_stopped_one(database: Database, store: ConversationStore) -> None:
    number = store.create("T").id
    store.add_message(
        number, store.add_message(number, None, "user", "Hi").id, "assistant", "so far", "running"
    )
    assert [message.state for message in read_whole(database, number).messages] == ["complete", "stopped"]


def test_keys_never_change() -> None:
    """They are in the files and stores of users: with another key a conversation would be imported twice."""
    assert chain_key(None, "user", "Hi \ud800") == "403dfb61859a70ec3bf6b791beda63f4"
    assert chain_key("a", "b", 1, 2.5) == "a575f326fdc2212a0921fddca08fab9f"


def test_the_key_of_a_message_created_here_is_made_of_its_id_and_time(
    database: Database, store: ConversationStore
) -> None:
    number = store.create("T").id
    message = store.add_message(number, None, "user", "Hi")
    whole = read_whole(database, number)
    assert whole.key == chain_key(None, OWN, number, repr(float(whole.created_at or 0)))
    assert whole.messages[0].key == chain_key(None, OWN, message.id, repr(float(message.created_at)))


def test_the_remains_of_a_killed_import_are_removed(database: Database, store: ConversationStore) -> None:
    kept, left = save(database, A, key="k").conversation_id, save(database, A, B, key="l").conversation_id
    database.execute("UPDATE conversations SET deleted = 3 WHERE id = ?", (left,))
    assert save(database, A, key="l").outcome == "new"  # nothing finds it
    list(discard_unfinished(database))
    assert [row[0] for row in database.execute("SELECT id FROM conversations ORDER BY id")] == [
        kept,
        left + 1,
    ]
    assert (
        database.execute("SELECT count(*) FROM messages WHERE conversation_id = ?", (left,)).fetchone()[0]
        == 0
    )
