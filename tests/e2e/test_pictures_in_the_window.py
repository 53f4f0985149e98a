"""Pictures in the whole window, with a tiny model that reads them: attached, counted, answered, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.app import EngineApi
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from tests.desktop.hand import Hand
from tests.desktop.picture_files import drawn, saved
from tests.engine.vision.tiny.families import FAMILIES
from tests.tiny import TINY, write_folder

LOAD_MS = 240_000  # the first start compiles the kernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    FAMILIES["idefics3"](folder / "eyes")
    write_folder(folder / "blind", TINY)
    return folder


@pytest.fixture
def hand(qtbot, qapp, tmp_path, models):
    found = Hand(qtbot, tmp_path, api=EngineApi())
    found.session.set_settings(LoadSettings(backend="cpu", threads=2))
    found.session.set_settings(CacheSettings(context_length=1024))
    found.window.model_controller.open(models / "eyes")
    found.wait_for("idle", timeout=LOAD_MS)
    found.session.set_settings(SamplerSettings(temperature=1.0))
    found.session.set_settings(StopSettings(max_tokens=12, min_tokens=12))
    yield found
    found.close()


def attach(hand: Hand, name: str, width: int, height: int) -> None:
    (hand.folder / name).write_bytes(saved(drawn(width, height)))
    files = hand.window.composer_controller.files
    before = len(files.held())
    hand.window.files.open([hand.folder / name])
    hand.qtbot.waitUntil(lambda: len(files.held()) == before + 1, timeout=LOAD_MS)
    hand.qtbot.waitUntil(lambda: all(held.exact for held in files.held()), timeout=LOAD_MS)


def answer(hand: Hand, text: str) -> None:
    before = len(hand.items())
    hand.type(text)
    QTest.keyClick(hand.box, Qt.Key.Key_Return)
    answered(hand, before + 2)


def answered(hand: Hand, messages: int) -> None:
    """Wait until the chat has so many messages, and no reply is being written."""
    hand.qtbot.waitUntil(
        lambda: (
            hand.session.state == "idle" and not hand.session.replying_in and len(hand.items()) == messages
        ),
        timeout=LOAD_MS,
    )


def replayed(hand: Hand) -> tuple[str, str]:
    """The prompt in the details of the last reply, and what its replay says."""
    hand.window.reply_details.open_last()
    dialog = hand.window.reply_details.dialog
    hand.click("Replay", dialog)
    hand.qtbot.waitUntil(lambda: dialog.replay.text() == "Replay", timeout=LOAD_MS)
    found = dialog.prompt.toPlainText(), dialog.words.text()
    dialog.close()
    return found


def test_a_chat_about_pictures_is_answered_and_replayed(hand: Hand, models: Path) -> None:
    attach(hand, "boat.png", 60, 40)
    attach(hand, "beach.png", 80, 20)
    counts = [held.tokens for held in hand.window.composer_controller.files.held()]
    assert counts[0] != counts[1]
    answer(hand, "Which is older?")
    first = hand.items()[-1]
    assert first.footer
    prompt, words = replayed(hand)
    assert prompt.count("<picture, ") > 2
    assert "boat.png" not in prompt
    assert words == "Identical: 12 tokens."
    answer(hand, "And now?")
    assert "12 tokens" in replayed(hand)[1]
    # the cache and the encoder are gone, the pictures are in the store
    hand.restart()
    hand.window.model_controller.open(models / "eyes")
    hand.wait_for("idle", timeout=LOAD_MS)
    assert len(hand.items()) == 4
    assert replayed(hand)[1] == "Identical: 12 tokens."
    answer(hand, "And then?")
    assert replayed(hand)[0].count("<picture, ") == prompt.count("<picture, ")


def test_another_model_reads_the_names(hand: Hand, models: Path) -> None:
    attach(hand, "boat.png", 60, 40)
    answer(hand, "What is it?")
    hand.window.model_controller.open(models / "blind")
    hand.wait_for("idle", timeout=LOAD_MS)
    hand.type("And now?")
    QTest.keyClick(hand.box, Qt.Key.Key_Return)
    words = hand.window.composer_controller.offers.words.text()
    assert words.startswith("1 picture of this chat is not sent; the model reads its name")
    hand.click("Send without pictures")
    answered(hand, 4)
    assert "[picture: boat.png]" in replayed(hand)[0]
