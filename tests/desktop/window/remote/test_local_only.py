"""A chat that is pinned to this computer: kept so, seen so, and never sent to a server by any way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from desktop.services.session.several import ColumnSettings
from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.transfer.exporters.own import plain
from tests.conftest import WAIT_MS
from tests.desktop.remote_server import RemoteHand, remote_hand

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[RemoteHand]:
    with remote_hand(qtbot, tmp_path) as found:
        yield found


def pin(hand: RemoteHand) -> None:
    hand.window.actions_by_name["local_only"].trigger()
    assert hand.session.local_only


def test_a_pin_is_seen_and_survives_a_restart(hand):
    strip, action = hand.window.local_only, hand.window.actions_by_name["local_only"]
    assert strip.isHidden()
    pin(hand)
    assert strip.isVisible()
    assert action.isChecked()
    hand.session.submit("x")  # no model: it stays in the box, and the chat stays
    hand.restart()
    assert hand.session.local_only
    assert hand.window.local_only.isVisible()
    assert hand.window.actions_by_name["local_only"].isChecked()
    hand.click("Allow servers")
    assert not hand.session.local_only
    assert hand.window.local_only.isHidden()
    assert not hand.window.actions_by_name["local_only"].isChecked()


def test_another_chat_is_not_pinned(hand):
    hand.load()
    pin(hand)
    first = hand.session.conversation
    hand.say("mine")
    hand.session.new_conversation()
    assert not hand.session.local_only
    assert hand.window.local_only.isHidden()
    hand.session.open_conversation(first)
    assert hand.session.local_only


def test_a_pinned_chat_is_answered_here_and_refused_a_server(hand):
    hand.load()
    pin(hand)
    hand.say("for us only")
    assert len(hand.texts()) == 2
    hand.use()
    asked = len(hand.echo_server.server.asked)
    hand.send("a secret")
    assert hand.box.toPlainText() == "a secret"
    assert len(hand.texts()) == 2
    assert "stays on this computer" in hand.notice()
    assert f"127.0.0.1:{hand.echo_server.server.port}" in hand.notice()
    banner = hand.window.chat.banner
    assert (banner.offer.text(), banner.offer.isVisible()) == ("Choose a model", True)
    assert len(hand.echo_server.server.asked) == asked
    for act in (
        lambda: hand.session.regenerate(hand.items()[0].id),
        lambda: hand.session.continue_reply(hand.items()[1].id),
        lambda: hand.session.edit(hand.items()[0].id, "edited secret"),
        lambda: hand.session.several.add_message("again"),
        lambda: hand.desktop.services.comparisons.write_several(hand.items()[0].id, 2),
    ):  # fmt: skip
        assert not act()
    assert len(hand.echo_server.server.asked) == asked
    hand.window.actions_by_name["local_only"].trigger()
    hand.press_send()
    hand.qtbot.waitUntil(
        lambda: hand.texts()[-1:] == ["a secret"] and len(hand.texts()) == 4, timeout=WAIT_MS
    )


def test_a_local_model_takes_the_refusal_away(hand):
    hand.use()
    pin(hand)
    hand.send("a secret")
    assert hand.window.chat.banner.offer.isVisible()
    hand.load()
    assert hand.notice() == ""
    hand.press_send()
    hand.qtbot.waitUntil(lambda: hand.texts() == ["a secret", "a secret"], timeout=WAIT_MS)
    assert hand.echo_server.replies == []


def test_the_status_line_shows_no_destination_for_a_pinned_chat(hand):
    hand.use()
    assert hand.window.chat.status.destination.isVisible()
    assert "Your messages are sent to" in hand.window.chat.welcome.ready.text.text()
    pin(hand)
    assert hand.window.chat.status.destination.isHidden()
    assert "this chat stays on this computer" in hand.window.chat.welcome.ready.text.text()
    hand.click("Allow servers")
    assert hand.window.chat.status.destination.isVisible()


def test_models_of_servers_are_not_compared_in_a_pinned_chat(hand):
    hand.load()
    pin(hand)
    hand.say("compare this")
    provider = hand.add()
    columns = [ColumnSettings(), ColumnSettings(model=f"remote:{provider.id}:echo")]
    assert not hand.desktop.services.comparisons.begin(hand.items()[0].id, columns)
    assert "cannot be compared" in hand.notice()
    assert hand.echo_server.server.asked == []


def test_unsent_words_of_a_pinned_chat_are_not_counted_by_a_server(hand):
    provider = hand.add(counts_tokens=True)
    hand.echo_server.server.routes["/tokenize"] = hand.echo_server.tokenize
    hand.use(provider)
    assert hand.providers.capabilities(hand.session.model.path).tokenize == "vllm"
    pin(hand)
    asked = len(hand.echo_server.server.asked)
    hand.type("unsent secret")
    hand.desktop.services.context_meter.set_draft("unsent secret")
    hand.qtbot.waitUntil(lambda: hand.desktop.services.context_meter.measured.draft > 0, timeout=WAIT_MS)
    answers: list[object] = []
    hand.session.ask(lambda source: source.count("unsent secret"), answers.append)
    assert answers == [None]
    assert len(hand.echo_server.server.asked) == asked
    hand.click("Allow servers")
    hand.session.ask(lambda source: source.count("two words"), answers.append)
    hand.qtbot.waitUntil(lambda: answers == [None, 2], timeout=WAIT_MS)


def test_forks_and_kept_temporary_chats_and_exports_stay_pinned(hand):
    hand.load()
    hand.session.new_temporary()
    pin(hand)
    hand.say("keep this")
    hand.session.keep_temporary()
    assert hand.session.local_only
    hand.session.fork(hand.items()[-1].id)
    assert hand.session.local_only
    record = read_whole(hand.session.stores.database, hand.session.conversation)
    assert plain(record)["local_only"] is True
    hand.click("Allow servers")
    free = read_whole(hand.session.stores.database, hand.session.conversation)
    assert "local_only" not in plain(free)


@pytest.mark.slow
def test_files_are_not_counted_by_a_server_before_they_are_sent(hand):
    provider = hand.add(counts_tokens=True)
    hand.echo_server.server.routes["/tokenize"] = hand.echo_server.tokenize
    (hand.folder / "secret.txt").write_text("a secret in a file")
    hand.load()
    pin(hand)
    attachments = hand.desktop.services.composer.attachments
    mine = hand.session.conversation
    attachments.read([hand.folder / "secret.txt"], mine)
    hand.qtbot.waitUntil(lambda: any(held.exact for held in attachments.held(mine)), timeout=WAIT_MS)
    hand.session.submit("kept here")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=WAIT_MS)
    hand.session.new_conversation()
    assert hand.session.conversation != mine
    hand.use(provider)
    done: list[object] = []
    hand.session.ask(lambda source: source.count("two words"), done.append)  # after all that was asked before
    hand.qtbot.waitUntil(lambda: done == [2], timeout=WAIT_MS)
    sent = "".join(str(asked.body) for asked in hand.echo_server.server.asked)
    assert "two words" in sent
    assert "secret" not in sent
    assert [held.exact for held in attachments.held(mine)] == [False]
