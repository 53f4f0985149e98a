"""The guards of conftest.py: each fault must fail, each proper use must pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FAULTS = """
    import socket, threading, time, warnings, weakref
    import pytest

    def test_bad_thread():
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()

    def test_bad_environment():
        import os
        os.environ["INGLENOOK_LEFT"] = "over"

    def test_good_environment(monkeypatch):
        monkeypatch.setenv("INGLENOOK_MINE", "for now")

    def test_bad_connection_that_is_swallowed():
        try:
            socket.create_connection(("example.org", 80))
        except BaseException:
            pass

    def test_bad_loopback_without_the_marker():
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname())

    @pytest.mark.loopback
    def test_good_loopback():
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()

    def test_good_knots_wait_for_this_thread():
        class Knot:
            pass
        knot = Knot()
        knot.itself, seen = knot, weakref.ref(knot)
        del knot
        other = threading.Thread(target=lambda: [[] for _ in range(50_000)])
        other.start()
        other.join()
        assert seen() is not None

    def test_good_caches_of_the_user():
        import os
        from tests.conftest import _REAL_ENVIRON, users_environ
        with users_environ():
            assert os.environ.get("XDG_CACHE_HOME") == _REAL_ENVIRON.get("XDG_CACHE_HOME")
        assert os.environ["XDG_CACHE_HOME"] != _REAL_ENVIRON.get("XDG_CACHE_HOME")

    def test_bad_warning():
        warnings.warn("something is off")

    def test_bad_timer(qapp):
        from PySide6.QtCore import QTimer
        qapp.kept_timer = QTimer()
        qapp.kept_timer.start(1000)

    def test_bad_qthread(qapp):
        from PySide6.QtCore import QThread
        qapp.kept_thread = QThread()
        qapp.kept_thread.start()

    def test_good_ending(qapp):
        qapp.kept_thread.quit()
        qapp.kept_thread.wait()
        qapp.kept_timer.stop()

    def test_bad_widget(qapp):
        from PySide6.QtWidgets import QWidget
        qapp.kept_widget = QWidget()

    @pytest.fixture(scope="module")
    def window(qapp):
        from PySide6.QtWidgets import QWidget
        window = QWidget()
        yield window
        window.deleteLater()

    def test_good_list_and_menu_that_come_late(window):
        from PySide6.QtWidgets import QComboBox, QMenu, QPushButton
        box, button = QComboBox(window), QPushButton(window)
        box.view()
        button.setMenu(QMenu(button))

    def test_bad_menu_of_a_window_that_stays(window):
        from PySide6.QtWidgets import QMenu
        QMenu(window)

    def test_bad_dialog_of_a_window_that_stays(window):
        from PySide6.QtWidgets import QDialog
        QDialog(window)

    def test_bad_qt_warning(qapp):
        from PySide6.QtCore import qWarning
        qWarning("something is off")

    def test_good_widget_and_timer(qtbot):
        from PySide6.QtCore import QTimer
        from PySide6.QtWidgets import QWidget
        widget = QWidget()
        qtbot.addWidget(widget)
        widget.show()
        QTimer(widget).start(10)
        qtbot.wait(30)
"""


def test_each_guard_catches_its_fault(tmp_path: Path) -> None:
    """Runs tiny tests: those named bad fail, those named good pass; the thread's origin is printed."""
    file = tmp_path / "test_faults.py"
    file.write_text(textwrap.dedent(FAULTS), "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
        "-p",
        "tests.conftest",
    ]
    command += ["-p", "no:cacheprovider", "-rA", "--confcutdir", str(tmp_path), str(file)]
    run = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    verdicts = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(test_\w+)", run.stdout, re.MULTILINE)
    bad = {name for verdict, name in verdicts if verdict != "PASSED"}
    names = set(re.findall(r"def (test_\w+)", FAULTS))
    assert bad == {name for name in names if name.startswith("test_bad")}, run.stdout
    assert "in test_bad_thread\n" in run.stdout
    assert "kept_timer.start(1000)" in run.stdout
