"""Notifications over a real session bus with a fake service: shown, clicked, or no service at all."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop.services.comparison.comparison import ComparisonService
from desktop.services.system.notifications import ReplyWatch
from desktop.settings import Behaviour
from tests.desktop.services.conftest import Harness
from tests.desktop.services.session.test_tool_turns import CALL, Source

SERVICE = """
import sys
from PySide6.QtCore import ClassInfo, QCoreApplication, QObject, QTimer, Slot
from PySide6.QtDBus import QDBusConnection, QDBusMessage

NAME, PLACE = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"

@ClassInfo({"D-Bus Interface": NAME})
class Service(QObject):
    @Slot(str, "uint", str, str, str, "QStringList", "QVariantMap", int, result="uint")
    def Notify(self, program, replaces, icon, title, text, actions, hints, milliseconds):
        entry = hints["desktop-entry"]
        said = (program, replaces, icon, title, text, actions, entry, milliseconds)
        print("shown", *said, sep="|", flush=True)
        QTimer.singleShot(50, self.click)
        return 7

    @Slot()
    def click(self):
        invoked, token = "ActionInvoked", "ActivationToken"
        for name, arguments in ((invoked, [8, "default"]), (token, [7, "leave"]), (invoked, [7, "default"])):
            signal = QDBusMessage.createSignal(PLACE, NAME, name)
            signal.setArguments(arguments)
            QDBusConnection.sessionBus().send(signal)

app = QCoreApplication([])
service = Service()
bus = QDBusConnection.sessionBus()
bus.registerObject(PLACE, service, QDBusConnection.RegisterOption.ExportAllSlots)
bus.registerService(NAME)
print("ready", flush=True)
QTimer.singleShot(20000, app.quit)
app.exec()
"""
PROGRAM = """
import subprocess, sys
from PySide6.QtCore import QCoreApplication, QTimer
from desktop.services.system.notifications import BusNotifier

service = None
if sys.argv[1:]:
    service = subprocess.Popen([sys.executable, sys.argv[1]], stdout=subprocess.PIPE, text=True)
if service is not None:
    service.stdout.readline()
app = QCoreApplication([])
notifier = BusNotifier()
said = []

def say(words):
    said.append(words)
    QTimer.singleShot(100, app.quit)

title = "The reply in “<b>x</b>” is ready"
notifier.show(title, "After 25 seconds", lambda token: say(f"clicked {token}"), lambda: say("nobody"))
QTimer.singleShot(15000, app.quit)
app.exec()
notifier.close()
if service is not None:
    print(service.stdout.readline(), end="")
    service.kill()
    service.wait()
print(*said)
"""
ROOT = Path(__file__).resolve().parents[4]


def ask(*arguments: str) -> str:
    command = ["dbus-run-session", "--", sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True).stdout


@pytest.mark.skipif(not shutil.which("dbus-run-session"), reason="needs a session bus of its own")
def test_a_notification_is_shown_and_its_click_brings_an_activation_token(tmp_path) -> None:
    service = tmp_path / "service.py"
    service.write_text(SERVICE, encoding="utf-8")
    shown = (
        "shown|Inglenook|0|inglenook|The reply in “<b>x</b>” is ready|After 25 seconds|['default', 'Show "
        "the reply']|inglenook|-1\n"
    )
    assert ask(str(service)) == f"{shown}clicked leave\n"


@pytest.mark.skipif(not shutil.which("dbus-run-session"), reason="needs a session bus of its own")
def test_a_missing_service_is_reported() -> None:
    assert ask() == "nobody\n"


class Shown:
    """Collects the notifications."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.texts: list[str] = []
        self.clicked: Callable[[str], None] = lambda _token: None
        self.failed: Callable[[], None] = lambda: None
        self.closed = False

    def show(self, title: str, text: str, clicked: Callable[[str], None], failed: Callable[[], None]) -> None:
        self.titles.append(title)
        self.texts.append(text)
        self.clicked, self.failed = clicked, failed

    def close(self) -> None:
        self.closed = True


def watched(talking: Harness, seconds: float, *, in_front: bool = False) -> tuple[Shown, ReplyWatch]:
    """A watch by whose clock each reply takes so long."""
    shown, now = Shown(), itertools.count()
    watch = ReplyWatch(talking.session, lambda: shown, lambda: in_front, talking.session)
    watch.clock = lambda: next(now) * seconds
    return shown, watch


@pytest.mark.parametrize(
    ("seconds", "after", "text"),
    [
        (19.9, 20, ""),
        (20.0, 20, "After 20 seconds"),
        (1.0, 1, "After 1 second"),
        (60.4, 20, "After 1 min 0 s"),
        (125.0, 20, "After 2 min 5 s"),
        (3600.0, 0, ""),
    ],
)
def test_a_reply_that_takes_long_enough_is_shown(
    talking: Harness, seconds: float, after: int, text: str
) -> None:
    shown, watch = watched(talking, seconds)
    talking.session.set_settings(Behaviour(notify_after=after))
    talking.ask("apples")
    assert shown.texts == ([text] if text else [])
    watch.close()
    assert shown.closed == bool(text)


def test_what_somebody_looks_at_is_not_shown(talking: Harness) -> None:
    shown, watch = watched(talking, 100.0, in_front=True)
    talking.ask("apples")
    assert shown.titles == []
    watch.close()


def test_a_reply_that_fails_is_shown_and_one_that_is_stopped_is_not(talking: Harness) -> None:
    shown, watch = watched(talking, 100.0)
    talking.chat.error = ZeroDivisionError()
    talking.ask("apples")
    assert shown.titles == ["The reply in “apples” ended early"]
    talking.chat.error, talking.chat.hold = None, threading.Event()
    assert talking.session.submit("pears")
    talking.qtbot.waitUntil(lambda: len(talking.chat.requests) == 2)
    talking.session.stop()
    talking.until_idle()
    assert len(shown.titles) == 1
    watch.close()


def test_the_title_of_a_temporary_chat_is_not_shown(talking: Harness) -> None:
    shown, watch = watched(talking, 100.0)
    assert talking.session.new_temporary()
    talking.ask("a secret")
    talking.chat.error = ZeroDivisionError()
    talking.ask("another")
    assert shown.titles == ["The reply is ready", "The reply ended early"]
    watch.close()


def test_a_reply_that_calls_a_tool_is_not_ready(talking: Harness) -> None:
    shown, watch = watched(talking, 100.0)
    source = Source()
    talking.session.tools.use(source)
    talking.chat.calls = [(CALL,), (CALL,)]
    talking.ask("apples")
    assert shown.titles == ["The model wants to call a tool in “apples”"]
    assert talking.session.tools.allow(talking.ids()[-1], always=True)
    source.ended.emit(1, "Red.", False)
    talking.until_idle()  # the reply to the result calls again, which is allowed by now
    assert source.said.calls == [("files", "read", CALL.arguments)] * 2
    assert len(shown.titles) == 1
    source.ended.emit(2, "Green.", False)
    talking.until_idle()
    assert shown.titles[1:] == ["The reply in “apples” is ready"]
    assert talking.session.new_temporary()
    source.said.permissions.clear()
    talking.chat.calls = [(CALL,)]
    talking.ask("a secret")
    assert shown.titles[2:] == ["The model wants to call a tool"]
    watch.close()


def test_a_click_asks_for_the_chat_of_the_reply(talking: Harness) -> None:
    shown, watch = watched(talking, 100.0)
    asked: list[tuple[int, str]] = []
    unheard: list[bool] = []
    watch.show_requested.connect(lambda chat, token: asked.append((chat, token)))
    watch.unheard.connect(lambda: unheard.append(True))
    talking.ask("apples")
    shown.clicked("leave")
    assert asked == [(talking.session.conversation, "leave")]
    assert unheard == []
    shown.failed()
    assert unheard == [True]
    watch.close()


def test_of_several_replies_the_last_one_tells(talking: Harness) -> None:
    talking.ask("apples")
    shown, session = Shown(), talking.session
    watch = ReplyWatch(session, lambda: shown, lambda: False, session)
    clock = iter(range(0, 100_000, 1000))
    watch.clock = lambda: float(next(clock))
    gate = talking.chat.hold = threading.Event()
    service = ComparisonService(session, session)
    assert service.write_several(talking.ids()[0], 3)
    gate.set()
    talking.until_idle()
    assert shown.titles == ["The reply in “apples” is ready"]
    talking.chat.hold = None
    talking.ask("pears")
    assert len(shown.titles) == 2
    watch.close()
