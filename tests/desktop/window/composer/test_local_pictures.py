"""Pictures for a model on this computer that reads them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine.core import ModelInfo
from tests.conftest import WAIT_MS
from tests.desktop.fakes import EchoApi
from tests.desktop.hand import Hand
from tests.desktop.picture_files import drawn, saved

pytestmark = pytest.mark.gui


class SeeingApi(EchoApi):
    """Its models read pictures, unless they are named "blind" or "lacking", which lack a file for it."""

    def describe(self, path: Path) -> ModelInfo:
        lacks = path.stem == "lacking"
        sees = not lacks and path.stem != "blind"
        info = replace(super().describe(path), reads_pictures=sees, lacks_vision_file=lacks)
        if (file := path.parent / "mmproj-echo.gguf").is_file():
            info = replace(info, vision_file=str(file), vision_file_bytes=file.stat().st_size)
        return info


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path, SeeingApi())
    found.load()
    yield found
    found.close()


def attach(hand: Hand) -> None:
    (hand.folder / "boat.png").write_bytes(saved(drawn(640, 480)))
    files = hand.window.composer_controller.files
    hand.window.files.open([hand.folder / "boat.png"])
    hand.qtbot.waitUntil(lambda: len(files.held()) == 1, timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: files.held()[0].exact, timeout=WAIT_MS)


def say(hand: Hand, text: str) -> None:
    """Send, and wait for the reply."""
    before = len(hand.items())
    hand.type(text)
    QTest.keyClick(hand.box, Qt.Key.Key_Return)
    answered(hand, before + 2)


def answered(hand: Hand, messages: int) -> None:
    hand.qtbot.waitUntil(lambda: len(hand.items()) == messages, timeout=WAIT_MS)
    hand.qtbot.waitUntil(
        lambda: hand.session.state == "idle" and not hand.session.replying_in, timeout=WAIT_MS
    )


def test_pictures_are_attached_counted_and_sent(hand: Hand) -> None:
    attach(hand)
    say(hand, "What is it?")
    (message,) = hand.echo.chat.requests[-1].messages
    (picture,) = message.pictures
    assert (picture.name, picture.width, picture.height) == ("boat.png", 640, 480)
    assert picture.data == saved(drawn(640, 480))
    assert message.content == "[picture: boat.png]\n\nWhat is it?"
    reply = hand.items()[-1].id
    assert [each.key for each in hand.desktop.services.provenance.of(reply).pictures] == [picture.key]
    say(hand, "And now?")
    assert hand.echo.chat.requests[-1].messages[0] == message


def test_a_model_that_reads_text_only_gets_the_names(hand: Hand) -> None:
    attach(hand)
    say(hand, "What is it?")
    hand.load("blind.gguf")
    hand.type("And now?")
    QTest.keyClick(hand.box, Qt.Key.Key_Return)
    offers = hand.window.composer_controller.offers
    assert "blind reads text only. For pictures, choose a model with a vision encoder" in offers.words.text()
    hand.click("Send without pictures")
    answered(hand, 4)
    first = hand.echo.chat.requests[-1].messages[0]
    assert [picture.data for picture in first.pictures] == [b""]
    hand.load()
    say(hand, "And again?")
    assert hand.echo.chat.requests[-1].messages[0].pictures[0].data


def test_a_model_without_its_mmproj_file_says_so(hand: Hand) -> None:
    hand.load("lacking.gguf")
    (hand.folder / "boat.png").write_bytes(saved(drawn(64, 48)))
    hand.window.files.open([hand.folder / "boat.png"])
    words = "lacking reads pictures only with its vision encoder, a file whose name begins with “mmproj”"
    hand.qtbot.waitUntil(lambda: words in hand.window.chat.banner.text.text(), timeout=WAIT_MS)
    assert not hand.window.composer_controller.files.held()


def test_the_details_of_a_reply_name_the_vision_encoders_file(hand: Hand) -> None:
    (hand.folder / "echo.gguf").write_bytes(b"weights")
    file = hand.folder / "mmproj-echo.gguf"
    file.write_bytes(b"eyes")
    hand.session.reload_model()
    hand.wait_for("idle")
    say(hand, "Before any picture")
    attach(hand)
    say(hand, "What is it?")
    before, reply = (hand.desktop.services.provenance.of(hand.items()[at].id) for at in (1, -1))
    assert (before.vision_path, reply.vision_path, reply.vision["size"]) == ("", str(file), 4)
    hand.window.reply_details.open_last()
    dialog = hand.window.reply_details.dialog
    words = f"mmproj-echo.gguf, 4 bytes\nSHA-256: {hashlib.sha256(b'eyes').hexdigest()}"
    value = dialog._values["Vision encoder"]
    hand.qtbot.waitUntil(lambda: value.text().replace("\u200b", "") == words, timeout=WAIT_MS)
    assert dialog.words.text().startswith("The reply can be generated again")
    dialog.close()
    file.write_bytes(b"others")
    hand.session.reload_model()
    hand.wait_for("idle")
    hand.window.reply_details.open_last()
    said = "The replay may differ. The loaded model's vision encoder differs from “mmproj-echo.gguf”"
    assert hand.window.reply_details.dialog.words.text().startswith(said)
    hand.window.reply_details.dialog.close()
