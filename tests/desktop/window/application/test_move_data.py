"""File > Move data…: the dialog, the closing of the window, the move, and the greeting in the new folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QMessageBox, QProgressDialog

from desktop.services.system.single_instance import take_lock
from desktop.store import relocation
from desktop.store.database import data_folder as data_folder_module
from desktop.store.database.data_folder import data_folder
from desktop.store.database.database import FILE_NAME
from desktop.views.application import move_progress
from desktop.views.application.move_dialog import MoveDialog
from desktop.views.application.move_progress import move_and_restart, move_with_progress
from desktop.views.dialogs.message_box import MessageBox
from engine.platform import folders
from tests.desktop.hand import Hand


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("INGLENOOK_DATA", raising=False)
    for module in (folders, data_folder_module, relocation):
        monkeypatch.setattr(module, "usual_data_dir", lambda: tmp_path / "usual")
    (tmp_path / "usual").mkdir()
    return tmp_path / "usual"


@pytest.fixture
def hand(qtbot, qapp, usual: Path) -> Iterator[Hand]:
    hand = Hand(qtbot, usual)
    yield hand
    hand.close()


def dialog_of(hand: Hand) -> MoveDialog:
    hand.window.actions_by_name["move_data"].trigger()
    dialog = hand.window.data_folder.move_dialog
    assert dialog is not None
    return dialog


def test_from_the_menu_to_the_new_folder_and_the_old_copy_deleted(
    hand, qtbot, qapp, usual, monkeypatch
) -> None:
    target, restarted = usual.with_name("other"), []
    monkeypatch.setattr(move_progress, "relaunch", lambda: restarted.append(data_folder()) or True)
    hand.load()
    hand.say("hello")
    dialog = dialog_of(hand)
    assert str(usual) in " ".join(label.text() for label in dialog.findChildren(type(dialog.trouble)))
    assert not dialog.delete.isVisible()
    dialog.offer(usual / "inside")
    assert "inside the data folder" in dialog.trouble.text()
    assert dialog.isVisible()
    dialog.offer(target)
    assert not dialog.trouble.isVisible()
    hand.click("Move and restart", dialog)
    qtbot.waitUntil(lambda: hand.desktop.ended)
    assert hand.window.data_folder.move_if_asked(qapp) == 0
    assert restarted == [target]
    hand.close()

    hand.folder = target
    hand.open_window()
    banner = hand.window.chat.banner
    qtbot.waitUntil(banner.isVisible)
    assert f"Your data is now in {target}." in banner.text.text()
    assert hand.texts()[0] == "hello"
    hand.click("Delete the old copy…")
    dialog = hand.window.data_folder.move_dialog
    assert dialog is not None
    assert str(usual) in " ".join(label.text() for label in dialog.findChildren(type(dialog.trouble)))
    hand.click("Delete the old copy…", dialog)
    hand.click("Delete", dialog.findChild(QMessageBox))
    qtbot.waitUntil(lambda: not (usual / FILE_NAME).exists())
    assert (target / FILE_NAME).exists()
    assert hand.window.data_folder.move_dialog is None


def test_a_window_that_stays_open_moves_nothing(hand, monkeypatch, usual, qapp) -> None:
    monkeypatch.setattr(hand.window.close_guard, "may_close", lambda: False)
    dialog = dialog_of(hand)
    dialog.offer(usual.with_name("other"))
    hand.click("Move and restart", dialog)
    assert hand.window.isVisible()
    assert hand.window.data_folder.move_if_asked(qapp) == 0
    assert data_folder() == usual
    monkeypatch.undo()


def test_a_chosen_folder_is_not_moved_from_here(hand, monkeypatch, usual) -> None:
    monkeypatch.setenv("INGLENOOK_DATA", str(usual))
    dialog = dialog_of(hand)
    assert not dialog.choose.isEnabled()
    assert "--data" in dialog.trouble.text()
    dialog.reject()


def test_what_fails_is_said_and_the_program_starts_again_where_it_was(qapp, usual, monkeypatch) -> None:
    said: list[str] = []

    def read() -> None:
        """As the user does, in a while: reads the box and closes it."""
        box = qapp.activeModalWidget()
        if isinstance(box, MessageBox):
            said.append(box.text())
            box.button(MessageBox.StandardButton.Ok).click()

    reader = QTimer(interval=20)
    reader.timeout.connect(read)
    reader.start()
    monkeypatch.setattr(move_progress, "relaunch", lambda: False)
    (usual.with_name("full")).mkdir()
    (usual.with_name("full") / "x").touch()
    assert move_and_restart(qapp, usual, usual.with_name("full")) == 1
    assert "is not empty" in said[0]
    assert "start it yourself" in said[1]
    assert len(said) == 2
    reader.stop()
    assert data_folder() == usual


def test_a_folder_that_another_program_uses_is_not_moved(qapp, usual) -> None:
    lock = take_lock(usual)
    try:
        assert "already" in move_with_progress(qapp, usual, usual.with_name("other"))
    finally:
        lock.unlock()
    assert not usual.with_name("other").exists()


def slowly(file: Path, path: Path) -> Iterator[bytes]:
    """Reads on until it is stopped."""
    while True:
        time.sleep(0.01)
        yield b""


def test_stop_leaves_everything_as_it_was(qapp, usual, monkeypatch) -> None:
    (usual / "models").mkdir()
    (usual / "models" / "a.gguf").write_bytes(b"x" * 100)
    monkeypatch.setattr(relocation, "_read", slowly)
    show = QProgressDialog.setValue

    def stopped(dialog: QProgressDialog, value: int) -> None:
        show(dialog, value)
        if value > 0:
            dialog.canceled.emit()  # as its button does

    monkeypatch.setattr(QProgressDialog, "setValue", stopped)
    assert move_with_progress(qapp, usual, usual.with_name("other")) == relocation.STOPPED
    assert not usual.with_name("other").exists()
    assert data_folder() == usual


def test_the_progress_tells_the_size_that_is_copied_and_then_read_again(qapp, usual, monkeypatch) -> None:
    """Half of the work is the copy, and half the comparison with it."""
    heard: dict[int, tuple[str, str, bool]] = {}
    show = QProgressDialog.setValue

    def seen(dialog: QProgressDialog, value: int) -> None:
        show(dialog, value)
        heard[value] = dialog.labelText(), dialog.windowTitle(), dialog.isVisible()

    def moving(
        _source: Path, _target: Path, _stop: threading.Event
    ) -> Generator[relocation.Progress, None, str]:
        for done, known in ((1_000_000, 166), (3_000_000, 500), (5_000_000, 833), (6_000_000, 999)):
            yield relocation.Progress("Copying", done, 6_000_000)
            while known not in heard:  # the window waits for no progress
                time.sleep(0.001)
        return ""

    monkeypatch.setattr(QProgressDialog, "setValue", seen)
    monkeypatch.setattr(move_progress, "_outcome", moving)
    assert move_with_progress(qapp, usual, usual.with_name("other")) == ""
    texts = [
        "Copying: 1 MB of 3 MB",
        "Copying: 3 MB of 3 MB",
        "Copying: 2 MB of 3 MB",
        "Copying: 3 MB of 3 MB",
    ]
    assert [heard[value][0] for value in (166, 500, 833, 999)] == texts
    assert {(title, visible) for _text, title, visible in heard.values()} == {("Move data – Inglenook", True)}
