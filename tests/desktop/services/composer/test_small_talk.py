"""Small talk is a short message that is near to sentences of its kind."""

from __future__ import annotations

import numpy as np
import pytest

from desktop.services.composer.small_talk import is_small_talk

KNOWN = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1]])
"""The nearest other one of each is as near as 0.8, 0.8 and 0."""


@pytest.mark.parametrize(
    ("words", "near", "expected"), [(1, 0.81, True), (8, 0.81, True), (9, 0.81, False), (1, 0.79, False)]
)
def test_messages_are_small_talk_by_length_and_meaning(words: int, near: float, expected: bool) -> None:
    asked = np.array([0, -np.sqrt(1 - near**2), near])
    assert is_small_talk(" ".join(["thanks"] * words), asked, KNOWN) == expected
