"""What a chat inherits from its folders and its persona: settings, and the system prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.settings.presets import Preset
from engine.settings import SamplerSettings, StopSettings


@pytest.fixture
def placed(harness):
    """The open chat in the folder Law in the folder Work."""
    folders = FolderStore(harness.database)
    work = folders.create("Work").id
    law = folders.create("Law", work).id
    sampler = {"temperature": 0.3, "top_p": 0.8, "top_k": 7}
    folders.set_settings(work, {"SamplerSettings": sampler, "StopSettings": {"stop_strings": ["END"]}})
    folders.set_settings(law, {"SamplerSettings": {"temperature": 0.2}})
    folders.set_system_prompt(work, "At work.")
    harness.store.move([harness.session.conversation], law)
    harness.folders, harness.work, harness.law = folders, work, law
    harness.session.follow_place()
    return harness


def value(harness, name, cls=SamplerSettings):
    return getattr(harness.session.settings(cls), name), harness.session.source_of(cls, name)


def test_inner_folders_override_outer_ones_and_the_chat_overrides_both(placed) -> None:
    assert value(placed, "temperature") == (0.2, "folder Law")
    assert value(placed, "top_p") == (0.8, "folder Work")
    assert value(placed, "stop_strings", StopSettings) == (("END",), "folder Work")
    placed.session.set_settings(replace(placed.session.settings(SamplerSettings), temperature=1.5))
    assert value(placed, "temperature") == (1.5, "conversation")
    assert placed.session.layers.after_reset(SamplerSettings).temperature == 0.2
    said = placed.session.layers.source_layers(SamplerSettings)["temperature"]
    assert said == (("default", 0.7), ("folder Work", 0.3), ("folder Law", 0.2), ("conversation", 1.5))
    assert placed.store.get(placed.session.conversation).settings == {"SamplerSettings": {"temperature": 1.5}}
    placed.session.reset_setting(SamplerSettings, "temperature")
    assert value(placed, "temperature") == (0.2, "folder Law")


def test_a_reset_over_a_folder_changes_this_chat_only(placed) -> None:
    placed.session.reset_setting(SamplerSettings, "temperature")
    assert value(placed, "temperature") == (0.3, "conversation")
    assert placed.folders.get(placed.law).settings == {"SamplerSettings": {"temperature": 0.2}}
    placed.session.reset_setting(SamplerSettings, "temperature")
    assert value(placed, "temperature") == (0.2, "folder Law")


def test_folders_override_what_is_kept_for_the_model(placed) -> None:
    placed.session.keep_for_model("/models/echo.gguf", SamplerSettings, {"temperature": 0.9, "min_p": 0.11})
    placed.load()
    assert value(placed, "temperature") == (0.2, "folder Law")
    assert value(placed, "min_p") == (0.11, "model")


def test_a_personas_preset_overrides_folders_and_the_chat_overrides_it(placed) -> None:
    placed.session.preferences.save_preset("Warm", {"temperature": 1.3})
    ada = PersonaStore(placed.database).save(Persona(0, "Ada", preset="Warm", system_prompt="You are Ada."))
    before = len(placed.said["settings_changed"])
    placed.session.choose_persona(ada.id)
    assert (SamplerSettings,) in placed.said["settings_changed"][before:]
    assert value(placed, "temperature") == (1.3, "persona Ada")
    assert placed.session.preset == "Warm"
    assert placed.session.prompt.text == "You are Ada."
    placed.session.choose_preset(Preset("Cold", {"temperature": 0.1}))
    assert value(placed, "temperature")[0] == 0.1
    placed.session.choose_persona(None)
    assert placed.session.persona is None
    assert placed.session.prompt.source == "folder Work"


def test_a_renamed_preset_stays_with_its_personas(harness) -> None:
    harness.session.preferences.save_preset("Warm", {"temperature": 1.3})
    personas = PersonaStore(harness.database)
    ada = personas.save(Persona(0, "Ada", preset="Warm"))
    harness.session.choose_persona(ada.id)
    harness.session.preferences.save_preset("Hot", {"temperature": 1.3}, instead_of="Warm")
    harness.session.presets_edited("Warm", "Hot")
    assert personas.get(ada.id).preset == "Hot"
    assert value(harness, "temperature") == (1.3, "persona Ada")


def test_a_preset_that_is_renamed_and_changed_marks_what_still_is_its_own(harness) -> None:
    harness.session.preferences.save_preset("Warm", {"temperature": 1.3, "top_k": 7})
    harness.session.choose_preset(Preset("Warm", {"temperature": 1.3, "top_k": 7}))
    assert value(harness, "temperature") == (1.3, "preset Warm")
    harness.session.preferences.save_preset("Hot", {"temperature": 1.4, "top_k": 7}, instead_of="Warm")
    harness.session.presets_edited("Warm", "Hot")
    assert value(harness, "temperature") == (1.3, "conversation")
    assert value(harness, "top_k") == (7, "preset Hot")


def test_the_innermost_prompt_is_sent(placed) -> None:
    session = placed.session
    placed.load()

    def sent() -> list[str]:
        placed.ask("Hello")
        return [message.content for message in placed.chat.requests[-1].messages if message.role == "system"]

    assert (session.prompt.own, session.prompt.source, sent()) == ("", "folder Work", ["At work."])
    # the session has not been notified: a request reads it again
    placed.folders.set_system_prompt(placed.law, "In law.")
    assert sent() == ["In law."]
    session.set_system_prompt("My own.")
    assert sent() == ["My own."]
    session.set_system_prompt("", False)
    assert sent() == []
    assert (session.prompt.inherited, session.prompt.inherits) == ("In law.", False)
    session.set_system_prompt("")
    assert sent() == ["In law."]
    session.new_conversation()
    assert sent() == []


def test_prompts_are_sent_with_the_present_date_and_kept_without(placed, monkeypatch) -> None:
    days = iter(("Monday, 30 November 2026", "Tuesday, 1 December 2026"))
    day = next(days)
    monkeypatch.setattr("desktop.services.session.context.today_text", lambda: day)
    placed.load()
    placed.folders.set_system_prompt(placed.law, "Today is {{date}}.")
    placed.ask("Hello")
    day = next(days)
    placed.ask("Hello again")
    sent = [request.messages[0].content for request in placed.chat.requests]
    assert sent == ["Today is Monday, 30 November 2026.", "Today is Tuesday, 1 December 2026."]
    assert placed.session.prompt.inherited == "Today is {{date}}."


def test_an_unusable_value_of_a_folder_is_left_out_and_reported_once(placed) -> None:
    placed.folders.set_settings(placed.law, {"SamplerSettings": {"temperature": "hot", "top_k": 3}})
    placed.session.follow_place()
    placed.session.follow_place()
    assert value(placed, "temperature") == (0.3, "folder Work")
    assert value(placed, "top_k") == (3, "folder Law")
    assert len([said for said in placed.notices() if "temperature" in said]) == 1


def test_an_unusable_value_of_another_chat_is_reported_when_it_is_answered(harness) -> None:
    harness.load()
    other = harness.store.create("Other").id
    harness.store.set_settings(other, {"SamplerSettings": {"temperature": "hot", "top_k": 3}})
    assert harness.session.submit("Hello", chat=other)
    harness.qtbot.waitUntil(lambda: len(harness.store.path(other)) == 2 and not harness.session.replying_in)
    sampler = harness.chat.requests[-1].sampler
    assert (sampler.temperature, sampler.top_k) == (SamplerSettings().temperature, 3)
    assert [said for said in harness.notices() if "temperature" in said]


def test_saving_as_defaults_keeps_what_a_folder_would_hide(placed) -> None:
    placed.session.set_settings(replace(placed.session.settings(SamplerSettings), temperature=1.1, min_p=0.2))
    placed.session.save_as_defaults()
    assert value(placed, "temperature") == (1.1, "conversation")
    assert value(placed, "min_p") == (0.2, "saved default")
