"""Folders: order, moves, removal and undo; what conversations inherit from them and from personas."""

from __future__ import annotations

import random

import pytest

from desktop.store.attachments.message_format import Attachment
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.drafts import MOST_FILES, DraftStore
from desktop.store.conversations.folders import DEEPEST, FolderStore
from desktop.store.conversations.inheritance import layers_of, system_prompt_of
from desktop.store.conversations.personas import LARGEST_IMAGE, Persona, PersonaStore
from desktop.store.database.database import Database, StoreError


@pytest.fixture
def folders(database: Database) -> FolderStore:
    return FolderStore(database)


def shape(folders: FolderStore) -> list[str]:
    return ["/".join(folder.name for folder in folders.above(found.id)) for found in folders.all()]


def everything(folders: FolderStore, store: ConversationStore) -> tuple[object, ...]:
    return (
        [
            (folder.id, folder.parent_id, folder.name, folder.position, folder.system_prompt)
            for folder in folders.all()
        ],
        sorted((row.id, row.folder_id) for row in store.list()),
        sorted((row.id, row.folder_id) for row in store.list(deleted=True)),
    )


def test_nested_and_in_order(folders: FolderStore) -> None:
    work = folders.create(" Work \n stuff ")
    home = folders.create("Home")
    first, second = folders.create("A", work.id), folders.create("B", work.id)
    assert shape(folders) == ["Work stuff", "Work stuff/A", "Work stuff/B", "Home"]
    folders.move(second.id, work.id, 0)
    assert shape(folders) == ["Work stuff", "Work stuff/B", "Work stuff/A", "Home"]
    folders.move(home.id, None, 0)
    folders.move(first.id, home.id)
    assert shape(folders) == ["Home", "Home/A", "Work stuff", "Work stuff/B"]
    assert [folder.position for folder in folders.all()] == [0, 0, 1, 0]
    folders.rename(home.id, "")
    assert folders.get(home.id).name == "Folder"


def test_a_folder_that_was_deleted_elsewhere_is_not_changed_in_silence(folders: FolderStore) -> None:
    gone = folders.create("Gone").id
    folders.remove(gone)
    for change in (
        lambda: folders.rename(gone, "X"),
        lambda: folders.set_settings(gone, {}),
        lambda: folders.set_system_prompt(gone, "X"),
    ):
        with pytest.raises(StoreError, match=f"no folder number {gone}"):
            change()


def test_a_folder_cannot_be_moved_into_itself(folders: FolderStore) -> None:
    outer = folders.create("Outer")
    inner = folders.create("Inner", folders.create("Middle", outer.id).id)
    before = shape(folders)
    for place in (outer.id, inner.id):
        with pytest.raises(StoreError, match="Outer cannot be moved into itself"):
            folders.move(outer.id, place)
    with pytest.raises(StoreError, match="no folder number 99"):
        folders.move(outer.id, 99)
    with pytest.raises(StoreError, match="no folder number 99"):
        folders.create("X", 99)
    assert shape(folders) == before


def test_depth_is_bounded(folders: FolderStore) -> None:
    number = None
    for _ in range(DEEPEST):
        number = folders.create("F", number).id
    with pytest.raises(StoreError, match="at most 32 levels deep"):
        folders.create("too deep", number)
    pair = folders.create("pair")
    folders.create("in it", pair.id)
    above = folders.all()[DEEPEST - 2].id
    with pytest.raises(StoreError, match="at most 32 levels deep"):
        folders.move(pair.id, above)
    folders.move(pair.id, folders.all()[DEEPEST - 3].id)


@pytest.mark.parametrize("throw_away", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_removing_a_folder_and_undoing_it(
    store: ConversationStore, folders: FolderStore, throw_away: bool, seed: int
) -> None:
    draw = random.Random(seed)
    numbers: list[int] = []
    for place in range(8):
        numbers.append(folders.create(f"F{place}", draw.choice([None, *numbers])).id)
        folders.move(numbers[-1], folders.get(numbers[-1]).parent_id, draw.randint(0, 3))
        folders.set_system_prompt(numbers[-1], f"prompt {place}")
    for _ in range(20):
        made = store.create("talk").id
        store.move([made], draw.choice([None, *numbers]))
        if draw.random() < 0.2:
            store.delete(made)
    before = everything(folders, store)
    doomed = draw.choice(numbers)
    inside = {
        folder.id for folder in folders.all() if doomed in [above.id for above in folders.above(folder.id)]
    }
    held = {row.id for row in store.list() if row.folder_id in inside}
    removal = folders.remove(doomed, throw_away)
    present = {row.id for row in store.list()}
    assert held.isdisjoint(present) if throw_away else held <= present
    assert {folder.id for folder in folders.all()} == set(numbers) - (inside if throw_away else {doomed})
    assert all(
        row.folder_id in {None, *(folder.id for folder in folders.all())}
        for row in (*store.list(), *store.list(deleted=True))
    )
    folders.put_back(removal)
    assert everything(folders, store) == before


def test_conversations_move_together_or_not_at_all(store: ConversationStore, folders: FolderStore) -> None:
    work = folders.create("Work")
    talks = [store.create(str(number)).id for number in range(3)]
    store.move(talks[:2], work.id)
    store.pin(talks[0])
    assert [(row.folder_id, bool(row.pinned)) for row in reversed(store.list())] == [
        (work.id, True),
        (work.id, False),
        (None, False),
    ]
    assert store.summary(talks[0]) == next(row for row in store.list() if row.id == talks[0])
    with pytest.raises(StoreError, match="no chat number 99"):
        store.move([talks[0], 99], None)
    with pytest.raises(StoreError, match="no folder number 99"):
        store.move(talks, 99)
    assert store.get(talks[0]).folder_id == work.id
    store.pin(talks[0], False)
    assert not store.get(talks[0]).pinned


def test_what_a_conversation_inherits(
    database: Database, store: ConversationStore, folders: FolderStore
) -> None:
    personas = PersonaStore(database)
    outer = folders.create("Outer")
    inner = folders.create("Inner", outer.id)
    talk = store.create("Talk").id
    store.move([talk], inner.id)
    folders.set_system_prompt(outer.id, "outer")
    folders.set_settings(outer.id, {"SamplerSettings": {"temperature": 0.1, "top_k": 5}})
    folders.set_settings(inner.id, {"SamplerSettings": {"temperature": 0.2}})
    store.set_settings(talk, {"SamplerSettings": {"top_p": 0.5}})

    def prompt() -> tuple[str, str]:
        text, layer = system_prompt_of(layers_of(database, store.get(talk)))
        return text, layer.source if layer else ""

    assert prompt() == ("outer", "folder")
    layers = layers_of(database, store.get(talk))
    assert [(layer.name, layer.settings.get("SamplerSettings")) for layer in layers] == [
        ("Outer", {"temperature": 0.1, "top_k": 5}),
        ("Inner", {"temperature": 0.2}),
        ("Talk", {"top_p": 0.5}),
    ]
    pirate = personas.save(Persona(0, "Pirate", "🏴", "Arr", "creative", "/models/sea.gguf"))
    store.set_persona(talk, pirate.id)
    assert prompt() == ("Arr", "persona")
    layers = layers_of(database, store.get(talk))
    assert [layer.source for layer in layers] == ["folder", "folder", "persona", "conversation"]
    assert layers[2].preset == "creative"
    assert [layer.model_path for layer in layers] == ["", "", "/models/sea.gguf", ""]
    store.set_model_path(talk, "/models/own.gguf")
    assert layers_of(database, store.get(talk))[-1].model_path == "/models/own.gguf"
    store.set_system_prompt(talk, "", inherit=False)
    assert prompt() == ("", "conversation")
    store.set_system_prompt(talk, "own")
    assert prompt() == ("own", "conversation")
    store.set_system_prompt(talk, "")
    personas.delete(pirate.id)
    assert prompt() == ("outer", "folder")
    personas.restore(pirate.id)
    assert prompt() == ("Arr", "persona")


def test_personas(database: Database) -> None:
    personas = PersonaStore(database)
    zoe = personas.save(Persona(0, "  zoe \n x", "Z" * 99))
    adam = personas.save(Persona(0, "Adam", system_prompt="first"))
    assert [persona.name for persona in personas.list()] == ["Adam", "zoe x"]
    assert len(zoe.avatar) == 16
    changed = personas.save(Persona(adam.id, "Adam", system_prompt="second"))
    assert changed == personas.get(adam.id)
    assert changed.system_prompt == "second"
    personas.set_image(adam.id, b"\x89PNG")
    assert (personas.image(adam.id), personas.image(zoe.id)) == (b"\x89PNG", b"")
    with pytest.raises(StoreError, match="Choose a smaller one"):
        personas.set_image(adam.id, bytes(LARGEST_IMAGE + 1))
    personas.delete(zoe.id)
    assert [persona.name for persona in personas.list()] == ["Adam"]
    for call in (lambda: personas.get(9), lambda: personas.delete(9), lambda: personas.image(9)):
        with pytest.raises(StoreError, match="no persona number 9"):
            call()


def test_drafts_survive(database: Database, store: ConversationStore) -> None:
    drafts = DraftStore(database)
    talk, other = store.create("Talk").id, store.create("Other").id
    before = store.list()
    drafts.put(talk, "not yet ")
    drafts.put(talk, "not yet sent")
    drafts.put(other, "x")
    again = Database(database.path)
    assert DraftStore(again).get(talk) == "not yet sent"
    again.close()
    assert drafts.conversations() == {talk, other}
    assert store.list() == before
    drafts.put(other, " \n")
    database.execute("DELETE FROM conversations WHERE id = ?", (talk,))
    assert drafts.conversations() == frozenset()
    assert drafts.get(talk) == ""
    files = (
        Attachment("a.txt", "one", "first 1 of 2 lines"),
        Attachment("b.txt", "x" * (MOST_FILES - 2)),
        Attachment("c.txt", "yes"),
    )
    assert drafts.put_files(other, files) == ("b.txt",)
    assert drafts.files(other) == (files[0], files[2])
    assert drafts.conversations_with_files() == {other}
    drafts.put(other, "", "Sure, ")
    assert (drafts.get(other), drafts.opening(other), drafts.conversations()) == ("", "Sure, ", {other})
    drafts.put(other, "", "")
    assert (drafts.put_files(other, ()), drafts.conversations(), drafts.conversations_with_files()) == (
        (),
        frozenset(),
        frozenset(),
    )
    drafts.put(99, "for a chat that is gone")
    drafts.put_files(99, files[:1])
    assert (drafts.conversations(), drafts.conversations_with_files()) == (frozenset(), frozenset())
