"""Models of servers in the window: opened, answered by, and asked nothing that the user did not ask for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from desktop.settings import Behaviour
from engine.platform.language import PREFERENCES
from engine.settings import SamplerSettings, SpeculationSettings
from tests.conftest import WAIT_MS
from tests.desktop.remote_server import CHAT, RemoteHand, remote_hand
from tests.engine.remote.fake_server import events, json_reply

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[RemoteHand]:
    with remote_hand(qtbot, tmp_path) as found:
        yield found


def test_adding_a_server_asks_it_nothing(hand):
    hand.add()
    hand.restart()
    assert [server.provider.name for server in hand.providers.servers] == ["Lab"]
    assert hand.echo_server.server.asked == []


def test_a_model_of_a_server_answers_in_the_window(hand):
    hand.use()
    model = hand.session.model
    assert (model.name, model.context_length, model.server_version) == ("echo", 4096, "fake 7.5")
    hand.say("one two three")
    hand.wait_for("idle")
    assert hand.texts() == ["one two three", "one two three"]
    (body,) = hand.echo_server.replies
    assert (body["model"], body["messages"]) == ("echo", [{"role": "user", "content": "one two three"}])


@pytest.mark.slow
def test_a_server_that_lists_no_models_answers_all_the_same(hand):
    del hand.echo_server.server.routes["/v1/models"]
    hand.use()
    assert hand.session.model.context_length == 0
    hand.say("words " * 300 + "end")
    hand.wait_for("idle")
    assert hand.texts()[-1].endswith("end")


def test_a_list_of_models_can_be_asked_for(hand):
    provider = hand.add()
    hand.providers.list_models(provider.id)
    hand.qtbot.waitUntil(lambda: not hand.providers.activity(provider.id), timeout=WAIT_MS)
    assert [tuple(each) for each in hand.providers.server(provider.id).models] == [("echo", 4096)]


@pytest.mark.slow
def test_the_last_model_is_opened_again_without_asking_the_server(hand):
    address = hand.use()
    asked = len(hand.echo_server.server.asked)
    hand.restart()
    hand.wait_for("idle")
    assert hand.session.model.path == address
    assert len(hand.echo_server.server.asked) == asked


def test_a_model_that_was_never_tested_is_not_opened_at_the_start(hand):
    provider = hand.add()
    hand.session.preferences.remember_model(f"remote:{provider.id}:echo")
    hand.restart()
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.local_models.searching, timeout=WAIT_MS)
    assert hand.session.state == "no_model"
    assert hand.echo_server.server.asked == []


def test_a_server_that_cannot_be_reached_leaves_the_loaded_model(hand):
    hand.load()
    hand.echo_server.server.close()
    provider = hand.add()
    hand.window.model_controller.load(f"remote:{provider.id}:echo")
    hand.qtbot.waitUntil(lambda: bool(hand.notice()), timeout=WAIT_MS)
    hand.wait_for("idle")
    assert hand.session.model.host == ""
    assert "127.0.0.1" in hand.notice()


def test_a_server_that_was_removed_is_named_when_its_model_is_opened(hand):
    hand.window.model_controller.load("remote:gone:echo")
    hand.qtbot.waitUntil(lambda: "no longer in your list of servers" in hand.notice(), timeout=WAIT_MS)


def test_loading_can_be_stopped_while_the_server_does_not_answer(hand):
    hangs = threading.Event()
    hand.echo_server.server.routes[CHAT] = lambda asked: events(hangs)
    provider = hand.add()
    hand.window.model_controller.load(f"remote:{provider.id}:echo")
    hand.qtbot.waitUntil(lambda: bool(hand.echo_server.server.bodies(CHAT)), timeout=WAIT_MS)
    hand.session.stop_loading()
    hand.wait_for("no_model")
    assert hand.echo_server.server.closed.acquire(timeout=10)


def test_the_window_closes_while_a_reply_hangs(hand):
    hand.use()
    hangs = threading.Event()
    hand.echo_server.script = lambda asked: events(
        {"choices": [{"index": 0, "delta": {"content": "begun"}}]}, hangs
    )
    hand.send("go on")
    hand.wait_for("answering")
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "begun", timeout=WAIT_MS)
    hand.window.close_guard.sure = True
    hand.restart()
    assert hand.texts() == ["go on", "begun"]
    assert hand.echo_server.server.closed.acquire(timeout=10)


def test_keys_stay_out_of_the_files(hand):
    provider = hand.add()
    hand.providers.set_key(provider.id, "sk-very-secret", in_keyring=False)
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(provider.id) == "this run", timeout=WAIT_MS)
    hand.use(provider)
    hand.say("hello")
    hand.wait_for("idle")
    assert hand.echo_server.server.asked[-1].headers["authorization"] == "Bearer sk-very-secret"
    hand.session.close()
    for path in hand.folder.rglob("*"):
        assert not path.is_file() or b"sk-very-secret" not in path.read_bytes(), path


def test_without_a_keyring_a_key_is_kept_for_this_run_and_that_is_said(hand):
    provider = hand.add()
    hand.providers.set_key(provider.id, "sk-1", in_keyring=True)
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(provider.id) == "this run", timeout=WAIT_MS)
    assert "no keyring" in hand.providers.trouble(provider.id)
    hand.providers.set_key(provider.id, "two words", in_keyring=False)
    hand.qtbot.waitUntil(lambda: "not a key" in hand.providers.trouble(provider.id), timeout=WAIT_MS)
    assert hand.providers.key_place(provider.id) == "this run"
    hand.providers.set_key(provider.id, "", in_keyring=False)
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(provider.id) == "", timeout=WAIT_MS)


def test_a_removed_server_is_forgotten_with_its_key(hand):
    provider = hand.add()
    hand.providers.set_key(provider.id, "sk-1", in_keyring=False)
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(provider.id) == "this run", timeout=WAIT_MS)
    hand.providers.remove(provider.id)
    hand.desktop.session.preferences.save()
    assert json.loads((hand.folder / PREFERENCES).read_text())["servers"] == []
    again = hand.add()
    hand.providers.look_for_key(again.id)
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(again.id) == "", timeout=WAIT_MS)


@pytest.mark.slow
def test_at_another_address_nothing_is_known_about_a_server(hand):
    provider = hand.add()
    hand.use(provider)
    renamed = type(provider)(provider.id, "Laboratory", provider.base_url)
    hand.providers.save(renamed)
    assert hand.providers.server(provider.id).provider == renamed
    assert hand.providers.capabilities(f"remote:{provider.id}:echo") is not None
    hand.providers.save(type(provider)(provider.id, "Lab", "http://127.0.0.1:9/v1"))
    assert hand.providers.capabilities(f"remote:{provider.id}:echo") is None


@pytest.mark.slow
def test_a_draft_model_is_no_obstacle_to_a_server(hand):
    hand.use()
    hand.session.set_settings(SpeculationSettings(method="model"))
    hand.say("hello you")
    hand.wait_for("idle")
    assert hand.texts()[-1] == "hello you"


def test_titles_are_not_asked_of_a_server(hand):
    behaviour = hand.session.settings(Behaviour)
    hand.session.set_settings(Behaviour(**{**behaviour.to_json(), "model_titles": True}))
    hand.use()
    hand.say("name me")
    hand.wait_for("idle")
    assert hand.desktop.services.titles.waiting == ()
    assert len(hand.echo_server.replies) == 1


def test_a_reply_of_a_server_names_it_and_cannot_be_replayed(hand):
    from desktop.services.provenance.provenance_text import facts_rows
    from desktop.services.provenance.replay import why_not

    hand.use()
    hand.session.set_settings(SamplerSettings(seed=None))
    hand.say("whose words")
    hand.wait_for("idle")
    reply = hand.desktop.services.provenance.of(hand.items()[-1].id)
    rows = dict(facts_rows(reply, ""))
    assert rows["Server"].startswith("Lab (127.0.0.1")
    assert rows["Server"].endswith("fake 7.5")
    assert rows.keys().isdisjoint({"File", "SHA-256", "Ran on", "Adapters", "Seed"})
    assert "Lab" in why_not(reply, hand.session.model, False)
    assert not hand.desktop.services.provenance.compute_hash(reply)


def test_a_refusal_is_shown_and_the_message_kept(hand):
    hand.use()
    hand.echo_server.script = lambda asked: json_reply({"error": {"message": "no such model"}}, 404)
    hand.say("hello")
    hand.wait_for("idle")
    assert hand.items()[0].text == "hello"
    assert "no such model" in hand.items()[1].notice


@pytest.mark.slow
def test_it_is_said_when_a_chat_goes_to_a_server_for_the_first_time(hand):
    hand.load()
    hand.say("used here")
    provider = hand.add()
    hand.use(provider)
    host = f"127.0.0.1:{hand.echo_server.server.port}"
    assert hand.notice() == f"From your next message on, this chat is sent to {host}."
    hand.say("and there")
    hand.window.chat.banner.hide()
    hand.restart()
    hand.wait_for("idle")
    assert hand.session.model.host == host
    assert hand.notice() == ""
    hand.session.new_conversation()
    hand.load()
    hand.use(provider)
    assert hand.notice() == ""


def test_the_empty_page_says_where_a_model_runs(hand):
    hand.use()
    assert f"sent to 127.0.0.1:{hand.echo_server.server.port}." in hand.window.chat.welcome.ready.text.text()
    hand.load()
    hand.qtbot.waitUntil(lambda: "on this computer" in hand.window.chat.welcome.ready.text.text())


@pytest.mark.slow
def test_a_saved_server_that_cannot_be_read_is_reported_and_stays_in_the_file(hand):
    hand.add()
    broken = {"provider": {"id": "x", "name": "X", "base_url": "gopher://x"}, "models": []}
    preferences = hand.session.preferences
    preferences.save_servers([*preferences.servers, broken])
    hand.restart()
    assert "gopher" in hand.notice()
    assert [server.provider.name for server in hand.providers.servers] == ["Lab"]
    hand.add("Second")
    hand.session.preferences.save()
    saved = json.loads((hand.folder / PREFERENCES).read_text())["servers"]
    assert [each["provider"]["name"] for each in saved] == ["Lab", "Second", "X"]
    assert saved[-1] == broken
