"""Numbers as texts."""

from __future__ import annotations

import pytest

from engine.units import rate_text


@pytest.mark.parametrize(
    ("rate", "text"), [(0.25, "0.2"), (43.62, "43.6"), (99.94, "99.9"), (99.96, "100"), (75461.0, "75,461")]
)
def test_rates_have_a_decimal_only_below_a_hundred(rate: float, text: str) -> None:
    assert rate_text(rate) == text
