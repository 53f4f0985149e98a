"""The windows of `perplexity`: in which pieces the model reads them, and what is scored."""

from __future__ import annotations

import math
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.cli.perplexity import negative_log_likelihood

IDS = 8


class Model:
    """It finds every token equally likely, and notes how many tokens each step gives it."""

    def __init__(self, rows: int) -> None:
        self.rows, self.steps = rows, list[int]()
        self.table = SimpleNamespace(open=lambda ids: closing(SimpleNamespace(length=0, close=lambda: None)))

    def run(self, lease: Any, ids: list[int], logit_rows: int = 1) -> Any:
        lease.length += len(ids)
        self.steps.append(len(ids))
        return np.zeros((logit_rows, IDS), np.float32)


@pytest.mark.parametrize(("rows", "steps"), [(5, [5, 5, 5, 4]), (100, [10, 9]), (10, [10, 9])])
def test_no_step_is_longer_than_the_cache_takes(rows: int, steps: list[int]) -> None:
    model: Any = Model(rows)
    assert negative_log_likelihood(model, list(range(4)) * 5) == pytest.approx(9 * math.log(IDS))
    assert model.steps == steps
