"""Chats with several named participants: the cast, whose turn it is, names in rows, files and requests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.store.conversations.bulk_insert import RecordWriter, read_whole
from desktop.store.conversations.participants import Author, Cast, Participant
from desktop.store.conversations.personas import Persona
from desktop.store.database.database import Database
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.own import plain
from desktop.store.transfer.importers.programs.own import Own
from desktop.views.transcript.row_widgets.small import HeaderRow
from engine.settings import SamplerSettings
from tests.desktop.hand import Hand


@pytest.fixture
def hand(qtbot, tmp_path) -> Iterator[Hand]:
    made = Hand(qtbot, tmp_path)
    yield made
    made.close()


def authors(hand: Hand) -> list[str]:
    return [item.author for item in hand.items()]


def asked(hand: Hand) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in hand.echo.chat.requests[-1].messages]


def choose(hand: Hand, command: str) -> None:
    """A slash command with its argument, by keyboard."""
    hand.type(command)
    hand.press(Qt.Key.Key_Return)


def test_a_cast_is_made_speaks_in_turn_and_survives_files(hand, qtbot, tmp_path) -> None:
    hand.load()
    window, session, chat = hand.window, hand.session, hand.echo.chat
    chat.reply = "x Ada: Well said."  # its first word counts as the name that the reply is begun with
    bea = window.personas.service.save(Persona(0, "Bea", "🦊", "You are a baker.", "Creative"))
    bar = window.participants.bar
    assert bar.isHidden()

    window.actions_by_name["roles"].trigger()
    dialog = window.participants.dialog
    assert dialog.nothing.isVisible()
    assert not dialog.name.isVisible()
    dialog.add_other()
    QTest.keyClicks(dialog.name, "Ada")
    dialog.about.setFocus()
    QTest.keyClicks(dialog.about, "Loves numbers.")
    dialog.menu.aboutToShow.emit()
    dialog.menu.actions()[0].trigger()
    dialog.add_other()
    QTest.keyClicks(dialog.name, "bea")
    dialog._accept()
    assert "Two participants are named bea" in dialog.trouble.text()
    hand.click("Remove participant", dialog)
    hand.click("Move up", dialog)
    assert [dialog.list.item(row).text() for row in range(dialog.list.count())] == ["Bea", "Ada"]
    hand.click("Move down", dialog)
    QTest.keyClicks(dialog.own, "Cy, Di")
    dialog.automatic.setValue(1)
    dialog.buttons.button(dialog.buttons.StandardButton.Ok).click()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    assert session.cast == Cast(
        (Participant("Ada", "Loves numbers."), Participant("Bea", "", bea.id)), ("Cy", "Di"), "turn", 1
    )
    assert window.personas.picker.accessibleName() == "2 participants in this chat"
    assert bar.buttons[0].accessibleName() == "Let Ada reply, next to reply"

    hand.say("Hello")
    qtbot.waitUntil(
        lambda: authors(hand) == ["Cy", "Ada", "Bea"] and session.state == "idle" and not session.replying_in
    )
    assert hand.texts()[1] == "Well said."  # without the name, however it came
    first, second = ([(m.role, m.content) for m in request.messages] for request in chat.requests[-2:])
    assert first[1:] == [("user", "Cy: Hello"), ("assistant", "Ada: ")]
    assert first[0][1].endswith("Loves numbers.")
    assert second[1:] == [("user", "Cy: Hello"), ("user", "Ada: Well said."), ("assistant", "Bea: ")]
    assert second[0][1].endswith("You are a baker.")
    request = chat.requests[-1]
    assert request.continue_last
    assert {"\nAda:", "\nCy:"} <= set(request.stops.stop_strings)
    assert request.sampler.temperature != chat.requests[-2].sampler.temperature  # her preset, and not Ada's
    assert session.settings(SamplerSettings).temperature == chat.requests[-2].sampler.temperature
    trace = session.tokens(hand.items()[1].id)
    assert trace is not None
    assert hand.texts()[1].startswith(trace.text)
    assert len(trace) == 3

    qtbot.waitUntil(window.chat.transcript.settled)
    rows = window.chat.transcript.viewport().findChildren(HeaderRow)
    shown = [row.accessibleName() for row in rows if row.row is not None]
    assert sorted(shown) == ["Ada", "Bea", "Cy"]

    choose(hand, "/as Di")
    assert session.cast.user == "Di"
    assert bar.user.accessibleName() == "You write as Di"
    hand.type("And you, Bea?")
    hand.click("Let Bea reply")
    qtbot.waitUntil(
        lambda: (
            authors(hand)[3:] == ["Di", "Bea", "Ada"] and session.state == "idle" and not session.replying_in
        )
    )
    session.regenerate(hand.items()[-1].id)
    hand.wait_for("idle")
    qtbot.waitUntil(
        lambda: hand.items()[-1].variant_count == 2 and session.state == "idle" and not session.replying_in
    )
    last = hand.items()[5]
    assert (last.author, last.variant_index) == ("Ada", 1)
    session.continue_reply(hand.items()[-1].id)
    hand.wait_for("idle")
    qtbot.waitUntil(lambda: not session.replying_in)
    assert asked(hand)[-1] == ("assistant", f"{hand.items()[-1].author}: Well said.")
    session.edit(hand.items()[-1].id, "Edited", answer=False)
    assert hand.items()[-1].author == "Ada"

    kept = session.stores.kept
    record = read_whole(hand.desktop._database, session.conversation)
    assert [message.author for message in record.messages][:3] == ["Cy", "Ada", "Bea"]
    text = "".join(markdown([record]))
    assert "## Bea (" in text
    assert "## Di" in text
    other = Database(tmp_path / "other.sqlite3")
    again = Own().read(json.loads(json.dumps(plain(record))), lambda *words: pytest.fail(str(words)))
    number = RecordWriter(other).save(again).conversation_id
    copy = read_whole(other, number)
    assert copy.cast == record.cast
    assert [m.author for m in copy.messages] == [m.author for m in record.messages]
    assert {
        row[0] for row in other.execute("SELECT speaker_persona FROM messages WHERE speaker = 'Bea'")
    } == {1}
    other.close()

    before = [message.author for message in kept.path(session.conversation)]
    session.fork(hand.items()[-1].id)
    assert [message.author for message in kept.path(session.conversation)] == before
    assert before[2] == Author("Bea", bea.id)
    assert session.cast.automatic == 1
    assert not bar.isHidden()
    session.new_conversation()
    assert bar.isHidden()
    assert not session.participants
    hand.say("plain")
    assert asked(hand) == [("user", "plain")]


def test_by_hand_by_name_stop_and_temporary(hand, qtbot) -> None:
    hand.load()
    window, session, chat = hand.window, hand.session, hand.echo.chat
    window.actions_by_name["new_temporary"].trigger()
    cast = (Participant("Ada"), Participant("Bo"), Participant("Cleo"))
    session.set_cast(Cast(cast, turn="hand"))
    hand.say("Anybody?")
    assert (authors(hand), chat.requests) == ([""], [])
    assert window.participants.bar.title.text() == "Who replies?"
    choose(hand, "/next Bo")
    qtbot.waitUntil(
        lambda: authors(hand) == ["", "Bo"] and session.state == "idle" and not session.replying_in
    )
    assert asked(hand)[-2:] == [("user", "User: Anybody?"), ("assistant", "Bo: ")]

    session.set_cast(Cast(cast, turn="named", automatic=50))
    assert window.participants.bar.buttons[2].property("next")  # In turn, because nobody is named.
    chat.reply, chat.delay_s = "Long " * 4000, 0.005
    hand.type("Ada and Cleo?")
    hand.press(Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: session.state == "answering")
    assert authors(hand)[-1] == "Cleo"
    assert not window.participants.bar.buttons[0].isEnabled()
    hand.press(Qt.Key.Key_Escape)
    hand.wait_for("idle")
    QTest.qWait(60)
    assert session.state == "idle"
    assert authors(hand)[-1] == "Cleo"
    assert len(hand.items()) == 4
    temporary = session.conversation
    assert session.keep_temporary()
    assert session.conversation != temporary
    assert authors(hand) == ["", "Bo", "", "Cleo"]
    assert [participant.name for participant in session.participants] == ["Ada", "Bo", "Cleo"]
    messages, ids = session.next_messages("draft")
    assert [message.content.split(":")[0] for message in messages[1:]] == [
        "User",
        "Bo",
        "User",
        "Cleo",
        "User",
    ]
    assert ids == [0, *(item.id for item in hand.items())]


@pytest.mark.slow
def test_a_plain_reply_keeps_the_persona_it_is_from(hand) -> None:
    hand.load()
    service, session = hand.window.personas.service, hand.session
    ada, bea = (service.save(Persona(0, name)) for name in ("Ada", "Bea"))
    for persona in (ada, bea):
        session.choose_persona(persona.id)
        hand.say("Hi")
    session.choose_persona(None)
    hand.say("Hi")
    service.delete(ada)
    assert authors(hand) == ["", "Ada", "", "Bea", "", ""]
    hand.restart()
    assert authors(hand) == ["", "Ada", "", "Bea", "", ""]
