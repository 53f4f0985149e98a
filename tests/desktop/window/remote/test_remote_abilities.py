"""What a server lacks is disabled with the reason, and works again with a model of this computer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt

from desktop.services.session.several import ColumnSettings
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.views.chat.context_meter import lines
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.conftest import WAIT_MS
from tests.desktop.remote_server import RemoteHand, remote_hand

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[RemoteHand]:
    with remote_hand(qtbot, tmp_path) as found:
        yield found


def disabled(hand: RemoteHand, name: str) -> str:
    """Why a command is disabled; "" if it is enabled."""
    action = hand.window.actions_by_name[name]
    return "" if action.isEnabled() else action.toolTip()


def test_settings_that_the_server_does_not_take_say_why(hand):
    form = hand.window.inspector.forms[SamplerSettings]
    row = form.row("typical")
    assert row.isEnabled()
    hand.use()
    assert not row.isEnabled()
    assert "Lab does not support this setting." in row.toolTip()
    assert row.editor.accessibleDescription().startswith("Lab does not support this setting.")
    stops = hand.window.inspector.forms[StopSettings]
    assert stops.row("max_tokens").isEnabled()
    assert stops.row("stop_strings").isEnabled()
    hand.load()
    hand.qtbot.waitUntil(row.isEnabled)
    assert "Lab" not in row.toolTip()
    assert "Lab" not in row.editor.accessibleDescription()


def test_a_row_made_later_is_disabled_too(hand):
    hand.use()
    assert not hand.window.inspector.forms[ConstraintSettings].row("logit_bias").isEnabled()


def test_a_value_that_the_server_does_not_take_can_be_taken_back(hand):
    hand.use()
    form = hand.window.inspector.forms[ConstraintSettings]
    row = form.row("banned_strings")
    assert (row.isEnabled(), row.note.isHidden()) == (False, True)
    hand.session.set_settings(ConstraintSettings(banned_strings=("never",)))
    assert row.isEnabled()
    assert row.note.text() == "Lab does not support this setting."
    assert row.note.property("tone") == "muted"
    hand.session.reset_setting(ConstraintSettings, "banned_strings")
    assert (row.isEnabled(), row.note.isHidden()) == (False, True)


def test_panes_that_are_the_servers_business_say_so_once(hand):
    forms = hand.window.inspector.forms
    hand.use()
    for cls, words in (
        (SpeculationSettings, "Drafting is up to the server."),
        (CacheSettings, "The server decides how it keeps its context."),
        (LoadSettings, "The server has loaded the model."),
    ):
        assert forms[cls]._why.text() == words
    assert not hand.window.model_settings.drafting.isEnabled()
    assert not hand.window.model_settings.device.isEnabled()
    assert forms[SamplerSettings]._why.text() == "Lab supports none of these settings."
    assert forms[StopSettings]._why is None
    hand.load()
    hand.qtbot.waitUntil(hand.window.model_settings.drafting.isEnabled)
    assert forms[CacheSettings]._why.isHidden()
    assert hand.window.model_settings.device.isEnabled()


def test_a_model_of_a_server_need_not_be_loaded_again_for_other_settings(hand):
    hand.use()
    hand.session.set_settings(CacheSettings(context_length=512))
    assert hand.notice() == ""
    assert hand.window.settings_controller.reload_strips[CacheSettings].button.isHidden()
    assert hand.desktop.services.memory_forecast.places() == ()


def test_replies_are_continued_only_where_the_server_can(hand):
    hand.use()
    hand.say("one two")
    reply = hand.items()[-1]
    assert "starts a new reply" in disabled(hand, "continue")
    assert "starts a new reply" in disabled(hand, "opening")
    asked = len(hand.echo_server.server.asked)
    assert not hand.session.continue_reply(reply.id)
    assert "Lab starts a new reply" in hand.notice()
    assert not hand.session.submit("more", opening="Begin")
    assert hand.texts() == ["one two", "one two"]
    assert len(hand.echo_server.server.asked) == asked
    hand.load()
    hand.qtbot.waitUntil(lambda: disabled(hand, "continue") == "")
    assert disabled(hand, "opening") == ""


def test_a_server_that_continues_goes_on_at_the_end_of_the_reply(hand):
    hand.echo_server.can.add("continue")
    hand.use()
    hand.say("one two")
    assert disabled(hand, "continue") == ""
    assert hand.session.continue_reply(hand.items()[-1].id)
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "one twoone two", timeout=WAIT_MS)
    body = hand.echo_server.replies[-1]
    assert body["messages"][-1] == {"role": "assistant", "content": "one two"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_versions_and_several_replies_work_with_every_server(hand):
    hand.use()
    hand.say("again please")
    assert hand.session.regenerate(hand.items()[-1].id)
    hand.qtbot.waitUntil(lambda: hand.items()[-1].variant_count == 2, timeout=WAIT_MS)
    hand.wait_for("idle")
    assert hand.desktop.services.comparisons.write_several(hand.items()[0].id, 3)
    hand.qtbot.waitUntil(lambda: len(hand.echo_server.replies) == 5, timeout=WAIT_MS)
    hand.wait_for("idle")


def test_a_notebook_needs_a_server_that_continues_text(hand):
    hand.use()
    hand.session.new_notebook()
    assert not hand.session.may_write()
    assert "plain text" in hand.notice()


def test_the_context_is_marked_as_an_estimate(hand):
    hand.use()
    hand.say("some words")
    meter = hand.desktop.services.context_meter
    hand.qtbot.waitUntil(lambda: meter.measured.messages > 0 and not meter.measured.exact, timeout=WAIT_MS)
    shown = dict(lines(meter.measured))
    assert shown["Context"] == "4,096 tokens"
    assert shown["Messages"].startswith("about ")
    assert shown["Tokens"] == "estimated"
    assert "Cached" not in shown
    hand.load()
    hand.qtbot.waitUntil(lambda: meter.measured.exact and meter.measured.messages > 0, timeout=WAIT_MS)
    assert "Tokens" not in dict(lines(meter.measured))


def test_a_context_of_unknown_length_is_said_to_be_so(hand):
    del hand.echo_server.server.routes["/v1/models"]
    hand.use()
    hand.say("some words")
    meter = hand.desktop.services.context_meter
    hand.qtbot.waitUntil(lambda: meter.measured.messages > 0 and not meter.measured.exact, timeout=WAIT_MS)
    shown = dict(lines(meter.measured))
    assert shown["Context"] == "length not stated by the server"
    assert "Free" not in shown


def test_the_devices_of_this_computer_cannot_run_a_model_of_a_server(hand):
    hand.use()
    picker = hand.window.picker
    assert not picker._devices.isEnabled()
    assert picker._devices.menuAction().toolTip() == "The server decides where it runs the model."
    hand.load()
    hand.qtbot.waitUntil(picker._devices.isEnabled)


def test_tokens_can_be_looked_at_though_the_server_tells_no_probabilities(hand):
    hand.use()
    hand.say("one two three")
    keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    hand.press(Qt.Key.Key_T, keys)
    assert hand.texts()[-1] == "one two three"
    assert hand.notice() == "Lab sends no probabilities of tokens. Replies from other models show theirs."
    hand.window.chat.banner.hide()
    hand.press(Qt.Key.Key_T, keys)
    assert hand.notice() == ""
    hand.load()
    hand.press(Qt.Key.Key_T, keys)
    assert hand.notice() == ""


@pytest.mark.slow
def test_a_local_and_a_remote_reply_are_compared(hand):
    hand.load()
    hand.say("compare us")
    provider = hand.add()
    columns = [ColumnSettings(), ColumnSettings(model=f"remote:{provider.id}:echo")]
    comparisons = hand.desktop.services.comparisons
    assert comparisons.begin(hand.items()[0].id, columns)
    comparison = comparisons.of(hand.session.conversation)
    hand.qtbot.waitUntil(lambda: all(column.message for column in comparison.columns), timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=WAIT_MS)
    store = hand.session.stores.kept
    assert [store.message(column.message).text for column in comparison.columns] == ["compare us"] * 2
    assert len(hand.echo_server.replies) == 1


@pytest.mark.slow
def test_a_persona_can_have_a_model_of_a_server(hand):
    provider = hand.add()
    hand.load()
    persona = Persona(0, "Ada", model_path=f"remote:{provider.id}:echo")
    number = PersonaStore(hand.session.stores.database).save(persona).id
    hand.window.personas.choose(number)
    assert hand.notice() == "Ada uses the model echo, which is not loaded."
    assert hand.echo_server.server.asked == []
    hand.click("Load echo")
    hand.qtbot.waitUntil(lambda: hand.session.model is not None and bool(hand.session.model.host))
    hand.wait_for("idle")
    assert hand.notice() == ""
