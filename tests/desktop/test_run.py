"""The whole program as a process: it starts, writes its log, reports errors in one sentence, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import sys
from PySide6.QtCore import QTimer
from desktop import app
from desktop.__main__ import main

start = app.Desktop.start

def started(desktop, *arguments):
    start(desktop, *arguments)
    QTimer.singleShot(200, lambda: {deed})
    def tell():
        print("banner:", desktop.window.chat.banner.text.text(), flush=True)
        desktop.window.close()
    QTimer.singleShot(600, tell)

app.Desktop.start = started
sys.exit(main({arguments!r}))
"""


def run(arguments: list[str], deed: str = "None", **environment: str) -> subprocess.CompletedProcess[str]:
    code = DRIVER.format(arguments=arguments, deed=deed)
    everything = {**os.environ, "QT_QPA_PLATFORM": "offscreen", **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=everything, check=False
    )


def test_it_starts_and_ends(tmp_path) -> None:
    done = run(["--data", str(tmp_path / "new folder")])
    assert (done.returncode, done.stdout) == (0, "banner: \n")
    log = (tmp_path / "new folder" / "logs" / "inglenook.log").read_text(encoding="utf-8")
    assert "Inglenook starts with the data in" in log
    assert "ERROR" not in log


def test_an_unhandled_error_is_one_sentence_and_in_the_log(tmp_path) -> None:
    done = run(["--data", str(tmp_path)], deed="1 // 0")
    assert done.returncode == 0
    assert "banner: Something went wrong in Inglenook (ZeroDivisionError)" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    log = (tmp_path / "logs" / "inglenook.log").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert "ZeroDivisionError" in log


@pytest.mark.slow
def test_an_error_on_another_thread_is_shown_in_the_window(tmp_path) -> None:
    done = run(["--data", str(tmp_path)], deed="__import__('threading').Thread(target=lambda: [][0]).start()")
    assert "banner: Something went wrong in Inglenook (IndexError)" in done.stdout


@pytest.mark.slow
def test_qt_s_own_warnings_go_into_the_log(tmp_path) -> None:
    done = run(
        ["--data", str(tmp_path)], deed="__import__('PySide6.QtCore').QtCore.qWarning('a warning of Qt')"
    )
    assert "a warning of Qt" not in done.stderr
    assert "a warning of Qt" in (tmp_path / "logs" / "inglenook.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_debug_writes_the_log_to_the_terminal_too(tmp_path) -> None:
    done = run(["--data", str(tmp_path), "--debug"])
    assert "Inglenook starts with the data in" in done.stderr


def test_a_crash_leaves_its_trace(tmp_path) -> None:
    done = run(["--data", str(tmp_path)], deed="__import__('faulthandler')._sigsegv()")
    assert done.returncode != 0
    assert "Segmentation fault" in (tmp_path / "logs" / "crash.log").read_text(encoding="utf-8")


def test_a_data_folder_that_cannot_be_made_is_reported(tmp_path, monkeypatch, qapp, capsys) -> None:
    from desktop import app

    reported: list[str] = []
    monkeypatch.setattr(app, "make_application", lambda arguments: qapp)
    monkeypatch.setattr(app.QMessageBox, "critical", lambda parent, title, text: reported.append(text))
    file = tmp_path / "a file"
    file.touch()
    monkeypatch.setenv("INGLENOOK_DATA", "")
    assert app.run(data=Path(file / "below")) == 1
    assert len(reported) == 1
    assert str(file) in reported[0]
    assert capsys.readouterr().err == reported[0] + "\n"


def test_a_log_that_cannot_be_written_is_reported(tmp_path, monkeypatch, qapp, capsys) -> None:
    from desktop import app

    reported: list[str] = []
    monkeypatch.setattr(app, "make_application", lambda arguments: qapp)
    monkeypatch.setattr(app.QMessageBox, "critical", lambda parent, title, text: reported.append(text))
    monkeypatch.setenv("INGLENOOK_DATA", "")
    logs = tmp_path / "logs"
    logs.touch()
    assert app.run(data=tmp_path) == 1
    assert reported == [
        f"The log in {logs} cannot be written (Not a directory). Check the permissions of this folder, or "
        "move away what is in its place."
    ]
    assert capsys.readouterr().err == reported[0] + "\n"
