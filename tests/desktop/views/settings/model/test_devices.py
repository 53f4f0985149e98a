"""The choice of a device: in the Model pane and in the model's menu, with no GPU, one and two."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from desktop.app import EngineApi
from desktop.items.models.devices import device_choices, device_fields, device_note, device_value
from engine.backends.choice import Gpu, Usable
from engine.core import ModelInfo
from engine.errors import EngineError
from engine.settings import CacheSettings, LoadSettings
from tests.desktop.fakes import ECHO_INFO, EchoApi
from tests.desktop.hand import Hand, no_fetch

pytestmark = pytest.mark.gui
GB = 10**9
NONE = Usable((), "No NVIDIA driver was found on this machine.")
ONE = Usable((Gpu(0, "NVIDIA H200", 150 * GB, 139 * GB),))
TWO = Usable((Gpu(0, "NVIDIA L4", 24 * GB, 20 * GB), Gpu(1, "NVIDIA L4", 24 * GB, 23 * GB)))


def test_words() -> None:
    assert [words for _, words in device_choices(NONE)] == [
        "Automatic",
        "Processor (CPU)",
        "Reference (exact but slow)",
    ]
    assert dict(device_choices(ONE))["cuda:0"] == "NVIDIA H200"
    two = dict(device_choices(TWO))
    assert (two["cuda:0"], two["cuda:1"], two["cuda:0,1"]) == (
        "NVIDIA L4 (GPU 0)",
        "NVIDIA L4 (GPU 1)",
        "All GPUs",
    )
    assert dict(device_choices(ONE, "cuda:3"))["cuda:3"] == "GPU 3 (not found)"
    assert dict(device_choices(None, "cuda:3"))["cuda:3"] == "GPU 3"
    assert dict(device_choices(TWO, "cuda:1,0"))["cuda:1,0"] == "GPUs 1, 0"
    assert dict(device_choices(ONE, "cuda"))["cuda"] == "Any GPU"
    for value in ("auto", "cpu", "cuda", "cuda:1", "cuda:1,0", "reference"):
        backend, gpus = device_fields(value)
        assert device_value(LoadSettings(backend=backend, gpus=gpus)) == value
    assert device_value(LoadSettings(backend="auto", gpus="1")) == "auto"
    assert device_note(NONE, "auto") == (
        "No NVIDIA driver was found on this machine. Models run on the processor.",
        False,
    )
    assert device_note(ONE, "auto") == ("NVIDIA H200: 139 GB of 150 GB free.", False)
    assert (
        device_note(TWO, "auto")[0]
        == "NVIDIA L4 (GPU 0): 20 GB of 24 GB free, NVIDIA L4 (GPU 1): 23 GB of 24 GB free."
    )
    assert device_note(ONE, "cuda:3")[1]
    assert device_note(NONE, "cuda")[1]


@pytest.fixture
def hand(qtbot, tmp_path):
    hands = []

    def make(find) -> Hand:
        echo = EchoApi()
        hands.append(
            Hand(
                qtbot,
                tmp_path,
                echo,
                api=EngineApi(echo.open_chat, echo.describe, no_fetch, find_devices=find),
            )
        )
        return hands[-1]

    yield make
    for each in hands:
        each.close()


def items(hand: Hand) -> list[str]:
    combo = hand.window.model_settings.device.combo
    return [combo.itemText(row) for row in range(combo.count())]


def unfold(hand: Hand) -> None:
    hand.window.inspector.group(LoadSettings).open()
    hand.window.inspector.setVisible(True)
    hand.qtbot.waitUntil(lambda: hand.window.model_settings.device.isVisible())


def test_no_gpu_says_why(hand) -> None:
    one = hand(lambda: NONE)
    unfold(one)
    note = one.window.model_settings.device.row.note
    one.qtbot.waitUntil(lambda: "No NVIDIA driver" in note.text())
    assert note.text() == "No NVIDIA driver was found on this machine. Models run on the processor."
    assert len(items(one)) == 3


def test_the_window_does_not_wait_for_a_slow_driver(hand) -> None:
    answer = threading.Event()

    def slow() -> Usable:
        answer.wait(10)
        return TWO

    one = hand(slow)
    unfold(one)
    assert one.window.model_settings.device.row.note.text() == "Looking for GPUs…"
    assert len(items(one)) == 3
    answer.set()
    one.qtbot.waitUntil(lambda: "All GPUs" in items(one))


def test_a_gpu_is_chosen_in_the_pane(hand) -> None:
    one = hand(lambda: TWO)
    unfold(one)
    one.qtbot.waitUntil(lambda: "All GPUs" in items(one))
    pane = one.window.model_settings.device
    pane.combo.setFocus()
    for _ in range(3):
        QTest.keyClick(pane.combo, Qt.Key.Key_Down)
    settings = one.session.settings(LoadSettings)
    assert (settings.backend, settings.gpus) == ("cuda", "1")
    assert pane.combo.currentText() == "NVIDIA L4 (GPU 1)"
    pane.row.reset.click()
    assert one.session.settings(LoadSettings) == LoadSettings()
    assert pane.combo.currentText() == "Automatic"


def test_the_menu_moves_the_loaded_model_at_once(hand) -> None:
    one = hand(lambda: ONE)
    one.load()
    reported: list[str] = []
    one.session.notice.connect(lambda sentence, _level: reported.append(sentence))
    picker = one.window.picker
    one.qtbot.waitUntil(lambda: "NVIDIA H200" in [action.text() for action in picker._devices.actions()])
    chosen = next(action for action in picker._devices.actions() if action.text() == "NVIDIA H200")
    assert not chosen.isChecked()
    chosen.trigger()
    one.wait_for("loading")
    one.wait_for("idle")
    assert one.session.loaded_with[0] == LoadSettings(backend="cuda", gpus="0")
    assert [action.isChecked() for action in picker._devices.actions()] == [False, False, True, False]
    assert reported == []  # nothing is left to be done
    one.session.set_settings(LoadSettings(backend="cpu"))
    assert reported == ["This takes effect when the model is reloaded."]


def test_the_menu_tries_a_model_again_whose_device_failed(hand) -> None:
    one = hand(lambda: NONE)
    one.echo.fail_with = EngineError("A GPU was chosen, but none can be used.")
    one.session.set_settings(LoadSettings(backend="cuda"))
    path = one.folder / "echo.gguf"
    path.touch()
    one.window.model_controller.open(path)
    one.wait_for("loading")
    one.wait_for("no_model")
    one.echo.fail_with = None
    picker = one.window.picker
    next(action for action in picker._devices.actions() if action.text() == "Processor (CPU)").trigger()
    one.wait_for("idle")
    assert one.session.loaded_with[0] == LoadSettings(backend="cpu")
    one.session.unload_model()
    one.wait_for("no_model")
    next(action for action in picker._devices.actions() if action.text() == "Automatic").trigger()
    one.qtbot.wait(50)
    assert (one.session.state, one.session.settings(LoadSettings)) == ("no_model", LoadSettings())


def test_a_model_that_runs_otherwise_than_expected_says_so(hand, tmp_path) -> None:
    """A sentence that stays, and a report that its Copy button copies."""
    one = hand(lambda: ONE)
    words = "m.gguf runs on the processor (CPU), because NVIDIA H200 could not be used: 1 GB is free."
    one.echo.describe = lambda path: replace(
        ECHO_INFO, path=str(path), notice=words, report="linear q4k: wrong"
    )
    one.session.open_model("/models/m.gguf")
    one.wait_for("idle")
    banner = one.window.chat.banner
    assert banner.isVisible()
    assert (banner.text.text(), banner.property("level")) == (words, "warning")
    banner.copy.click()
    copied = QGuiApplication.clipboard().text()
    assert words in copied
    assert "linear q4k: wrong" in copied


INFO = ModelInfo(
    "/m.gguf", "m", "llama", "gguf", 8 * GB, 8.0, 8 * GB, 32, 8192, 32000, 1, (2,), True,
    kv_shapes=((8, 128),) * 32, resident_bytes=8 * GB,
)  # fmt: skip


def test_the_memory_line_follows_the_device(qtbot) -> None:
    from desktop.views.settings.model.memory_line import MemoryLine

    line = MemoryLine()
    qtbot.addWidget(line)
    line.show()
    line.show_estimate(INFO, CacheSettings(), LoadSettings(), ONE)
    assert "130 GB free on NVIDIA H200" in line.label.text()  # the weights have yet to go there
    line.show_estimate(INFO, CacheSettings(), LoadSettings(backend="cuda", gpus="0,1"), TWO)
    assert "free on GPU 0 and GPU 1" in line.label.text()
    line.show_estimate(INFO, CacheSettings(), LoadSettings(backend="cpu"), ONE)
    assert " on " not in line.label.text()
    line.show_estimate(INFO, CacheSettings(), LoadSettings(backend="cuda", gpus="5"), ONE)
    assert line.label.property("tone") == "danger"
