"""The table that gives each token its experts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.models.layers.mixture import expert_table

NAMES: Any = SimpleNamespace(expert_table="mlp.gate.tid2eid")
CONFIG: Any = SimpleNamespace(vocab_size=3)
EXPERTS: Any = SimpleNamespace(count=4, used=2)


def table(numbers: list[list[float]]) -> Any:
    """The table that is read from a file with these numbers."""

    def vector(name: str, *shape: int) -> Any:
        assert (name, shape) == ("layers.1.mlp.gate.tid2eid", (3, 2))
        return np.array(numbers, np.float32)

    source: Any = SimpleNamespace(vector=vector)
    return expert_table(source, CONFIG, NAMES, EXPERTS, "layers.1.")


def test_numbers_of_experts() -> None:
    found = table([[0, 3], [2, 1], [3, 0]])
    assert found.dtype == np.int32
    assert found.tolist() == [[0, 3], [2, 1], [3, 0]]


@pytest.mark.parametrize("wrong", [4, -1])
def test_an_expert_that_is_not_there(wrong: int) -> None:
    with pytest.raises(BadCheckpoint, match=rf"layers.1.mlp.gate.tid2eid names expert {wrong}, but .* has 4"):
        table([[0, 3], [wrong, 1], [3, 0]])
