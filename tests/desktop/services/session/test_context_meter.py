"""What the next reply and an edit cost, in tokens and in words."""

from __future__ import annotations

import pytest

from desktop.services.session.context_meter import Measured, cost_words


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
