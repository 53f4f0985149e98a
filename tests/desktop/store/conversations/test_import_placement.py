"""Where imported chats go: folders and personas by their names, made only if they are missing."""

from __future__ import annotations

from desktop.store.conversations.folders import DEEPEST, FolderStore
from desktop.store.conversations.import_placement import folder_of, folder_path, persona_id, persona_of
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import Database


def test_the_folders_of_a_path_are_made_once(database: Database) -> None:
    folders = FolderStore(database)
    work = folders.create("Work").id
    assert folder_of(database, ()) is None
    assert folder_of(database, ("Work",)) == work
    inner = folder_of(database, ("Work", "Work", "Plans"))
    assert folder_of(database, ("Work", "Work", "Plans")) == inner
    other = folder_of(database, ("Plans",))
    assert folder_path(database, inner) == ("Work", "Work", "Plans")
    assert [(folder.name, folder.parent_id, folder.position) for folder in folders.all()] == [
        ("Work", None, 0), ("Work", work, 0), ("Plans", folders.all()[1].id, 0), ("Plans", None, 1),
    ]  # fmt: skip
    assert folder_path(database, other) == ("Plans",)
    assert folder_path(database, None) == folder_path(database, 99) == ()


def test_a_path_that_is_too_deep_ends_at_the_deepest_folder(database: Database) -> None:
    names = tuple(f"F{number}" for number in range(DEEPEST + 3))
    assert folder_path(database, folder_of(database, names)) == names[:DEEPEST]
    assert len(FolderStore(database).all()) == DEEPEST


def test_personas_are_found_by_their_names(database: Database) -> None:
    personas = PersonaStore(database)
    ada = Persona(0, "Ada", "A", "You are Ada.", "Precise", "/models/a.gguf")
    number = persona_id(database, ada)
    assert persona_of(database, number) == ada
    assert persona_id(database, Persona(0, "Ada", "", "Another prompt.")) == number
    assert persona_id(database, None) is persona_of(database, None) is None
    assert number is not None
    personas.delete(number)
    assert persona_of(database, number) is None
    assert persona_id(database, ada) not in (None, number)
