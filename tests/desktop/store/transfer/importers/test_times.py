"""Times as other programs write them: numbers of any unit, ISO 8601, and forms of their own."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest

from desktop.store.transfer.importers.fields import seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, 1.7e9), (1_700_000_000.5, 1.7e9 + 0.5), ("1700000000.5", 1.7e9 + 0.5),
        (1_700_000_000_500, 1.7e9 + 0.5), (1_700_000_000_500_000, 1.7e9 + 0.5),
        (1_700_000_000_500_000_000, 1.7e9 + 0.5), (32_503_679_999, 32_503_679_999.0),
        ("2023-11-14T22:13:20Z", 1.7e9), (" 2023-11-15T00:13:20+02:00 ", 1.7e9),
    ],
)  # fmt: skip
def test_times_of_one_meaning_everywhere(value: Any, expected: float) -> None:
    assert seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-09-28T01:02:36", datetime(2024, 9, 28, 1, 2, 36)),
        ("2024-9-28 @01h 02m 36s 7ms", datetime(2024, 9, 28, 1, 2, 36, 7000)),
        ("2024-9-28@1h2m", datetime(2024, 9, 28, 1, 2)), ("2024-9-8", datetime(2024, 9, 8)),
        ("September 28, 2024 1:03am", datetime(2024, 9, 28, 1, 3)),
        ("Sep 28, 2024 1:03 PM", datetime(2024, 9, 28, 13, 3)),
        ("May 05, 2026 12:30am", datetime(2026, 5, 5, 0, 30)),
        ("May 05, 2026 12:30pm", datetime(2026, 5, 5, 12, 30)),
        ("may 05, 2026 14:31", datetime(2026, 5, 5, 14, 31)),
    ],
)  # fmt: skip
def test_times_without_a_zone_are_local(value: str, expected: datetime) -> None:
    assert seconds(value) == expected.timestamp()


@pytest.mark.parametrize(
    "value",
    [
        None, True, [], "", "soon", 0, -5, 32_503_680_000, math.nan, math.inf, "nan", 10**400, "1e400",
        "0001-01-01T00:00:00", "2024-13-01", "2024-9-28 @25h 02m", "Foo 5, 2026 14:31",
        "May 05, 2026 25:31", f"1700000000.{'0' * 60}",
    ],
)  # fmt: skip
def test_what_is_no_time(value: Any) -> None:
    assert seconds(value) is None
