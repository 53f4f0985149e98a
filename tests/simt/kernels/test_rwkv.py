"""RWKV's recurrences on the device: the bodies in the interpreter against their models, whatever the order of
warps, and whole layers of bodies in any cut of a text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.generalised_delta import generalised_delta_kernel
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Value
from engine.backends.graph.recurrent import GeneralisedDelta, WeightedMean
from engine.backends.states import DeltaWeights, LinearAttentionShape
from tests.engine.backends.test_recurrent import IDS, DeltaLayer, MeanLayer, backend_of, close_to
from tests.simt.kernels.test_recurrent import RUNS, STATES, advanced, numbers, same

SIZES = {
    "delta": (2, 2, 64, 64, "delta"),
    "delta, odd": (3, 3, 7, 37, "delta"),
    "delta, wide": (1, 1, 150, 20, "delta"),
    "bonus": (2, 2, 64, 64, "bonus"),
    "bonus, odd": (4, 2, 7, 37, "bonus"),
    "gated": (2, 1, 64, 64, "gated"),
    "gated, odd": (3, 3, 13, 20, "gated"),
}
"""Heads, those of keys and values, and their sizes, by rule."""


def delta(name: str, rows: int) -> tuple[Value, Any, int]:
    """A node, its inputs and the numbers of a state."""
    heads, groups, dim, values, rule = SIZES[name]
    shape = LinearAttentionShape(groups, heads, dim, values, rule == "delta", decays="key")
    removal, mixing, bonus = (numbers(seed, heads, dim) for seed in (5, 6, 7))
    weights = DeltaWeights(
        shape, *((removal, mixing) if rule == "delta" else (None, None)), None if rule == "gated" else bonus
    )
    widths = heads * dim, groups * dim, groups * values, heads * dim, heads * dim
    made = [Buffer(width) for width in widths]
    inputs = {x: numbers(8 + i, rows, x.width) for i, x in enumerate(made)}
    inputs[made[0]] *= np.float32(dim**-0.5)
    inputs[made[3]] *= np.float32(3)
    r, k, v, decay, rate = made
    y = Buffer(2 * heads * values)
    node = GeneralisedDelta(r=r, k=k, v=v, decay=decay, rate=rate, part=0, weights=weights, y=y)
    return node, inputs, shape.floats


def mean(channels: int, rows: int) -> tuple[Value, Any, int]:
    """The same of a weighted mean, whose keys are so large that e^key is no float32."""
    k, v = Buffer(channels), Buffer(channels)
    decay, first = -np.exp(numbers(5, channels)), numbers(6, channels)
    node = WeightedMean(k=k, v=v, part=0, decay=decay, first=first, y=k.like())
    return node, {k: 60 * numbers(8, rows, channels), v: numbers(9, rows, channels)}, node.shape.floats


def means_before(floats: int) -> Any:
    """States of some rows: sums of weights are at least 1."""
    states = numbers(4, STATES, floats).reshape(STATES, 3, -1)
    states[:, 1] = 1 + np.abs(states[:, 1])
    return states.reshape(STATES, -1)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("runs", RUNS)
def test_generalised_delta(name: str, runs: str) -> None:
    node, inputs, floats = delta(name, RUNS[runs][0][1])
    same(advanced(node, inputs, floats, RUNS[runs]))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["delta, wide", "bonus, odd", "gated, odd"])
def test_more_rows_than_are_at_hand_at_once(name: str) -> None:
    node, inputs, floats = delta(name, 18)
    same(advanced(node, inputs, floats, [(5, 18, (0, 2))]))


def test_a_key_of_zeros_takes_nothing_out() -> None:
    node, inputs, floats = delta("delta, odd", 2)
    keys = list(inputs)[1]
    inputs[keys][0] = 0
    y, _ = same(advanced(node, inputs, floats, [(5, 2, (0, 2))]))
    assert np.isfinite(y).all()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("size", [-100.0, -20.0, 4.0, 1e30])
def test_decays_of_any_size(size: float) -> None:
    """What hardly decays, and what is forgotten at once."""
    for name in ("delta, odd", "bonus, odd", "gated, odd"):
        node, inputs, floats = delta(name, 3)
        inputs[list(inputs)[3]][:] = size
        with np.errstate(over="ignore"):
            same(advanced(node, inputs, floats, [(5, 3, (0, 2))]))


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("channels", [9, 70])
def test_weighted_mean(channels: int, runs: str) -> None:
    node, inputs, floats = mean(channels, RUNS[runs][0][1])
    same(advanced(node, inputs, floats, RUNS[runs], states=means_before(floats)))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["delta, odd", "bonus, odd", "gated, odd", "mean"])
def test_several_sequences(kind: str) -> None:
    """Bit for bit as each of them alone."""
    runs = [(0, 1, (-1, 1)), (6, 3, (0, 0)), (2, 2, (2, 2))]
    node, inputs, floats = mean(35, 6) if kind == "mean" else delta(kind, 6)
    states = means_before(floats) if kind == "mean" else None
    y, after = same(advanced(node, inputs, floats, runs, several=True, states=states))
    first = 0
    for position, count, numbered in runs:
        part = {buffer: x[first : first + count] for buffer, x in inputs.items()}
        alone, own = same(advanced(node, part, floats, [(position, count, numbered)], states=states))
        assert alone.tobytes() == y[first : first + count].tobytes()
        assert own[numbered[1]].tobytes() == after[numbered[1]].tobytes()
        first += count


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "bonus", "gated", "mean"])
def test_whole_layers_of_bodies(kind: str) -> None:
    """A text of twelve rows as its formulas say, and the same, bit for bit, in other cuts."""
    backend = backend_of("cuda", interpret=True)
    layer = MeanLayer(backend, 20) if kind == "mean" else DeltaLayer(backend, 2, 6, 34, kind)
    ids = IDS[:12]
    whole = layer.run(ids, [(-1, 0)])
    close_to(whole, layer.expected(ids))
    parts = [layer.run(ids[:1], [(-1, 1)]), layer.run(ids[1:10], [(1, 2)]), layer.run(ids[10:], [(2, 1)])]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    layer.close()


def test_a_kernel_for_each_size_of_heads() -> None:
    made = {size: generalised_delta_kernel(size, "delta") for size in (7, 64, 128, 150, 512)}
    assert {size: kernel.name for size, kernel in made.items()} == {
        7: "generalised_delta_delta_16_padded", 64: "generalised_delta_delta_64",
        128: "generalised_delta_delta_128", 150: "generalised_delta_delta_160_padded",
        512: "generalised_delta_delta_512",
    }  # fmt: skip
    assert [kernel.constants["TOKENS"] for kernel in made.values()] == [16, 16, 12, 8, 4]
