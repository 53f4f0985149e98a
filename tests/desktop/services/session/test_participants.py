"""What the replies of several participants are asked with."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.personas import Persona, PersonaStore
from engine.settings import ConstraintSettings, SamplerSettings, StopSettings
from tests.desktop.services.conftest import Harness


@pytest.fixture
def cast(talking: Harness) -> Harness:
    """A chat of Ada, who is a persona and the chat's own one, and Bea, who is none; Ada speaks first."""
    talking.session.preferences.save_preset("Warm", {"temperature": 1.3})
    ada = PersonaStore(talking.database).save(Persona(0, "Ada", preset="Warm", system_prompt="You bake."))
    talking.session.choose_persona(ada.id)
    assert talking.session.set_cast(Cast((Participant("Ada", "", ada.id), Participant("Bea")), ("Cy",)))
    return talking


def last(harness: Harness) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in harness.chat.requests[-1].messages]


def test_a_persona_speaks_for_itself_alone(cast: Harness) -> None:
    cast.ask("Hello")
    cast.ask("And you?")
    ada, bea = cast.chat.requests
    # Ada's reply is told so, and Bea's of another one; neither has it as the chat's prompt, too
    assert [request.messages[0].content.count("You bake.") for request in (ada, bea)] == [1, 1]
    assert (ada.sampler.temperature, bea.sampler.temperature) == (1.3, SamplerSettings().temperature)


def test_what_describes_participants_may_name_the_date(
    cast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("desktop.services.session.context.today_text", lambda: "1 May 2026")
    [ada] = PersonaStore(cast.database).list()
    PersonaStore(cast.database).save(dataclasses.replace(ada, system_prompt="You bake on {{date}}."))
    bea = Participant("Bea", "Eats on {{date}}.")
    assert cast.session.set_cast(Cast((Participant("Ada", "", ada.id), bea), ("Cy",)))
    cast.ask("Hello")
    words = cast.chat.requests[-1].messages[0].content
    assert "You bake on 1 May 2026." in words
    assert "Bea: Eats on 1 May 2026." in words


def test_a_name_that_begins_a_reply_is_healed(cast: Harness) -> None:
    """After its blank no model expects a word."""
    cast.session.set_settings(ConstraintSettings(heal=False))
    cast.ask("Hello")
    assert last(cast)[-1] == ("assistant", "Ada: ")
    assert cast.chat.requests[-1].constraint.heal


@pytest.mark.parametrize(
    ("model", "thought"),
    [
        ({"thinking": (("<think>", "</think>"),)}, "<think>well</think>"),
        ({"opens_thought": "</muse>"}, "well</muse>"),
    ],
)
def test_a_model_that_thinks_first_names_itself_after_its_thoughts(
    cast: Harness, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], thought: str
) -> None:
    describe = cast.echo.describe
    monkeypatch.setattr(cast.echo, "describe", lambda path: dataclasses.replace(describe(path), **model))
    cast.load("/models/muse.gguf")
    cast.chat.reply = f"{thought}Ada: Good morning."
    cast.ask("Hello")
    assert last(cast)[-1] == ("user", "Cy: Hello")
    assert not cast.chat.requests[-1].constraint.heal
    assert cast.texts()[-1] == f"{thought}Good morning."


def test_a_participants_reply_is_continued_after_all_that_was_said(cast: Harness) -> None:
    cast.chat.reply = "x one two three"  # its first word counts as the name that the reply is begun with
    cast.session.set_settings(StopSettings(max_tokens=2))
    cast.ask("Hello")
    cast.session.set_settings(StopSettings())
    assert cast.session.continue_reply(cast.ids()[-1])
    cast.until_idle()
    begun = cast.chat.requests[-1]
    assert last(cast)[1:] == [("user", "Cy: Hello"), ("assistant", "Ada: one two")]
    assert begun.continue_last
    # a name stands before the text, so that its exact ids would begin with another text
    assert cast.session.branch(cast.ids()[-1], "one", (5, 6))
    cast.until_idle()
    assert last(cast)[1:] == [("user", "Cy: Hello"), ("assistant", "Ada: one")]
    assert (cast.chat.requests[-1].continue_last, cast.chat.requests[-1].continue_ids) == (True, ())


def test_an_earlier_reply_is_written_again_without_what_followed_it(cast: Harness) -> None:
    cast.ask("Hello")
    cast.ask("And you?")
    assert cast.session.regenerate(cast.ids()[1])
    cast.until_idle()
    assert last(cast)[1:] == [("user", "Cy: Hello"), ("assistant", "Ada: ")]


def test_a_preview_is_of_the_participant_who_speaks_next(cast: Harness) -> None:
    usual = SamplerSettings().temperature
    assert cast.session.preview_request("Hello").sampler.temperature == 1.3
    cast.ask("Hello")
    begun = cast.session.preview_request("And you?", "Well,")
    assert (begun.sampler.temperature, begun.continue_last) == (usual, True)
    assert begun.messages[-1].content == "Bea: Well,"
    assert cast.session.preview_request("And you?").messages[-1].content == "Bea: "


def test_nobody_answers_where_the_user_chooses_who_speaks(cast: Harness) -> None:
    assert cast.session.set_cast(Cast((Participant("Ada"), Participant("Bea")), ("Cy",), turn="hand"))
    assert cast.session.submit("Hello")
    cast.until_idle()
    assert (len(cast.ids()), cast.chat.requests) == (1, [])
    assert cast.session.speak("bea")
    cast.until_idle()
    assert cast.store.message(cast.ids()[-1]).author.name == "Bea"
    assert not cast.session.speak("Dan")
