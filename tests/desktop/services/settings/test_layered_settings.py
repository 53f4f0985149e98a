"""One chain of settings, for chats and folders: its order, what a reset gives, where values come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from desktop.services.settings.folder_settings import FolderSettings
from desktop.services.settings.layered_settings import LayeredSettings, ModelLayer, SourceLayer, persona_layer
from desktop.store.conversations.folders import FolderStore
from desktop.store.database.database import Database, StoreError
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import built_in_presets
from engine.settings import SamplerSettings

MODEL = "/models/one.gguf"


@pytest.fixture
def preferences(tmp_path: Path) -> Preferences:
    made = Preferences(tmp_path / "preferences.json")
    made.write_soon = lambda: None
    return made


def folder(name: str, **values: object) -> SourceLayer:
    return SourceLayer(f"folder {name}", {"SamplerSettings": values})


def test_every_layer_overrides_those_below(preferences: Preferences) -> None:
    preferences.save_settings(SamplerSettings(temperature=0.1))
    preferences.keep(MODEL, SamplerSettings, {"temperature": 0.3})
    preferences.save_preset("Warm", {"temperature": 0.6})
    model = ModelLayer(preferences)
    model.enter(MODEL, {"temperature": 0.2})
    inherited = (
        folder("Work", temperature=0.4),
        folder("Law", temperature=0.5),
        persona_layer(preferences, "Ada", "Warm"),
    )
    layers = LayeredSettings(preferences, model, inherited)
    layers.read_own({"SamplerSettings": {"temperature": 0.8}})
    sources = (
        ("default", 0.7), ("saved default", 0.1), ("makers", 0.2), ("model", 0.3), ("folder Work", 0.4),
        ("folder Law", 0.5), ("persona Ada", 0.6), ("conversation", 0.8),
    )  # fmt: skip
    assert layers.source_layers(SamplerSettings)["temperature"] == sources
    assert layers.source_of(SamplerSettings, "temperature") == "conversation"
    layers.reset(SamplerSettings, "temperature")
    for source, value in (("persona Ada", 0.6), ("folder Law", 0.5), ("folder Work", 0.4), ("model", 0.3)):
        assert layers.source_of(SamplerSettings, "temperature") == source
        assert layers.settings(SamplerSettings).temperature == value
        layers = layers.with_inherited(layers.inherited[:-1])
    layers.reset(SamplerSettings, "temperature")
    assert layers.source_of(SamplerSettings, "temperature") == "makers"


def test_another_place_leaves_the_chats_own_values(preferences: Preferences) -> None:
    layers = LayeredSettings(preferences, inherited=[folder("Work", top_k=7, top_p=0.5)])
    layers.put(SamplerSettings(top_k=9, top_p=0.5))
    moved = layers.with_inherited([folder("Work", top_k=3)])
    assert moved.source_layers(SamplerSettings)["top_k"][1:] == (("folder Work", 3), ("conversation", 9))
    assert moved.settings(SamplerSettings).top_p == SamplerSettings().top_p
    assert moved.inherits_differently(layers) == (SamplerSettings,)
    assert moved.inherits_differently(moved) == ()


def test_a_seed_that_no_preset_names_is_the_chats_own(preferences: Preferences) -> None:
    layers = LayeredSettings(preferences, inherited=[folder("Work", seed=5)])
    layers.put(SamplerSettings(seed=None))
    (creative,) = [preset for preset in built_in_presets() if preset.name == "Creative"]
    layers.choose_preset(creative)
    assert layers.settings(SamplerSettings).seed is None
    assert layers.source_of(SamplerSettings, "seed") == "conversation"
    assert layers.source_of(SamplerSettings, "temperature") == "preset Creative"


def test_a_folder_is_looked_up_in_the_same_chain(preferences: Preferences, tmp_path: Path) -> None:
    database = Database(tmp_path / "chats.sqlite3")
    folders = FolderStore(database)
    work = folders.create("Work").id
    law = folders.create("Law", work).id
    folders.set_settings(work, {"SamplerSettings": {"temperature": 0.3}})
    edited = FolderSettings(database, preferences, law)
    edited.set(SamplerSettings, "temperature", 0.5)
    assert edited.layers.source_layers(SamplerSettings)["temperature"] == (
        ("default", 0.7), ("folder Work", 0.3), ("folder", 0.5),
    )  # fmt: skip
    assert edited.layers.after_reset(SamplerSettings).temperature == 0.3
    assert folders.get(law).settings == {"SamplerSettings": {"temperature": 0.5}}
    for _ in range(2):  # a second reset changes nothing: the outer folder is not this one's to change
        edited.reset(SamplerSettings, "temperature")
        assert edited.layers.source_of(SamplerSettings, "temperature") == "folder Work"
    assert folders.get(law).settings == {}
    database.close()


def test_changes_of_a_folder_stay_until_they_are_saved(
    preferences: Preferences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / "chats.sqlite3")
    folders = FolderStore(database)
    work = folders.create("Work").id
    folders.set_system_prompt(work, "Be brief.")
    law = folders.create("Law", work).id
    edited = FolderSettings(database, preferences, law)
    assert (edited.inherited_prompt, edited.save()) == (("Be brief.", "folder Work"), True)
    saved: list[str] = []
    failed: list[str] = []
    edited.saved.connect(lambda folder: saved.append(folder.name))
    edited.failed.connect(failed.append)
    with monkeypatch.context() as broken:
        broken.setattr(FolderStore, "set_settings", full)
        edited.rename(" New \n law ")
        edited.rename(" ")
        assert (edited.save(), edited.unsaved) == (False, True)
    assert (folders.get(law).name, saved, failed) == ("Law", [], ["The disk is full."] * 2)
    assert (edited.save(), edited.unsaved, saved) == (True, False, ["New law"])
    assert folders.get(law).name == "New law"
    edited.set_system_prompt("Be just.")
    assert folders.get(law).system_prompt == "Be just."
    assert FolderSettings(database, preferences, work).inherited_prompt == ("", "")
    database.close()


def full(*_: object) -> None:
    raise StoreError("The disk is full.")
