"""The window speaks another language without a restart."""

from __future__ import annotations

import datetime
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QMetaMethod, QObject, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QWidget
from shiboken6 import isValid

from desktop.services.system import language
from desktop.services.system.language import apply_language, date_text, language_for, moment_text, time_text
from engine.units import number_text, percent_text, size_text
from engine.words import english, language_names, translate
from tests.desktop.hand import Hand
from tests.pseudo import pseudo_language


@pytest.fixture
def hand(qtbot, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


@pytest.fixture
def english_after() -> Iterator[None]:
    yield
    apply_language(QApplication.instance(), "en")
    QApplication.instance().setLayoutDirection(Qt.LayoutDirection.LeftToRight)


def renew(hand: Hand) -> None:
    """What happens when the user has chosen another language."""
    hand.desktop.renew_window()
    hand.window = hand.desktop.window
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


@pytest.mark.slow
def test_a_running_reply_the_draft_and_the_model_stay(hand) -> None:
    gate = hand.echo.chat.hold = threading.Event()
    before = len(hand.echo.chat.requests)
    hand.type("apples")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) > before)
    hand.type("not sent yet")
    title = hand.window.windowTitle()
    with pseudo_language():
        renew(hand)
        window = hand.window
        assert window.chat.composer.text() == "not sent yet"
        assert window.windowTitle().startswith("[")
        assert title.split(" – ")[0] in window.windowTitle()
        assert window.actions_by_name["new_chat"].text().startswith("[")
        assert hand.session.state in ("answering", "prefill")
        assert [item.role for item in hand.items()] == ["user", "assistant"]
        gate.set()
        hand.qtbot.waitUntil(lambda: hand.session.state == "idle")
        assert hand.items()[-1].text.strip()
        assert hand.session.model is not None
        assert hand.session.model.name in window.picker.text()


def heard(hand: Hand) -> dict[str, int]:
    """How many functions each signal of the services calls."""
    found = {}
    for service in (hand.desktop.services.session, *hand.desktop.findChildren(QObject)):
        meta = service.metaObject()
        for number in range(meta.methodCount()):
            method = meta.method(number)
            if method.methodType() == QMetaMethod.MethodType.Signal:
                signature = bytes(method.methodSignature().data()).decode()
                place = f"{type(service).__name__}.{signature}"
                found[place] = found.get(place, 0) + service.receivers("2" + signature)
    return found


@pytest.mark.slow
def test_no_service_calls_the_old_window(hand) -> None:
    old = [hand.window, hand.window.composer_controller, hand.window.servers, hand.window.chat.transcript]
    before = heard(hand)
    renew(hand)
    assert not any(isValid(each) for each in old)
    after = heard(hand)
    assert {place: (before[place], count) for place, count in after.items() if count > before[place]} == {}
    hand.press(Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)  # a function of the old window would raise
    assert hand.window.chat.status.state.text() == "Ready"


def test_the_systems_language_is_used_where_there_is_a_catalogue(monkeypatch) -> None:
    monkeypatch.setattr(language, "languages", lambda: ("de", "en", "zh_CN"))
    assert language_for("de") == "de"
    assert language_for("system", ["de-AT", "en-US"]) == "de"
    assert language_for("system", ["zh-Hans-CN"]) == "zh_CN"
    assert language_for("system", ["zh-TW", "fr-FR"]) == "en"
    assert language_for("system", ["sv-SE", "en-GB", "de-DE"]) == "en"


@pytest.mark.parametrize(
    ("code", "day", "number", "share", "size"),
    [
        ("en", "26 November 2026", "1,234.5", "50 %", "1.23 MB"),
        ("de", "26. November 2026", "1.234,5", "50 %", "1,23 MB"),
        ("es", "26 de noviembre de 2026", "1.234,5", "50 %", "1,23 MB"),
        ("zh_CN", "2026年11月26日", "1,234.5", "50%", "1.23 MB"),
        ("ja", "2026年11月26日", "1,234.5", "50%", "1.23 MB"),
        ("ar", "26 نوفمبر 2026", "1,234.5", "\u206850\u2069%", "1.23 MB"),
    ],
)
def test_dates_numbers_and_sizes_are_those_of_the_language(
    qapp, english_after, code, day, number, share, size
) -> None:
    apply_language(qapp, code)
    assert date_text(datetime.date(2026, 11, 26)) == day
    assert number_text(1234.5, ",.1f") == number
    assert percent_text(0.5) == share
    assert size_text(1_230_000) == size
    moment = datetime.datetime(2026, 11, 26, 14, 5, 9)
    assert day in moment_text(moment.timestamp())
    assert {"5", "9"} & set(time_text(moment.time(), seconds=True)) == {"5", "9"}


# -- as the user does it: by the box in the Preferences


def language_box(hand: Hand) -> QComboBox:
    window = hand.window.preferences.preferences
    names = {name for _code, name in language_names()}
    boxes = [each for each in window.findChildren(QComboBox) if names <= {*items(each)}]
    assert len(boxes) == 1
    return boxes[0]


def items(box: QComboBox) -> list[str]:
    """Its texts, without the marks that isolate their direction."""
    return [box.itemText(number).strip("\u2068\u2069") for number in range(box.count())]


def choose_language(hand: Hand, name: str) -> None:
    """Open the Preferences by their key, the list of languages by a click, and go to `name` in it."""
    if hand.window.preferences.preferences is None:
        hand.press(Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    before, box = hand.window, language_box(hand)
    hand.window.preferences.preferences.activateWindow()
    QTest.mouseClick(box, Qt.MouseButton.LeftButton)
    view = box.view()
    hand.qtbot.waitUntil(view.isVisible)
    QTest.keyClick(view, Qt.Key.Key_Home)
    for _row in range(items(box).index(name)):
        QTest.keyClick(view, Qt.Key.Key_Down)
    QTest.keyClick(view, Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.desktop.window is not before)
    hand.window = hand.desktop.window
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def parts(window: QWidget) -> list[tuple[str, weakref.ref]]:
    """Every object of a window that Python made."""
    return [(type(each).__name__, weakref.ref(each)) for each in (window, *window.findChildren(QObject))]


@pytest.mark.slow
def test_chosen_in_the_preferences_while_a_reply_is_written(hand, english_after) -> None:
    gate = hand.echo.chat.hold = threading.Event()
    before = len(hand.echo.chat.requests)
    hand.type("apples")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) > before)
    hand.type("not sent yet")
    for name, code, new_chat, to_left in (
        ("Deutsch", "de", "Neuer Chat", False),
        ("العربية", "ar", "محادثة جديدة", True),
        ("English", "en", "New chat", False),
    ):
        old = parts(hand.window)
        choose_language(hand, name)
        window = hand.window
        assert language.language() == code
        assert window.actions_by_name["new_chat"].text().replace("&", "") == new_chat
        assert (window.layoutDirection() == Qt.LayoutDirection.RightToLeft) == to_left
        preferences = window.preferences.preferences
        assert preferences.isVisible()
        assert preferences.windowTitle() == translate("Preferences")
        assert items(box := language_box(hand))[box.currentIndex()] == name
        assert window.chat.composer.text() == "not sent yet"
        assert hand.session.state in ("answering", "prefill")
        assert [item.role for item in hand.items()] == ["user", "assistant"]
        gc.collect()
        assert {kind for kind, part in old if part() is not None} == set()
    gate.set()
    hand.wait_for("idle")
    assert english(hand.items()[-1].text).strip()
    assert hand.window.chat.status.state.text() == "Ready"
