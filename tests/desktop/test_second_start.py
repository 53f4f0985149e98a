"""Two processes with one data folder: the second hands over its files and ends; a third ends on request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from desktop.services.system.single_instance import Request, take_lock
from desktop.views.application import second_start
from desktop.views.application.second_start import first_lock

DRIVER = """
import sys
from PySide6.QtCore import QTimer
from desktop import app
from desktop.__main__ import main
from desktop.views.layout.file_opener import FileHandler

start = app.Desktop.start

def started(desktop, *arguments):
    start(desktop, *arguments)
    took = lambda paths: print("took", *paths, sep="|", flush=True)
    desktop.window.files._handlers = (FileHandler(lambda path: True, took, "take"),)
    QTimer.singleShot(0, lambda: print("open", flush=True))

app.Desktop.start = started
sys.exit(main(sys.argv[1:]))
"""


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "QT_QPA_PLATFORM": "offscreen",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    command = [sys.executable, "-c", DRIVER, "--data", str(cwd / "data"), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=cwd
    )


@pytest.mark.skipif(os.name == "nt", reason="ends the first by a signal")
def test_a_second_start_hands_its_files_to_the_first_which_ends_cleanly(tmp_path, qapp) -> None:
    first = start("first file.json", cwd=tmp_path)
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "open\n"
        assert first.stdout.readline() == f"took|{tmp_path / 'first file.json'}\n"
        second = start("--model", "ünï.gguf", "below/chats.json", cwd=tmp_path)
        out, err = second.communicate(timeout=30)
        assert (second.returncode, out, err) == (0, "", "")
        assert (
            first.stdout.readline() == f"took|{tmp_path / 'ünï.gguf'}|{tmp_path / 'below' / 'chats.json'}\n"
        )
        first.send_signal(signal.SIGTERM)
        out, err = first.communicate(timeout=30)
        assert (first.returncode, out, err) == (0, "", "")
    finally:
        first.kill()
        first.communicate()
    assert sorted(path.name for path in (tmp_path / "data" / "logs").iterdir() if path.stat().st_size) == [
        "inglenook.log"
    ]
    assert not (tmp_path / "data" / "logs" / "running").exists()
    take_lock(tmp_path / "data").unlock()


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_start_without_an_answer_says_so(tmp_path, qapp, monkeypatch) -> None:
    from desktop import app
    from desktop.services.system import single_instance

    reported: list[str] = []
    monkeypatch.setattr(app, "make_application", lambda arguments: qapp)
    monkeypatch.setattr(app.QMessageBox, "critical", lambda parent, title, text: reported.append(text))
    monkeypatch.setattr(single_instance.hand_over, "__defaults__", (0.1, lambda: False, 0.1))
    lock = take_lock(tmp_path)
    try:
        assert app.run(data=tmp_path) == 1
    finally:
        lock.unlock()
    assert len(reported) == 1
    assert f"does not respond (process {os.getpid()})" in reported[0]
    assert not (tmp_path / "logs").exists()  # those of the program that is open are left alone


def notice() -> QMessageBox | None:
    found = (box for box in QApplication.topLevelWidgets() if box.objectName() == "stillClosing")
    return next((box for box in found if isinstance(box, QMessageBox) and box.isVisible()), None)


def test_a_start_that_waits_says_so_until_the_folder_is_free(tmp_path, qapp, monkeypatch) -> None:
    monkeypatch.setattr(second_start, "SAY_AFTER_S", 0.2)
    lock = take_lock(tmp_path)
    said: list[str] = []

    def look() -> None:
        box = notice()
        if box is not None and not said:
            said.append(box.text())
            lock.unlock()

    timer = QTimer()
    timer.timeout.connect(look)
    timer.start(10)
    begun = time.monotonic()
    taken = first_lock(tmp_path, Request())
    timer.stop()
    assert taken is not None
    taken.unlock()
    assert time.monotonic() - begun >= 0.2
    assert said == ["Inglenook is still closing. It opens again as soon as that is done."]
    assert notice() is None


def test_a_start_that_waits_can_be_given_up(tmp_path, qapp, monkeypatch) -> None:
    monkeypatch.setattr(second_start, "SAY_AFTER_S", 0.0)
    lock = take_lock(tmp_path)

    def cancel() -> None:
        box = notice()
        if box is not None:
            QTest.keyClick(box, Qt.Key.Key_Escape)

    timer = QTimer()
    timer.timeout.connect(cancel)
    timer.start(10)
    try:
        assert first_lock(tmp_path, Request()) is None
    finally:
        timer.stop()
        lock.unlock()
    assert notice() is None
