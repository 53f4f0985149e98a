"""Convolutions and linear attention on the device: each body in the interpreter as its model says, whatever
the order of warps, and whole layers of bodies, in any cut of a text.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.backends.cuda.kernels.recurrent import linear_attention_kernel
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.lowering.context import Context
from engine.backends.cuda.lowering.lower import SMALL
from engine.backends.cuda.runtime.state import set_states
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Value
from engine.backends.graph.recurrent import Convolution, LinearAttention
from engine.backends.states import ConvolutionShape, LinearAttentionShape
from tests.engine.backends.test_recurrent import IDS, SHAPES, Layer, backend_of, close_to
from tests.simt.played import TABLES, empty, laid_out, played

STATES = 3


class Tables:
    """Addresses of constants: `TABLES` in the order in which they are asked for."""

    def __init__(self) -> None:
        self.arrays: dict[int, Any] = {}

    def array(self, values: Any, device: int) -> int:
        address = TABLES[1 + len(self.arrays)]
        self.arrays[address] = np.ascontiguousarray(values)
        return address


def lowered(node: Value) -> tuple[Call, Tables]:
    """The call of a node, and its constants; the states lie at the first of `TABLES`."""
    tables = Tables()
    cache = SimpleNamespace(state_address=lambda part: TABLES[0])
    (call,) = SMALL[type(node)](cast(Context, Context(cast(Any, cache), cast(Any, tables))), node)
    assert isinstance(call, Call)
    return call, tables


def advanced(
    node: Value, inputs: dict[Buffer, Any], floats: int, runs: list[tuple[int, int, tuple[int, int]]],
    several: bool = False, states: Any = None,
) -> list[tuple[Any, Any]]:  # fmt: skip
    """The result and all states by the interpreter and by the model, after rows of these runs: position, rows
    and states of each. `states` are those before, without them random numbers.
    """
    call, tables = lowered(node)
    rows = sum(count for _, count, _ in runs)
    if states is None:
        states = np.random.default_rng(4).standard_normal((STATES, floats)).astype(np.float32)
    places, table, ends = (
        np.zeros(rows, np.int32),
        np.full((rows, 8), -7, np.int32),
        np.zeros((rows, 4), np.int32),
    )
    first = 0
    for position, count, numbered in runs:
        places[first : first + count] = np.arange(position, position + count)
        set_states(table[first], position, count, numbered)
        ends[first : first + count] = first, first + count, 0, 0
        first += count
    arrays = {
        **{buffer: laid_out(x) for buffer, x in inputs.items()}, node.y: empty(node.y, rows),
        TABLES[0]: states, **tables.arrays, Runtime.POSITIONS: places, Runtime.STATES: table,
        Runtime.RUNS: ends if several else 0,
    }  # fmt: skip
    if several:
        assert call.several is not None
        call = call.several
    found = played(call, arrays, rows)
    return [(each[node.y][:, : node.y.width], each[TABLES[0]]) for each in found]


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(found: list[tuple[Any, Any]], share: float = 3e-6) -> tuple[Any, Any]:
    (y, states), (expected, after) = found
    assert np.abs(y - expected).max() <= share * np.abs(expected).max()
    assert np.abs(states - after).max() <= share * np.abs(after).max()
    return y, states


RUNS = {
    "begins": [(0, 5, (-1, 1))],
    "goes on": [(7, 2, (0, 1))],
    "in place": [(6, 1, (2, 2))],
    "whole turns": [(3, 4, (1, 0))],
}


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(
    ("width", "taps", "bias"), [(37, 4, True), (130, 3, False), (20, 7, False), (9, 2, True)]
)
def test_convolution(width: int, taps: int, bias: bool, runs: str) -> None:
    x = Buffer(width)
    weight, added = numbers(1, taps, width), numbers(2, width) if bias else None
    node = Convolution(x=x, part=0, weight=weight, bias=added, y=x.like())
    shape = ConvolutionShape(width, taps)
    assert node.shape == shape
    rows = RUNS[runs][0][1]
    _, states = same(advanced(node, {x: numbers(3, rows, width)}, shape.floats, RUNS[runs]))
    if runs == "begins" and taps == 2:
        assert np.array_equal(states[1, :width], numbers(3, rows, width)[-1])


def test_a_long_convolution_takes_several_blocks() -> None:
    """Only the first of them reads the state, and it writes it, too."""
    x = Buffer(5)
    node = Convolution(x=x, part=0, weight=numbers(1, 4, 5), bias=None, y=x.like())
    same(advanced(node, {x: numbers(3, 150, 5)}, node.shape.floats, [(9, 150, (2, 2))]))


def attention(
    shape: LinearAttentionShape, rows: int, beta: bool = True, skip: bool = True
) -> tuple[Value, Any]:
    keys, values, heads = (
        shape.key_heads * shape.key_dim,
        shape.value_heads * shape.value_dim,
        shape.value_heads,
    )
    q, k, v, decay, strength = (Buffer(width) for width in (keys, keys, values, shape.steps, heads))
    node = LinearAttention(
        q=q, k=k, v=v, decay=decay, beta=strength if beta else None, part=0, shape=shape,
        rate=-np.abs(numbers(5, *shape.rates)), shift=numbers(6, shape.steps),
        skip=numbers(7, shape.skips) if skip else None, y=v.like(),
    )  # fmt: skip
    size = np.float32(shape.key_dim**-0.5)
    inputs = {
        q: numbers(8, rows, keys) * size,
        k: numbers(9, rows, keys) * size,
        v: numbers(10, rows, values),
    }
    inputs |= {decay: 4 * numbers(11, rows, shape.steps)} | (
        {strength: numbers(12, rows, heads)} if beta else {}
    )
    return node, inputs


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    "name",
    [  # first what no other test has
        "unit", "keys decay, bound", "delta, tiled", "delta", "values decay, odd", "delta, odd", "mamba, odd",
        "keys decay, odd",
    ],
)  # fmt: skip
@pytest.mark.parametrize("runs", RUNS)
def test_linear_attention(name: str, runs: str) -> None:
    shape = SHAPES[name]
    skip = not (shape.delta or shape.unit)
    node, inputs = attention(shape, RUNS[runs][0][1], beta=shape.delta, skip=skip)
    same(advanced(node, inputs, shape.floats, RUNS[runs]))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("key_dim", [128, 150, 256, pytest.param(300, marks=pytest.mark.slow)])
def test_many_keys(key_dim: int, delta: bool) -> None:
    """Lanes with 32 keys, groups of eight, and lanes with 64: with more rows than are at hand at once."""
    shape = LinearAttentionShape(1, 1, key_dim, 20, delta)
    node, inputs = attention(shape, 18 if key_dim == 128 else 6, beta=delta, skip=not delta)
    same(advanced(node, inputs, shape.floats, [(5, len(next(iter(inputs.values()))), (0, 2))]))


@pytest.mark.parametrize(("decays", "key_dim"), [("key", 128), ("value", 16)])
def test_usual_sizes_where_parts_decay_alone(decays: str, key_dim: int) -> None:
    """Of Kimi Linear and of Mamba."""
    shape = LinearAttentionShape(1, 1, key_dim, 20, decays == "key", decays=decays)
    node, inputs = attention(shape, 2, beta=shape.delta, skip=not shape.delta)
    same(advanced(node, inputs, shape.floats, [(5, 2, (0, 2))]))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["convolution", "linear attention"])
def test_several_sequences(kind: str) -> None:
    """Bit for bit as each of them alone."""
    runs = [(0, 1, (-1, 1)), (6, 3, (0, 0)), (2, 2, (2, 2))]
    if kind == "convolution":
        x = Buffer(35)
        node: Value = Convolution(x=x, part=0, weight=numbers(1, 4, 35), bias=None, y=x.like())
        inputs, floats = {x: numbers(3, 6, 35)}, ConvolutionShape(35, 4).floats
    else:
        shape = LinearAttentionShape(1, 2, 12, 33, True)
        (node, inputs), floats = attention(shape, 6), shape.floats
    y, states = same(advanced(node, inputs, floats, runs, several=True))
    first = 0
    for position, count, numbered in runs:
        part = {buffer: x[first : first + count] for buffer, x in inputs.items()}
        alone, after = same(advanced(node, part, floats, [(position, count, numbered)]))
        assert alone.tobytes() == y[first : first + count].tobytes()
        assert after[numbered[1]].tobytes() == states[numbered[1]].tobytes()
        first += count


@pytest.mark.slow
def test_whole_layers_of_bodies() -> None:
    """A text of twelve rows as its formulas say, and the same, bit for bit, in other cuts."""
    layer = Layer(backend_of("cuda", interpret=True), LinearAttentionShape(1, 2, 6, 34, True), True, True)
    ids = IDS[:12]
    whole = layer.run(ids, [(-1, 0)])
    close_to(whole, layer.expected(ids))
    parts = [layer.run(ids[:1], [(-1, 1)]), layer.run(ids[1:10], [(1, 2)]), layer.run(ids[10:], [(2, 1)])]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    layer.close()


def test_a_kernel_for_each_size_of_keys() -> None:
    bound = linear_attention_kernel(12, True, "key", bound=True)
    unit = linear_attention_kernel(1, False, "value", unit=True)
    assert bound.name == "linear_attention_key_16_padded_bound"
    assert unit.name == "linear_attention_value_16_padded_unit"
    names = {size: linear_attention_kernel(size, True).name for size in (1, 16, 17, 128, 129, 256, 512)}
    assert names == {
        1: "linear_attention_delta_16_padded", 16: "linear_attention_delta_16",
        17: "linear_attention_delta_32_padded", 128: "linear_attention_delta_128",
        129: "linear_attention_delta_160_padded", 256: "linear_attention_delta_256",
        512: "linear_attention_delta_512",
    }  # fmt: skip
