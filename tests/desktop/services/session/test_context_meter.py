"""What the next reply and an edit cost, in tokens and in words."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from desktop.services.session.context_meter import ContextMeter, Measured, cost_words
from engine.core import ChatRequest, Foreseen, Stats
from engine.errors import ContextTooLong
from engine.settings import ThinkingSettings
from tests.desktop.fakes import EchoChat
from tests.desktop.services.conftest import Harness


def test_only_what_is_not_cached_is_read_again() -> None:
    found = Measured(system=10, messages=50, draft=5, cached=40, starts=((1, 10, 30), (2, 30, 60)))
    assert (found.used, found.next_read) == (65, 25)
    assert [found.cost_of_editing(id) for id in (1, 2, 3)] == [20, 30, 0]
    cold = found._replace(cached=0)
    assert [cold.cost_of_editing(id) for id in (1, 2)] == [30, 60]
    assert found._replace(cached=100).next_read == 0


@pytest.mark.parametrize(
    ("tokens", "rate", "exact", "words"),
    [
        (1, 0.0, True, "1 token"),
        (3120, 0.0, False, "about 3,120 tokens"),
        (99, 100.0, False, "about 99 tokens, less than 1 s"),
        (100, 100.0, True, "100 tokens, about 1 s"),
        (9900, 100.0, False, "about 9,900 tokens, about 99 s"),
        (12000, 100.0, False, "about 12,000 tokens, about 2 min"),
    ],
)
def test_cost_in_words(tokens: int, rate: float, exact: bool, words: str) -> None:
    assert cost_words(tokens, rate, exact) == words


def test_speed_is_known_once_a_long_prompt_was_read_and_a_draft_is_counted(talking: Harness) -> None:
    meter = ContextMeter(talking.session)
    talking.ask("a few words")
    talking.qtbot.waitUntil(lambda: meter.measured.messages == 6)
    assert meter.measured.rate == 0  # too few tokens tell no speed
    meter.set_draft("three more words")
    talking.qtbot.waitUntil(lambda: (meter.measured.draft, meter.measured.about) == (3, False))
    meter.set_draft("three more words now")
    assert (meter.measured.draft, meter.measured.about) == (
        3,
        False,
    )  # while nothing runs it is counted, soon
    talking.qtbot.waitUntil(lambda: (meter.measured.draft, meter.measured.about) == (4, False))
    talking.chat.hold = threading.Event()
    assert talking.session.submit("word " * 30)
    meter.set_draft("three more words, and these")
    assert (meter.measured.draft, meter.measured.about) == (5, True)  # by the characters of a token before
    talking.chat.hold.set()
    talking.until_idle()
    talking.qtbot.waitUntil(lambda: meter.measured.rate > 0)
    talking.qtbot.waitUntil(lambda: not meter.measured.about)
    assert meter.close()


def test_a_draft_that_is_far_too_long_is_estimated_and_holds_up_nothing(
    talking: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting a file of megabytes takes the engine seconds, in which it answers nobody."""
    counted: list[int] = []
    foresee = type(talking.chat).foresee

    def noted(chat: EchoChat, request: ChatRequest) -> Foreseen:
        counted.append(max(len(message.content) for message in request.messages))
        return foresee(chat, request)

    monkeypatch.setattr(type(talking.chat), "foresee", noted)
    meter = ContextMeter(talking.session)
    talking.ask("a few words")
    meter.set_draft("word " * 200)
    talking.qtbot.waitUntil(lambda: (meter.measured.draft, meter.measured.about) == (200, False))
    meter.set_draft("word " * 100_000)
    talking.qtbot.waitUntil(lambda: meter.measured.about)
    assert meter.measured.draft == pytest.approx(100_000, rel=0.01)
    assert (meter.measured.messages, meter.measured.length) == (6, 4096)
    assert max(counted) == 999
    meter.set_draft("")
    talking.qtbot.waitUntil(lambda: (meter.measured.draft, meter.measured.about) == (0, False))
    assert meter.close()


def test_the_context_is_full_where_the_last_message_alone_is_too_long_for_it(
    talking: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(chat: EchoChat, request: ChatRequest) -> Foreseen:
        raise ContextTooLong("It is too long.")

    monkeypatch.setattr(type(talking.chat), "foresee", too_long)
    meter = ContextMeter(talking.session)
    meter.set_draft("word " * 5000)
    talking.qtbot.waitUntil(lambda: meter.measured.trouble == "It is too long.")
    assert meter.measured.used == meter.measured.length == 4096
    assert meter.close()


def test_where_each_message_stands(talking: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the oldest ones are left out."""
    talking.session.set_system_prompt("Be very brief.")
    meter = ContextMeter(talking.session)
    talking.ask("a few words")
    first, second = talking.ids()
    talking.qtbot.waitUntil(lambda: meter.measured.starts == ((first, 3, 6), (second, 6, 9)))
    foresee = type(talking.chat).foresee

    def shortened(chat: EchoChat, request: ChatRequest) -> Foreseen:
        whole = foresee(chat, request)
        return dataclasses.replace(
            whole, messages=(whole.messages[0], *whole.messages[3:]), dropped_messages=2
        )

    monkeypatch.setattr(type(talking.chat), "foresee", shortened)
    talking.ask("and more")
    third, fourth = talking.ids()[2:]
    talking.qtbot.waitUntil(lambda: meter.measured.starts == ((third, 3, 5), (fourth, 5, 7)))
    assert (meter.measured.dropped, meter.measured.system) == (2, 3)
    assert meter.close()


def test_it_counts_again_once_thinking_is_turned_off(
    talking: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    foresee = type(talking.chat).foresee

    def noted(chat: EchoChat, request: ChatRequest) -> Foreseen:
        asked.append(request.thinking.thinking)
        return foresee(chat, request)

    monkeypatch.setattr(type(talking.chat), "foresee", noted)
    meter = ContextMeter(talking.session)
    talking.ask("a few words")
    talking.qtbot.waitUntil(lambda: meter.measured.messages == 6)
    talking.session.set_settings(ThinkingSettings(thinking="off"))
    talking.qtbot.waitUntil(lambda: asked[-1] == "off")
    assert meter.close()


def test_a_running_reply_brings_its_own_figures(talking: Harness) -> None:
    talking.session.set_system_prompt("Be very brief.")
    meter = ContextMeter(talking.session)
    talking.ask("a few words")
    talking.qtbot.waitUntil(lambda: meter.measured.system == 3)
    talking.session.running_changed.emit(Stats(context_tokens=50, context_length=99))
    found = meter.measured
    assert (found.system, found.messages, found.used, found.cached) == (3, 47, 50, 50)
    assert (found.length, found.next_read, found.draft, found.about) == (99, 0, 0, False)
    assert meter.close()
