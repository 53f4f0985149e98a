"""Out of memory, a lost device, a bug: the banner explains it and offers to load again; chat, text and
settings stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from engine.errors import BadCheckpoint, ContextTooLong, DeviceLost, NotEnoughMemory
from engine.settings import SamplerSettings
from tests.desktop.fakes import EchoChat
from tests.desktop.hand import Hand

RELOAD = "Reload the model"


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


@pytest.fixture
def hand(qtbot, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def banner_text(hand: Hand) -> str:
    banner = hand.window.chat.banner
    return banner.text.text() if banner.isVisible() else ""


def offered(hand: Hand, words: str = RELOAD) -> bool:
    banner = hand.window.chat.banner
    return banner.isVisible() and banner.offer.isVisible() and banner.offer.text() == words


TROUBLES = [
    (MemoryError(), "not enough memory to continue", True),
    (OutOfMemoryError("CUDA out of memory"), "not enough memory to continue", True),
    (
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory"),
        "not enough memory to continue",
        True,
    ),
    (
        NotEnoughMemory("The cache needs 3 GB, but 1 GB is free: choose a shorter context."),
        "The cache needs 3 GB",
        False,
    ),
    (DeviceLost("The GPU stopped working: load the model again."), "The GPU stopped working", False),
    (ZeroDivisionError("division by zero"), "Something went wrong in Inglenook (ZeroDivisionError)", True),
]


def test_each_failure_of_a_reply_is_reported_and_the_button_recovers(hand) -> None:
    settings = SamplerSettings(temperature=0.3)
    hand.session.set_settings(settings)
    for number, (error, words, has_trace) in enumerate(TROUBLES):
        hand.echo.chat.error, hand.echo.chat.error_after = error, 2
        said = f"the text of message {number} stays"
        hand.type(said)
        hand.press(Qt.Key.Key_Return)
        hand.qtbot.waitUntil(lambda: not hand.session.replying_in and offered(hand))
        assert words in banner_text(hand)
        assert hand.texts()[-2:] == [said, "the text"]  # what was said before the trouble stays
        assert hand.session.stores.kept.message(hand.items()[-1].id).state == "failed"
        hand.click("Copy details")
        copied = QGuiApplication.clipboard().text()
        assert ("Traceback" in copied) == has_trace
        assert words in copied
        assert said not in copied
        hand.echo.chat.error = None
        opened = len(hand.echo.opened)
        hand.click(RELOAD)
        hand.qtbot.waitUntil(
            lambda opened=opened: hand.session.state == "idle" and len(hand.echo.opened) == opened + 1
        )
        assert hand.session.model is not None
        assert banner_text(hand) == ""
        assert hand.session.settings(SamplerSettings) == settings
    hand.say("and on it goes")
    assert hand.texts()[-1] == "and on it goes"
    hand.restart()
    kept = [text for text in hand.texts() if text.startswith("the text of")]
    assert kept == [f"the text of message {number} stays" for number in range(len(TROUBLES))]


def a_lost_device_takes_the_model_and_leaves_what_is_written(hand: Hand) -> None:
    hand.echo.chat.error = DeviceLost("The GPU stopped working: load the model again.")
    hand.type("hello there")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.session.model is None and offered(hand))
    hand.type("a draft in the box")
    hand.echo.chat.error = None
    hand.window.chat.banner.offer.setFocus()
    hand.press(Qt.Key.Key_Space)  # by keyboard
    hand.wait_for("idle")
    assert hand.window.chat.composer.text() == "a draft in the box"
    assert hand.session.model is not None


def a_load_that_wants_too_much_can_be_tried_again(hand: Hand) -> None:
    for error in (NotEnoughMemory("It needs 9 GB, but 1 GB is free."), MemoryError(), KeyError("wrong")):
        hand.echo.fail_with = error
        hand.window.model_controller.open(hand.folder / "echo.gguf")
        hand.qtbot.waitUntil(lambda: hand.session.state in ("idle", "no_model") and offered(hand))
        assert hand.session.model is None
        hand.echo.fail_with = None
        hand.click(RELOAD)
        hand.wait_for("idle")
        assert hand.session.model is not None


def what_loading_again_cannot_mend_offers_another_model_or_nothing(hand: Hand) -> None:
    hand.echo.fail_with = BadCheckpoint("echo.gguf lacks tensors.")
    hand.window.model_controller.open(hand.folder / "echo.gguf")
    hand.qtbot.waitUntil(lambda: "lacks tensors" in banner_text(hand))
    assert hand.session.model is None
    assert offered(hand, "Choose a model")
    asked: list[None] = []
    hand.window.chat.model_requested.connect(lambda: asked.append(None))
    hand.click("Choose a model")
    assert asked
    hand.window.model_controller.open(hand.folder / "echo.gguf")
    hand.qtbot.waitUntil(lambda: offered(hand, "Choose a model"))
    hand.echo.fail_with = None
    hand.load()
    assert not offered(hand, "Choose a model"), "a model is there"
    hand.echo.chat = EchoChat(error=ContextTooLong("The prompt is too long."))
    hand.load()
    hand.window.chat.banner.hide()
    hand.say("hello")
    assert not offered(hand)
    assert hand.session.model is not None


def test_the_model_is_gone_and_the_text_is_kept(hand) -> None:
    a_lost_device_takes_the_model_and_leaves_what_is_written(hand)
    a_load_that_wants_too_much_can_be_tried_again(hand)
    what_loading_again_cannot_mend_offers_another_model_or_nothing(hand)
