"""Checkpoints of a sequence whose logits are on a device, which has those of the latest steps alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.backends.decode_loop import KEPT_LOGITS
from engine.generator.checkpoints import Checkpoints
from engine.tensors import Floats


def test_what_was_blocked_after_the_place_gone_back_to_is_allowed_again() -> None:
    checkpoints, logits = Checkpoints(()), np.zeros(1, np.float32)
    for place in range(5):
        checkpoints.add(checkpoints.take(place, 0, logits), token=place, text="")
    for place in (4, 2, 1):
        checkpoints.back_to(place)
        if place == 2:
            assert checkpoints.blocked == {2: {2}}
            checkpoints.add(checkpoints.take(2, 0, logits), token=9, text="")
            checkpoints.back_to(2)
            assert checkpoints.blocked == {2: {2, 9}}
    assert checkpoints.blocked == {1: {1}}


@pytest.mark.parametrize("held", [1, KEPT_LOGITS, 3 * KEPT_LOGITS])
def test_logits_are_fetched_while_the_device_has_them(held: int) -> None:
    checkpoints, now, count = Checkpoints(()), 0, 3 * KEPT_LOGITS

    def late(place: int) -> Callable[[], Floats]:
        def fetch() -> Floats:
            assert now - place < KEPT_LOGITS
            return np.asarray([place], np.float32)

        return fetch

    for now in range(count):
        taken = checkpoints.take(now, 0, late(now))
        checkpoints.fed += 1
        checkpoints.add(taken, token=7, text="x")
        checkpoints.forget(held, now + 1)
        assert len(checkpoints) == min(held, now + 1)
    checkpoints.keep_logits()
    found, text = checkpoints.back_to(0)
    assert (found.place, text) == (count - held, "x" * held)
    assert found.logits is not None
    assert not callable(found.logits)
    assert found.logits.tolist() == [found.place]
    assert (checkpoints.fed, len(checkpoints), checkpoints.blocked) == (found.place, 0, {found.place: {7}})
