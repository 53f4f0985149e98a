"""Presets: where values come from, which of them stay, and the notice of each action."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from desktop.services.settings.presets import PresetService
from desktop.store.database.database import StoreError
from desktop.store.settings.presets import built_in_presets
from engine.settings import SamplerSettings


@pytest.fixture
def service(harness):
    made = PresetService(harness.session)
    made.said = []
    made.notice.connect(lambda sentence, level, undoable: made.said.append((sentence, level, undoable)))
    return made


def put(harness, **values) -> None:
    harness.session.set_settings(dataclasses.replace(harness.session.settings(SamplerSettings), **values))


def sources(harness) -> dict[str, str]:
    return {name: harness.session.source_of(SamplerSettings, name) for name in SamplerSettings().to_json()}


def own(service) -> list[str]:
    return [preset.name for preset in service.presets() if not preset.built_in]


CREATIVE = next(preset for preset in built_in_presets() if preset.name == "Creative")


def test_a_chosen_preset_is_the_source_of_its_values_until_they_change(harness, service) -> None:
    put(harness, seed=3, typical=0.9)
    service.choose("Creative")
    assert harness.session.settings(SamplerSettings) == CREATIVE.over(SamplerSettings(seed=3))
    reported = sources(harness)
    assert {name for name, source in reported.items() if source == "preset Creative"} == set(
        CREATIVE.settings
    )
    assert reported["seed"] == "conversation"  # a preset is a way to write, not one text
    assert reported["typical"] == "default"
    assert service.current() == ("Creative", False)
    put(harness, top_p=0.5)
    assert sources(harness)["top_p"] == "conversation"
    assert sources(harness)["temperature"] == "preset Creative"
    assert service.current() == ("Creative", True)
    put(harness, top_p=1.0)
    assert service.current() == ("Creative", False)


def test_a_preset_overrides_saved_defaults_and_a_reset_restores_them(harness, service) -> None:
    put(harness, temperature=0.3, skew=1.0)
    harness.session.save_as_defaults()
    service.choose("Balanced")
    assert harness.session.settings(SamplerSettings) == SamplerSettings()
    assert sources(harness)["skew"] == "preset Balanced"
    harness.session.reset_setting(SamplerSettings, "temperature")
    assert harness.session.settings(SamplerSettings).temperature == 0.3
    assert sources(harness)["temperature"] == "saved default"


def test_pinned_values_stay_when_the_defaults_change(harness, service) -> None:
    service.choose("Balanced")  # the program's own defaults, but chosen
    harness.session.preferences.save_settings(SamplerSettings(temperature=0.2, top_k=5))
    assert harness.session.settings(SamplerSettings).temperature == 0.7
    put(harness, presence_penalty=0.5)
    assert harness.session.settings(SamplerSettings).temperature == 0.7


def test_the_preset_belongs_to_its_conversation(harness, service) -> None:
    harness.load()
    harness.ask("one")
    first = harness.session.conversation
    service.choose("Creative")
    harness.session.new_conversation()
    assert service.current() == ("Balanced", False)
    assert sources(harness)["temperature"] == "default"
    harness.session.open_conversation(first)
    assert service.current() == ("Creative", False)
    assert sources(harness)["temperature"] == "preset Creative"


def test_save_rename_delete_and_undo(harness, service) -> None:
    put(harness, temperature=1.3, seed=8)
    assert service.save("  My  way ")
    assert own(service) == ["My way"]
    assert service.current() == ("My way", False)
    assert sources(harness)["temperature"] == "preset My way"
    assert "seed" not in harness.session.preferences.presets["My way"]
    assert service.rename("My way", "Our way")
    assert own(service) == ["Our way"]
    assert sources(harness)["temperature"] == "preset Our way"
    assert service.delete("Our way")
    assert service.said[-1][2]
    assert own(service) == []
    assert sources(harness)["temperature"] == "conversation"
    assert harness.session.settings(SamplerSettings).temperature == 1.3
    assert harness.session.undo()
    assert own(service) == ["Our way"]
    assert sources(harness)["temperature"] == "preset Our way"


def test_saving_over_a_preset_can_be_undone(harness, service) -> None:
    put(harness, temperature=1.3)
    service.save("mine")
    put(harness, temperature=1.4)
    service.save("Mine")
    assert own(service) == ["Mine"]
    assert harness.session.undo()
    assert own(service) == ["mine"]
    service.choose("mine")
    assert harness.session.settings(SamplerSettings).temperature == 1.3


@pytest.mark.parametrize(("deed", "level"), [
    (lambda service: service.save("creative"), "warning"),
    (lambda service: service.rename("mine", "PRECISE"), "warning"),
    (lambda service: service.rename("mine", "other"), "warning"),
    (lambda service: service.rename("Creative", "x"), None),
    (lambda service: service.delete("Creative"), None),
    (lambda service: service.save("   "), None),
    (lambda service: service.rename("mine", " "), None),
])  # fmt: skip
def test_built_in_presets_and_taken_names_are_refused(harness, service, deed, level: str | None) -> None:
    put(harness, temperature=1.3)
    service.save("mine")
    service.save("other")
    service.said.clear()
    before = service.presets()
    assert not deed(service)
    assert service.presets() == before
    assert [said[1] for said in service.said] == ([level] if level else [])


def test_import_and_export(harness, service, tmp_path: Path) -> None:
    put(harness, temperature=1.3)
    service.save("mine")
    assert service.export_file("mine", tmp_path / "out.json")
    assert service.import_file(tmp_path / "out.json")
    assert own(service) == ["mine", "mine 2"]
    assert service.current() == ("mine 2", False)
    (tmp_path / "theirs.json").write_text(json.dumps({"temp": 0.9, **{f"thing{n}": n + 1 for n in range(8)}}))
    assert service.import_file(tmp_path / "theirs.json")
    sentence, level, _ = service.said[-1]
    assert level == "warning"
    assert "theirs" in sentence
    assert "thing0, thing1, thing2, thing3, thing4 and 3 more" in sentence
    assert harness.session.settings(SamplerSettings).temperature == 0.9


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, ""), (1, ": thing0."), (5, ": thing0, thing1, thing2, thing3, thing4."),
     (6, ": thing0, thing1, thing2, thing3, thing4 and 1 more.")],
)  # fmt: skip
def test_unknown_settings_of_an_imported_preset(service, tmp_path: Path, count: int, words: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"temp": 0.9, **{f"thing{n}": n + 1 for n in range(count)}}))
    changed: list[None] = []
    service.changed.connect(lambda: changed.append(None))
    assert service.import_file(tmp_path / "a.json")
    sentence, level, offers_undo = service.said[-1]
    assert sentence.endswith(f"Unknown settings were ignored{words}" if count else "“a”.")
    assert (level, offers_undo) == ("warning" if count else "info", False)
    assert changed


def test_current_values_are_exported_if_no_preset_has_the_name(harness, service, tmp_path: Path) -> None:
    put(harness, temperature=1.37)
    assert service.export_file("", tmp_path / "now.json")
    data = json.loads((tmp_path / "now.json").read_text("utf-8"))
    assert (data["name"], data["settings"]["temperature"]) == ("now", 1.37)


def test_a_broken_file_changes_nothing(harness, service, tmp_path: Path) -> None:
    service.choose("Creative")
    before = (service.presets(), harness.session.settings(SamplerSettings))
    (tmp_path / "broken.json").write_text('{"temperature": ')
    assert not service.import_file(tmp_path / "broken.json")
    assert service.said[-1][1] == "error"
    assert (service.presets(), harness.session.settings(SamplerSettings)) == before
    assert not service.export_file("Creative", tmp_path / "no" / "x.json")
    assert "cannot be saved" in service.said[-1][0]


def test_the_choice_survives_a_restart_and_a_deleted_preset(harness, service) -> None:
    put(harness, temperature=1.3)
    service.save("mine")
    saved = harness.store.get(harness.session.conversation).settings
    assert saved["preset"] == {"name": "mine"}
    harness.session.preferences.remove_preset("mine")
    harness.session.open_conversation(harness.session.conversation)
    assert sources(harness)["temperature"] == "conversation"
    assert harness.session.settings(SamplerSettings).temperature == 1.3


def test_what_cannot_be_saved_changes_nothing_and_says_why(
    harness, service, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(harness, temperature=1.3)
    assert service.save("mine")
    put(harness, temperature=1.4)
    before = (service.presets(), service.current(), harness.session.settings(SamplerSettings))

    def full(*_what: object, **_more: object) -> None:
        raise StoreError("The disk is full.")

    preferences = harness.session.preferences
    monkeypatch.setattr(preferences, "save_preset", full)
    monkeypatch.setattr(preferences, "remove_preset", full)
    service.said.clear()
    assert not service.save("other")
    assert not service.rename("mine", "yours")
    assert not service.delete("mine")
    assert service.said == [("The disk is full.", "error", False)] * 3
    assert (service.presets(), service.current(), harness.session.settings(SamplerSettings)) == before


def test_each_action_is_told_and_only_a_deletion_offers_to_undo(harness, service, tmp_path: Path) -> None:
    listed: list[bool] = []
    changed: list[None] = []
    service.changed.connect(lambda: changed.append(None))
    put(harness, temperature=1.3)
    assert changed  # other values may be those of another preset
    for act in (
        lambda: service.save("mine"),
        lambda: service.export_file("mine", tmp_path / "a.json"),
        lambda: service.rename("mine", "Mine"),  # another case of the same name
        lambda: service.delete("Mine"),
    ):
        changed.clear()
        assert act()
        listed.append(bool(changed))
    assert listed == [True, False, True, True]
    assert service.said == [
        ("Saved as the preset “mine”.", "info", False),
        ("The preset “mine” was saved as a.json.", "info", False),
        ("The preset “Mine” was deleted. This chat keeps its values.", "info", True),
    ]
    changed.clear()
    assert harness.session.undo()
    assert (own(service), bool(changed)) == (["Mine"], True)
