"""The window speaks another language without a restart."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QMetaMethod, QObject, Qt
from shiboken6 import isValid

from desktop.services.system import language
from desktop.services.system.language import language_for
from tests.desktop.hand import Hand
from tests.pseudo import pseudo_language


@pytest.fixture
def hand(qtbot, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def renew(hand: Hand) -> None:
    """What happens when the user has chosen another language."""
    hand.desktop.renew_window()
    hand.window = hand.desktop.window
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


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
