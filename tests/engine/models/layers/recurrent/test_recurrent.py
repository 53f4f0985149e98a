"""What recurrent parts record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.graph.fusion import group_linears
from engine.backends.graph.linear import LinearGroup
from engine.backends.graph.recorder import Recorder
from engine.backends.states import LinearAttentionShape
from engine.models.layers.parts import Linear, Norm
from engine.models.layers.recurrent.mixers import DeltaMixer, SeparateDeltaMixer
from engine.models.layers.recurrent.parts import Convolution, Recurrence, unit_norms
from tests.engine.backends.graph.test_recorder import FakeWeight

HEADS, DIM, WIDTH = 2, 16, 32
SHAPE = LinearAttentionShape(HEADS, HEADS, DIM, DIM, True)
ONES = np.ones(HEADS, np.float32)


def _weight(rows: int, columns: int = WIDTH) -> Any:
    return FakeWeight((rows, columns))


def _linear(rows: int, columns: int = WIDTH) -> Linear:
    return Linear(_weight(rows, columns))


def _convolution(channels: int) -> Convolution:
    return Convolution(0, np.ones((4, channels), np.float32), None)


def _mixer(kind: str) -> Any:
    values = HEADS * DIM
    recurrence, norm = Recurrence(1, SHAPE, ONES, ONES), Norm(np.ones(DIM, np.float32), 1e-6, heads=HEADS)
    norms, output = unit_norms(HEADS, DIM), _linear(WIDTH, values)
    if kind == "together":
        return DeltaMixer(
            _linear(3 * values), _linear(values), _linear(HEADS), _linear(HEADS), _convolution(3 * values),
            *norms, recurrence, norm, output, "silu",
        )  # fmt: skip
    inputs, convolution = (_linear(values), _linear(values), _linear(values)), _convolution(values)
    return SeparateDeltaMixer(
        inputs, (convolution,) * 3, _linear(values), _linear(HEADS), _linear(HEADS), *norms, recurrence,
        norm, output, "sigmoid", 1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "products"), [("together", 4), ("separate", 6)])
def test_a_delta_nets_products_of_its_input_run_at_once(kind: str, products: int) -> None:
    recorder = Recorder()
    x = recorder.embed(_weight(50))
    _mixer(kind)(recorder, x, None)
    groups = [
        node for node in group_linears(recorder.nodes, any_layout=True) if isinstance(node, LinearGroup)
    ]
    assert [len(group.parts) for group in groups] == [products, 1]
    assert {part.x for part in groups[0].parts} == {x}
