"""No telemetry: a whole day of ordinary use opens no network socket, not from Python, not from Qt, not in a
helper process.

The watch is proven in the same process: at the end a socket of each kind is opened, and must be seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from desktop.store.transfer.exporters.own import FORMAT, VERSION

ROOT = Path(__file__).resolve().parents[4]
WATCH = """
import os, socket, sys

INET = (socket.AF_INET, socket.AF_INET6)
LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")
TRAFFIC = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")
seen = []

def watch(event, arguments):
    if not event.startswith("socket."):
        return
    if event == "socket.__new__" and arguments[1] in INET:
        seen.append(event)
    elif event in LOOKUPS:
        seen.append(f"{event} {arguments[0]}")
    elif event in TRAFFIC and arguments[0].family in INET:
        seen.append(f"{event} {arguments[1]}")

sys.addaudithook(watch)

import psutil

def look():
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            seen.extend(f"process {process.name()}: {found}" for found in process.net_connections("inet"))
        except psutil.Error:
            pass  # it has ended
"""
DAY = """
import threading
from pathlib import Path
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from desktop import app
from desktop.__main__ import main
from desktop.settings import Appearance, Behaviour
from engine.settings import SamplerSettings

model, chats, fake = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "fake"
program = app.Desktop
if fake:
    from tests.desktop.hand import no_fetch
    from tests.desktop.fakes import EchoApi

    echo = EchoApi()
    api = app.EngineApi(echo.open_chat, echo.describe, no_fetch, echo.draft_problem, measure=lambda: 1e10)
    app.Desktop = lambda *arguments, **named: program(*arguments, **named, api=api)

def key(widget, key, modifier=Qt.KeyboardModifier.NoModifier):
    QTest.keyClick(widget, key, modifier)

def say(window, text):
    box = window.chat.composer.box
    box.setFocus()
    QTest.keyClicks(box, text)
    key(box, Qt.Key.Key_Return)

def day(window):
    session, act = window.session, window.actions_by_name
    idle = lambda: session.state == "idle" and not session.replying_in
    window.files.open([model])
    yield idle
    session.set_settings(SamplerSettings(temperature=0.4))
    texts = ("Hello there, hearth.", "A [link](https://example.com) and ![a picture](https://example.com/x.png)")
    for count, text in enumerate(texts, 1):
        say(window, text)
        if not fake:
            QTimer.singleShot(500, session.stop)
        yield lambda: idle() and len(session.messages.items()) == 2 * count
    act["regenerate"].trigger()
    if not fake:
        QTimer.singleShot(500, session.stop)
    yield lambda: idle() and session.messages.items()[-1].variant_count == 2
    act["new_chat"].trigger()
    window.actions_by_name["search"].trigger()
    QTest.keyClicks(window.sidebar.query, "hearth")
    yield None
    window.sidebar.query.clear()
    window.files.open([chats])
    yield None
    act["find"].trigger()
    yield None
    for theme in ("dark", "light"):
        session.set_settings(Appearance(theme=theme))
        yield None
    session.set_settings(Behaviour(show_advanced=True))
    act["tokens"].trigger()
    act["log"].trigger()
    yield None
    act["menu_entry"].trigger()
    yield None
    window.application_controller.entry_dialog.close()
    act["library"].trigger()
    for _ in range(5):
        yield None
    act["shortcuts"].trigger()
    yield None
    act["unload"].trigger()
    yield lambda: session.state == "no_model"
    window.application_controller.report_error("Something went wrong.", "a trace")
    window.chat.banner.offer.click()
    yield None
    print("the day is over", flush=True)

class Day:
    def __init__(self, window):
        self.window, self.steps, self.until, self.waits = window, day(window), None, 0
        self.timer = QTimer(window)
        self.timer.timeout.connect(self.step)
        self.timer.start(25)

    def step(self):
        look()
        self.waits += 1
        if self.waits > 2400:
            print("a step of the day has no end", flush=True)
            os._exit(3)
        if self.until is not None and not self.until():
            return
        try:
            self.until, self.waits = next(self.steps), 0
        except StopIteration:
            self.timer.stop()
            self.window.close()

start = program.start

def started(desktop, *arguments):
    start(desktop, *arguments)
    desktop.day = Day(desktop.window)

program.start = started
code = main(["--data", sys.argv[4]])
look()
print("exit", code, "sockets", seen, flush=True)
"""
PROOF = """
seen.clear()
with socket.socket(socket.AF_INET) as one:
    pass
by_python = len(seen)
from PySide6.QtNetwork import QHostAddress, QUdpSocket
other = QUdpSocket()
other.bind(QHostAddress.SpecialAddress.LocalHost, 0)
look()
print("the watch sees", by_python > 0, len(seen) > by_python, flush=True)
"""


def one_day(tmp_path: Path, model: Path, kind: str) -> list[str]:
    """The lines that the process wrote."""
    chats = tmp_path / "chats.json"
    message = {
        "key": "m",
        "parent": None,
        "role": "user",
        "text": "an imported hearth",
        "created_at": 1.0,
        "state": "complete",
    }
    chat = {
        "format": FORMAT, "version": VERSION, "title": "Imported", "auto_title": "", "source": "", "key": "c",
        "created_at": 1.0, "updated_at": 1.0, "deleted": False, "system_prompt": "", "settings": {},
        "model_path": "", "shown": "m", "messages": [message],
    }  # fmt: skip
    chats.write_text(json.dumps([chat]), encoding="utf-8")
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    environment.pop("HF_HUB_OFFLINE", None)  # nothing is to stop it but itself
    command = [
        sys.executable,
        "-c",
        WATCH + DAY + PROOF,
        str(model),
        str(chats),
        kind,
        str(tmp_path / "data"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


SEEN_NOTHING = ["the day is over", "exit 0 sockets []", "the watch sees True True"]


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="elsewhere qasync's own loop talks to itself over the loopback",
)
def test_a_day_of_ordinary_use_opens_no_socket(tmp_path) -> None:
    model = tmp_path / "echo.gguf"
    model.touch()
    assert one_day(tmp_path, model, "fake") == SEEN_NOTHING


@pytest.mark.slow
@pytest.mark.real_model
def test_a_day_with_the_real_engine_opens_no_socket(tmp_path, starter_path) -> None:
    assert one_day(tmp_path, starter_path, "real") == SEEN_NOTHING


def test_qt_s_network_is_used_for_local_sockets_only() -> None:
    used = {
        str(path.relative_to(ROOT)): line.strip()
        for folder in ("desktop", "engine", "resources")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "QtNetwork" in line and "import" in line
    }
    assert set(used) == {"desktop/services/system/single_instance.py"}
    text = (ROOT / "desktop/services/system/single_instance.py").read_text(encoding="utf-8")
    names = {
        name.strip()
        for line in text.splitlines()
        if "QtNetwork import" in line
        for name in line.partition("import ")[2].split(",")
    }
    assert names == {"QLocalServer", "QLocalSocket"}
