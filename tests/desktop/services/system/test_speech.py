"""Reading aloud with a program that writes down what it would say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from desktop.services.system.speech import Speech, SpeechProgram, find_speech_program, language_of
from engine.words import set_language

pytestmark = pytest.mark.gui
SAYS = """
import sys, time
from pathlib import Path
log, text = Path(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else sys.stdin.buffer.read().decode()
with log.open("a", encoding="utf-8") as file:
    file.write(f"{sys.argv[2]}: {text}|")
if "forever" in text:
    time.sleep(600)
if "bad" in text:
    sys.exit("no sound card")
"""


def which_of(*names: str) -> Callable[[str], str | None]:
    return lambda name: f"/bin/{name}" if name in names else None


def test_each_system_has_its_own_voice() -> None:
    linux = find_speech_program("linux", which_of("spd-say", "espeak-ng"))
    assert linux is not None
    assert linux.command("zh_CN", "-5 °C") == ["--wait", "--language", "zh", "--", "-5 °C"]
    assert linux.hush
    plain = find_speech_program("linux", which_of("espeak-ng"))
    assert plain is not None
    assert plain.command("zh_CN", "one") == ["-v", "cmn", "--stdin"]
    assert plain.command("de", "one") == ["-v", "de", "--stdin"]
    mac, windows = (
        find_speech_program("darwin", which_of("say")),
        find_speech_program("win32", which_of("powershell")),
    )
    assert mac is not None
    assert (mac.path, mac.command("de", "one")) == ("/bin/say", [])
    assert windows is not None
    assert windows.at_once
    for platform in ("linux", "darwin", "win32"):
        assert find_speech_program(platform, which_of()) is None


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "said"


def voice(log: Path, **more: object) -> SpeechProgram:
    return SpeechProgram(sys.executable, ("-c", SAYS, str(log), "{language}"), **more)  # type: ignore[arg-type]


def said(log: Path) -> list[str]:
    return log.read_text("utf-8").split("|")[:-1] if log.exists() else []


@pytest.mark.parametrize("takes_argument", [False, True])
def test_sentences_are_said_one_after_the_other(qtbot: QtBot, log: Path, takes_argument: bool) -> None:
    parent = QObject()
    speech = Speech(voice(log, takes_argument=takes_argument), parent)
    set_language("de", ".", ",")
    try:
        with qtbot.waitSignal(speech.ended) as ended:
            speech.say(["Zwei Äpfel.", "Drei 🍐."])
            assert speech.speaking
    finally:
        set_language("en")
    assert ended.args == [""]
    assert not speech.speaking
    assert said(log) == ["de: Zwei Äpfel.", "de: Drei 🍐."]


def test_a_voice_that_starts_slowly_gets_all_at_once(qtbot: QtBot, log: Path) -> None:
    parent = QObject()
    speech = Speech(voice(log, at_once=True), parent)
    with qtbot.waitSignal(speech.ended):
        speech.say(["One.", "Two."])
    assert said(log) == ["en: One.\nTwo."]


def test_it_is_silent_when_it_is_stopped_and_says_something_else(qtbot: QtBot, log: Path) -> None:
    parent = QObject()
    speech = Speech(voice(log, takes_argument=True, hush=("-c", SAYS, str(log), "hush", "now")), parent)
    ends: list[str] = []
    speech.ended.connect(ends.append)
    speech.say(["forever", "never"])
    qtbot.waitUntil(lambda: said(log) == ["en: forever"])
    speech.stop()
    assert not speech.speaking
    qtbot.waitUntil(lambda: said(log) == ["en: forever", "hush: now"])
    assert ends == []
    with qtbot.waitSignal(speech.ended):
        speech.say(["after"])
    assert "en: after" in said(log)
    assert "en: never" not in said(log)


def test_a_voice_that_fails_is_told_in_a_sentence(qtbot: QtBot, log: Path) -> None:
    parent = QObject()
    speech = Speech(voice(log), parent)
    with qtbot.waitSignal(speech.ended) as ended:
        speech.say(["bad", "never"])
    name = Path(sys.executable).stem
    assert ended.args == [f"{name} could not read the text aloud (no sound card)."]
    assert said(log) == ["en: bad"]
    speech.program = SpeechProgram("/nowhere/say")
    with qtbot.waitSignal(speech.ended) as ended:
        speech.say(["one"])
    assert ended.args[0].startswith("say could not read the text aloud (")
    assert not speech.speaking


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Guten Tag", "en"), ("こんにちは、世界", "ja"), ("你好，世界", "zh_CN"), ("مرحبا بالعالم", "ar"),
        ("The word 世界 means world.", "en"), ("12 + 3", "en"),
    ],
)  # fmt: skip
def test_a_voice_speaks_the_language_that_letters_show(text: str, code: str) -> None:
    assert language_of(text) == code
