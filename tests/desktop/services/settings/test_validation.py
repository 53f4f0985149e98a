"""Checks of what is typed: the latest values only, on a thread, whatever they raise."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtTest import QTest

from desktop.services.settings.validation import CHECKS, ValidationService


@pytest.fixture
def make_service(qtbot):
    made: list[ValidationService] = []

    def make(**checks) -> ValidationService:
        service = ValidationService(checks or None)
        service.said = []
        service.checked.connect(lambda kind, values, sentence: service.said.append((kind, values, sentence)))
        made.append(service)
        return service

    yield make
    for service in made:
        assert service.close()


def test_only_the_latest_values_are_checked_and_on_a_thread(make_service, qtbot) -> None:
    seen: list[tuple[str, int]] = []

    def check(text: str) -> str:
        seen.append((text, threading.get_ident()))
        return f"bad {text}"

    service = make_service(words=check)
    for text in ("a", "ab", "abc"):
        service.check("words", (text,))
    qtbot.waitUntil(lambda: service.said == [("words", ("abc",), "bad abc")])
    assert [text for text, _ in seen] == ["abc"]
    assert seen[0][1] != threading.get_ident()


def test_at_once_skips_the_pause(make_service, qtbot) -> None:
    service = make_service(words=lambda text: "", other=lambda text: "")
    service.check("other", ("x",))
    service.check("words", ("y",), at_once=True)
    with qtbot.waitSignals([service.checked, service.checked]):
        pass
    assert sorted(service.said) == [("other", ("x",), ""), ("words", ("y",), "")]


def test_a_check_that_raises_reports_it(make_service, qtbot) -> None:
    def check(text: str) -> str:
        raise RuntimeError("no")

    service = make_service(words=check)
    service.check("words", ("a",), at_once=True)
    qtbot.waitUntil(lambda: len(service.said) == 1)
    assert "Something went wrong" in service.said[0][2]


def test_nothing_is_reported_after_closing(make_service, qtbot) -> None:
    service = make_service(words=lambda text: "")
    service.check("words", ("a",))
    assert service.close()
    service.check("words", ("b",), at_once=True)
    QTest.qWait(300)
    assert service.said == []


@pytest.mark.parametrize(
    ("kind", "good", "bad", "word"),
    [
        ("constraint", ("json_schema", '{"type": "object"}'), ("json_schema", '{"type": '), "JSON"),
        ("constraint", ("regex", r"\d+"), ("regex", "a("), "expression"),
        ("constraint", ("grammar", 'start: "a"'), ("grammar", "start: b"), "grammar"),
        ("constraint", ("choices", "a\nb"), ("choices", "\n"), "line"),
        ("expression", ("a+",), ("a(",), "stop expression"),
        ("expression", ("",), ("[",), "stop expression"),
        ("bias", ("' sure' = -5", "12 = never", " "), ("12 = 3", "sure"), "token bias"),
    ],
)
def test_the_engines_checks(
    make_service, qtbot, kind: str, good: tuple[str, ...], bad: tuple[str, ...], word: str
) -> None:
    service = make_service(**CHECKS)
    service.check(kind, good, at_once=True)
    service.check(kind, bad, at_once=True)
    qtbot.waitUntil(lambda: len(service.said) == 2)
    assert service.said[0] == (kind, good, "")
    assert service.said[1][:2] == (kind, bad)
    assert word in service.said[1][2]
    assert service.said[1][2].count(". ") == 0  # one sentence
