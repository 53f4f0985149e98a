"""Changing the model: the header names it, a running reply is asked about, a notebook waits for it."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox

from tests.desktop.hand import Hand

Key, Modifier = Qt.Key, Qt.KeyboardModifier
pytestmark = pytest.mark.gui


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    for name in ("other.gguf", "bad.gguf"):
        (tmp_path / name).touch()
    yield found
    found.close()


def box(hand: Hand) -> QMessageBox | None:
    shown = [each for each in hand.window.findChildren(QMessageBox, "endsReply") if each.isVisible()]
    return shown[0] if shown else None


def begin_reply(hand: Hand) -> None:
    hand.echo.chat.hold = threading.Event()
    hand.type("Hello")
    hand.press(Key.Key_Return)
    hand.wait_for("prefill")


def test_the_header_names_the_model_that_is_being_loaded(hand) -> None:
    picker = hand.window.picker
    assert picker.text().startswith("echo ")
    hand.echo.load_delay_s = 5.0
    hand.window.model_controller.open(hand.folder / "other.gguf")
    hand.wait_for("loading")
    assert picker.text().startswith("Loading other…")
    assert picker.accessibleName() == "Loading model: other"
    hand.session.stop()
    hand.wait_for("idle", "no_model")
    model = hand.session.model
    assert picker.text().startswith(model.name if model is not None else "Choose a model")
    hand.echo.load_delay_s = 0.0
    hand.window.model_controller.open(hand.folder / "other.gguf")
    hand.qtbot.waitUntil(lambda: picker.text().startswith("other "))
    hand.window.model_controller.open(hand.folder / "bad.gguf")
    hand.wait_for("loading")
    assert "bad" in picker.text()
    hand.wait_for("idle")
    assert picker.text().startswith("other ")


def load_in_library(hand: Hand, path: str) -> None:
    hand.window.model_controller.open_library()
    assert hand.window.model_controller.library is not None
    hand.window.model_controller.library.local.load_requested.emit(path)
    hand.window.model_controller.library.hide()  # visible, it would measure the memory's speed later


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("way", ["open", "menu", "unload", "reload", "library"])
def test_a_reply_is_not_ended_without_a_question(hand, way: str) -> None:
    begin_reply(hand)
    other = str(hand.folder / "other.gguf")
    ways = {
        "open": lambda: hand.window.model_controller.open(hand.folder / "other.gguf"),
        "menu": lambda: hand.window.picker.chosen.emit(other),
        "unload": lambda: hand.window.actions_by_name["unload"].trigger(),
        "reload": lambda: hand.window.actions_by_name["reload"].trigger(),
        "library": lambda: load_in_library(hand, other),
    }
    ways[way]()
    assert hand.session.state == "prefill"
    found = box(hand)
    assert found is not None
    hand.click("Cancel", found)
    hand.qtbot.waitUntil(lambda: box(hand) is None)
    assert hand.session.state == "prefill"
    ways[way]()
    hand.click("Stop and ", box(hand))
    hand.wait_for("idle", "no_model")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    expected = {"unload": "", "reload": "echo"}.get(way, "other")
    hand.qtbot.waitUntil(lambda: (hand.session.model.name if hand.session.model else "") == expected)
    words = "unload the model" if way == "unload" else "load a model"
    assert hand.items()[-1].footer.endswith(f"stopped to {words}")


def test_the_question_is_moot_when_the_reply_is_over(hand) -> None:
    begin_reply(hand)
    hand.window.model_controller.open(hand.folder / "other.gguf")
    hand.echo.chat.hold.set()
    hand.wait_for("idle")
    hand.click("Stop and ", box(hand))
    hand.qtbot.waitUntil(lambda: hand.session.model is not None and hand.session.model.name == "other")
    assert "stopped to" not in hand.items()[-1].footer


# -- a notebook


@pytest.fixture
def notebook(hand):
    hand.press(Key.Key_K, Modifier.ControlModifier | Modifier.ShiftModifier)
    hand.window.notebooks.open_page.editor.insertPlainText("Once upon")
    hand.echo.load_hold = threading.Event()
    hand.echo.chat.reply = " a time"
    return hand.window.notebooks.open_page


def test_a_notebook_continues_when_the_model_is_loaded(hand, notebook) -> None:
    hand.window.model_controller.open(hand.folder / "other.gguf")
    hand.wait_for("loading")
    hand.press(Key.Key_Return, Modifier.ControlModifier)
    assert "still loading" in notebook.bar.note.text()
    assert notebook.bar.stop_button.isVisible()
    assert not hand.window.chat.banner.isVisible()
    hand.echo.load_hold.set()
    hand.qtbot.waitUntil(lambda: notebook.editor.text() == "Once upon a time")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("act", ["stop", "escape", "leave", "fail"])
def test_waiting_for_the_model_ends(hand, notebook, act: str) -> None:
    name = "bad.gguf" if act == "fail" else "other.gguf"
    hand.window.model_controller.open(hand.folder / name)
    hand.wait_for("loading")
    hand.press(Key.Key_Return, Modifier.ControlModifier)
    if act == "stop":
        hand.click("Stop", notebook.bar)
        assert hand.session.state == "loading"
    elif act == "escape":
        hand.press(Key.Key_Escape)
    elif act == "leave":
        hand.session.new_conversation()
    hand.echo.load_hold.set()
    hand.wait_for("idle", "no_model")
    assert not hand.session.replying_in
    assert act == "leave" or "still loading" not in notebook.bar.note.text()
    assert notebook.editor.text() == "Once upon"


def test_writing_again_says_why_it_cannot(hand, notebook) -> None:
    hand.press(Key.Key_Return, Modifier.ControlModifier)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not notebook.editor.streaming)
    assert notebook.editor.text() == "Once upon a time"
    hand.window.model_controller.open(hand.folder / "other.gguf")
    hand.wait_for("loading")
    hand.press(Key.Key_R, Modifier.ControlModifier)
    banner = hand.window.chat.banner
    assert banner.isVisible()
    assert banner.text.text() == "The model is still loading. Try again when it is ready. Your text is kept."
    assert notebook.editor.text() == "Once upon a time"
    hand.echo.load_hold.set()
    hand.wait_for("idle")
