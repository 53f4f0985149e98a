"""Authors and casts in the file: old files, recovery, other machines, and SillyTavern chats with several
characters.
"""

from __future__ import annotations

from pathlib import Path

from desktop.store.conversations.bulk_insert import RecordWriter, read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.participants import (
    PLAIN,
    UNNAMED,
    Author,
    Cast,
    Participant,
    portable,
    settled,
)
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import Database
from desktop.store.database.recovery import recover
from desktop.store.transfer.importers.programs.silly_tavern import SillyTavern


def complain(*words: str) -> None:
    raise AssertionError(words)


def test_characters_and_user_of_a_group_chat_have_their_names() -> None:
    lines = [
        {"user_name": "Cy", "character_name": "unused", "create_date": "2024-05-01 @10h 00m 00s"},
        {"name": "Cy", "is_user": True, "mes": "Hello"},
        {"name": "Ada", "is_user": False, "mes": "Hi", "swipes": ["Hi", "Hey"], "swipe_id": 0},
        {"name": "Bob", "is_user": False, "mes": "Bread?"},
        {"name": "Note", "is_user": False, "mes": "Night falls.", "extra": {"type": "narrator"}},
    ]
    record = SillyTavern().read_lines(lines, complain, {})
    assert [message.author for message in record.messages] == ["Cy", "Ada", "Ada", "Bob", ""]
    database = Database(Path(":memory:"))
    number = RecordWriter(database).save(record).conversation_id
    store = ConversationStore(database)
    assert store.get(number).cast == Cast((Participant("Ada"), Participant("Bob")), ("Cy",))
    assert [message.author.name for message in store.path(number)] == ["Cy", "Ada", "Bob", ""]
    alone = SillyTavern().read_lines([{**lines[0], "character_name": "Ada"}, *lines[1:3]], complain, {})
    assert (alone.cast, alone.messages[1].author) == ({}, "Ada")
    database.close()


def test_of_a_crowd_in_a_file_the_first_sixteen_take_part() -> None:
    crowd = [f"Guest {number}" for number in range(40)]
    found = Cast.of({"participants": [{"name": name} for name in crowd[:20]], "own": crowd[20:]})
    assert [each.name for each in found.participants] == crowd[:16]
    assert list(found.own) == crowd[20:36]


def test_authors_and_cast_are_recovered_and_damaged_ones_cost_no_message(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    talk = store.create("Talk").id
    roles = Cast((Participant("Ada", "x"),), ("Cy",), "named", 3, "Cy")
    store.set_cast(talk, roles)
    first = store.add_message(talk, None, "user", "Hello", author=Author("Cy"))
    reply = store.add_message(talk, first.id, "assistant", "Hi", author=Author("Ada", 5))
    assert store.edit_message(reply.id, "Hey").author == reply.author == Author("Ada", 5)
    database.execute(
        "UPDATE messages SET speaker = x'00ff', speaker_persona = 'none' WHERE id = ?", (first.id,)
    )
    database.close()
    fresh = Database(tmp_path / "b.sqlite3")
    assert recover(tmp_path / "a.sqlite3", fresh).messages == 3
    found = ConversationStore(fresh)
    assert found.get(talk).cast == roles
    assert [message.author for message in found.path(talk)] == [UNNAMED, Author("Ada", 5)]
    fresh.close()


def test_a_cast_moves_to_another_machine_with_its_personas() -> None:
    here, there = Database(Path(":memory:")), Database(Path(":memory:"))
    gone, bea = (
        PersonaStore(here).save(Persona(0, name, "🦊", f"You are {name}.", "Creative"))
        for name in ("Gone", "Bea")
    )
    PersonaStore(here).delete(gone.id)
    PersonaStore(there).save(Persona(0, "Somebody before"))
    roles = Cast(
        (Participant("Ada", "x"), Participant("Bea", "", bea.id), Participant("Gone", "", gone.id)),
        ("Cy",),
        "hand",
        2,
        "Cy",
    )
    moved = settled(there, portable(here, roles))
    assert moved.participants[0] == Participant("Ada", "x")
    assert moved.participants[2] == Participant("Gone")
    persona = PersonaStore(there).get(moved.participants[1].persona)
    assert (persona.name, persona.system_prompt, persona.preset) == ("Bea", "You are Bea.", "Creative")
    assert portable(here, PLAIN) == {}
    assert settled(
        there, {"participants": [3, {"name": 4}, {"name": "Ok", "persona": {"name": " "}}]}
    ) == Cast((Participant("Ok"),))
    twice = {"participants": [{"name": "Ok"}, {"name": "OK"}, {"name": ""}], "own": ["ok", "Cy", "", "Cy"]}
    assert Cast.of(twice) == Cast((Participant("Ok"),), ("Cy",))
    number = ConversationStore(here).create("Talk").id
    ConversationStore(here).set_cast(number, roles)
    assert read_whole(here, number).cast["own"] == ("Cy",)
    here.close()
    there.close()
