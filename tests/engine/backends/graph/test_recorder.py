"""What a forward function becomes: nodes, their devices, and the copies between devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, RotaryTable
from engine.backends.cpu.lowering import lower as cpu
from engine.backends.cuda.lowering import lower as cuda
from engine.backends.graph import attention, linear, moe, ngrams, nodes, recurrent, rows
from engine.backends.graph.attention import Rope, RopeGroup
from engine.backends.graph.linear import Linear
from engine.backends.graph.moe import ExpertLinear
from engine.backends.graph.ngrams import NGramRows, TokenNumbers
from engine.backends.graph.nodes import Node, PeerCopy, Producer, Value
from engine.backends.graph.recorder import Recorder
from engine.backends.graph.rows import AddNorm
from engine.backends.routing import Routing


@dataclass(frozen=True)
class FakeWeight:
    """A matrix on a device."""

    shape: tuple[int, ...]
    weight_layout: str = "f16"
    device: int = 0
    nbytes: int = 0


def kinds(recorder: Recorder) -> list[str]:
    return [type(node).__name__ for node in recorder.nodes]


def test_rows_are_copied_once_to_the_device_of_the_weight_they_meet() -> None:
    recorder = Recorder((0, 1), lambda weight: weight.device)  # type: ignore[attr-defined]
    x = recorder.embed(FakeWeight((50, 32)))
    far = [FakeWeight((32, 32), device=1) for _ in range(2)]
    one, two = recorder.linear(x, far[0]), recorder.linear(x, far[1], residual=x)
    assert kinds(recorder) == ["Embed", "PeerCopy", "Linear", "Linear"]
    copy, first, second = recorder.nodes[1:]
    assert (copy.reads, copy.device) == ((x,), 1)
    assert first.reads[0] is second.reads[0] is second.reads[1]
    assert (one.device, two.device) == (1, 1)


def test_attention_is_where_the_cache_of_its_layer_is() -> None:
    recorder = Recorder((0, 1))
    q = recorder.embed(FakeWeight((50, 32)))
    y = recorder.attention(1, q, q, q, AttentionShape(2, 2, 16, 1.0))
    assert kinds(recorder) == ["Embed", "PeerCopy", "KvWrite", "Attention"]
    assert y.device == 1
    assert recorder.nodes[2].device == 1


def test_the_shortest_table_limits_the_positions() -> None:
    recorder = Recorder()
    x = recorder.embed(FakeWeight((50, 32)))
    for length in (70, 40, 90):
        angles: Any = np.zeros((length, 8), np.float32)
        x = recorder.rope(x, RotaryTable(angles, angles, False), 2)
    assert (recorder.positions, recorder.rope_positions) == (40, 40)
    angles = np.zeros((20, 8), np.float32)
    x = recorder.rope(x, RotaryTable(angles, angles, False, given=True), 2)
    assert (recorder.positions, recorder.rope_positions) == (40, 20)
    recorder.add_positions(x, np.zeros((30, 32), np.float32))
    assert recorder.positions == 30


def test_experts_of_each_weight_layout_take_a_node() -> None:
    recorder = Recorder()
    x = recorder.embed(FakeWeight((50, 32)))
    routes = recorder.route(recorder.linear(x, FakeWeight((3, 32))), Routing(3, 2))
    layouts = ("f16", "q4", "f16")
    weights = [FakeWeight((24, 32), layout) for layout in layouts]
    y = recorder.expert_linear(recorder.spread(x, routes), weights, routes)
    plain, quantised = (node for node in recorder.nodes if isinstance(node, ExpertLinear))
    assert plain.y is quantised.y is y
    assert plain.weights == quantised.weights == tuple(weights)
    assert (plain.weight, quantised.weight) == (weights[0], weights[1])


@pytest.mark.parametrize("size", [7, 64])
def test_a_norm_of_another_size_is_refused(size: int) -> None:
    recorder = Recorder()
    x = recorder.embed(FakeWeight((50, 32)))
    with pytest.raises(AssertionError):
        recorder.rms_norm(x, np.ones(size, np.float32), 1e-5, 2)


def test_both_backends_lower_every_node() -> None:
    """Copies between devices aside, which a CPU has no use for, and CUDA's program makes itself; and
    n-grams, which GPUs refuse.
    """
    names = {
        name: kind
        for module in (attention, linear, moe, ngrams, nodes, recurrent, rows)
        for name, kind in vars(module).items()
    }
    every = {kind for kind in names.values() if isinstance(kind, type) and issubclass(kind, Node)}
    every -= {Node, Value, Producer, PeerCopy, Linear}
    refused = {TokenNumbers, NGramRows}
    assert cuda.SMALL.keys() == every - {Rope} - refused
    assert cuda.LARGE.keys() == cuda.SMALL.keys()
    assert cpu.LOWER.keys() == every - {AddNorm, RopeGroup}  # not among its patterns
