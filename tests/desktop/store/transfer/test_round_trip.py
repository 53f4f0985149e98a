"""What a chat is besides its messages travels with it from one machine to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import Database
from desktop.store.transfer.exporters.own import own_json
from tests.desktop.store.transfer.importers.files import imported, run


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    """The databases of two machines."""
    found = Database(tmp_path / "one"), Database(tmp_path / "two")
    yield found
    for database in found:
        database.close()


def moved(one: Database, number: int, two: Database, path: Path) -> int:
    """The chat on the other machine."""
    path.write_text("".join(own_json([read_whole(one, number)])), encoding="utf-8")
    return imported(run(two, path))[0].conversation_id


def test_roles_and_what_must_stay_on_the_machine(machines: tuple[Database, Database], tmp_path: Path) -> None:
    one, two = machines
    here, there = ConversationStore(one), ConversationStore(two)
    PersonaStore(two).save(Persona(0, "Cleo"))  # so that ids differ
    ada = PersonaStore(one).save(Persona(0, "Ada", system_prompt="You bake."))
    number = here.create("Bread").id
    here.add_message(number, None, "user", "Hi")
    cast = Cast(
        (Participant("Ada", "", ada.id), Participant("Bea", "A baker.")), ("Cy", "Di"), "hand", 2, "Di"
    )
    here.set_cast(number, cast)
    here.set_local_only(number, True)
    found = there.get(moved(one, number, two, tmp_path / "a.json"))
    assert found.local_only
    first, second = found.cast.participants
    assert (first.name, second) == ("Ada", cast.participants[1])
    assert (found.cast.own, found.cast.turn, found.cast.automatic, found.cast.user) == (
        ("Cy", "Di"), "hand", 2, "Di",
    )  # fmt: skip
    (persona,) = (each for each in PersonaStore(two).list() if each.name == "Ada")
    assert (first.persona, persona.system_prompt) == (persona.id, "You bake.")


def test_a_plain_chat_stays_one(machines: tuple[Database, Database], tmp_path: Path) -> None:
    one, two = machines
    number = ConversationStore(one).create("Bread").id
    ConversationStore(one).add_message(number, None, "user", "Hi")
    found = ConversationStore(two).get(moved(one, number, two, tmp_path / "a.json"))
    assert (found.local_only, found.cast) == (False, Cast())


def test_what_folders_give_travels_to_folders_that_are_new(
    machines: tuple[Database, Database], tmp_path: Path
) -> None:
    one, two = machines
    here, there = FolderStore(one), FolderStore(two)
    work, mine = here.create("Work"), there.create("Work")
    inner = here.create("Letters", work.id)
    there.set_system_prompt(mine.id, "Be brief.")
    here.set_system_prompt(work.id, "Be formal.")
    here.set_system_prompt(inner.id, "Write letters.")
    here.set_settings(inner.id, {"SamplerSettings": {"temperature": 0.5}})
    number = ConversationStore(one).create("Bread").id
    ConversationStore(one).move([number], inner.id)
    moved(one, number, two, tmp_path / "a.json")
    found = {folder.name: folder for folder in there.all()}
    assert found["Work"].system_prompt == "Be brief."
    assert (found["Letters"].system_prompt, found["Letters"].parent_id) == ("Write letters.", mine.id)
    assert found["Letters"].settings == {"SamplerSettings": {"temperature": 0.5}}
