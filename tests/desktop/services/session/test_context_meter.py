"""What the next reply and an edit cost, in tokens and in words."""

from __future__ import annotations

import threading

import pytest

from desktop.services.session.context_meter import ContextMeter, Measured, cost_words
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
    talking.chat.hold = threading.Event()
    assert talking.session.submit("word " * 30)
    meter.set_draft("three more words, and these")
    assert (meter.measured.draft, meter.measured.about) == (5, True)  # by the characters of a token before
    talking.chat.hold.set()
    talking.until_idle()
    talking.qtbot.waitUntil(lambda: meter.measured.rate > 0)
    talking.qtbot.waitUntil(lambda: not meter.measured.about)
    assert meter.close()
