"""Convolutions and linear attention against their formulas in float64, on every backend that has them: in any
cut of a text into passes, several texts in one pass, and states that stay as they were written.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Ops, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.states import ConvolutionShape, DeltaWeights, LinearAttentionShape, MeanShape, States
from tests.engine.backends.kernel_oracles import Matrix
from tests.simt.fake import FakeDevice

VOCABULARY, TAPS = 50, 4
SHAPES = {
    "delta": LinearAttentionShape(2, 4, 16, 32, True),
    "delta, tiled": LinearAttentionShape(2, 4, 12, 48, True, True),
    "delta, odd": LinearAttentionShape(3, 3, 5, 7, True),
    "mamba": LinearAttentionShape(1, 3, 32, 64, False),
    "mamba, odd": LinearAttentionShape(2, 6, 9, 33, False),
    "wide": LinearAttentionShape(1, 3, 128, 128, True),
    "keys decay": LinearAttentionShape(2, 2, 16, 96, True, decays="key"),
    "keys decay, odd": LinearAttentionShape(2, 4, 7, 35, True, True, "key"),
    "keys decay, bound": LinearAttentionShape(2, 4, 12, 32, True, decays="key", bound=1.7),
    "values decay": LinearAttentionShape(1, 1, 16, 96, False, decays="value"),
    "unit": LinearAttentionShape(1, 1, 1, 39, False, decays="value", unit=True),
    "values decay, odd": LinearAttentionShape(2, 4, 5, 39, False, decays="value"),
}

Values = np.ndarray[Any, Any]
BACKENDS = ("cpu", "reference", "cuda")
"""The last on a device that is none, see `tests.simt.fake`."""


class Layer:
    """One convolution of the values, then linear attention; inputs are rows of tables."""

    def __init__(self, backend: Any, shape: LinearAttentionShape, with_beta: bool, with_bias: bool) -> None:
        self.backend, self.shape = backend, shape
        keys, values = shape.key_heads * shape.key_dim, shape.value_heads * shape.value_dim
        widths = {"q": keys, "k": keys, "v": values, "decay": shape.steps, "beta": shape.value_heads}
        if not with_beta:
            del widths["beta"]
        self.tables = {
            name: Matrix("F32", (VOCABULARY, width), seed)
            for seed, (name, width) in enumerate(widths.items(), 3)
        }
        self.weights = {name: backend.load_weight(table) for name, table in self.tables.items()}
        rng = np.random.default_rng(8)
        self.taps = rng.standard_normal((TAPS, values)).astype(np.float32)
        self.bias = rng.standard_normal(values).astype(np.float32) if with_bias else None
        self.rate = -rng.uniform(0.05, 1, shape.rates).astype(np.float32)
        self.shift = rng.standard_normal(shape.steps).astype(np.float32)
        self.skip = None if with_beta or shape.unit else rng.standard_normal(shape.skips).astype(np.float32)
        self.states = States((ConvolutionShape(values, TAPS), shape), 6)
        self.cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto", self.states)
        self.program = backend.record(self, self.cache, 64)

    def __call__(self, ops: Ops) -> Any:
        found = {name: ops.embed(table) for name, table in self.weights.items()}
        v = ops.convolve(0, found["v"], self.taps, self.bias)
        inputs = (found["q"], found["k"], v)
        y = ops.linear_attention(
            1, inputs, found["decay"], found.get("beta"), self.rate, self.shift, self.shape, self.skip
        )
        return ops.last_rows(y)

    def expected(self, ids: Values) -> Values:
        """The formulas, in float64 and for each head alone."""
        rows = {name: table.dequantise()[ids].astype(np.float64) for name, table in self.tables.items()}
        shape, count = self.shape, len(ids)
        padded = np.concatenate([np.zeros((TAPS - 1, rows["v"].shape[1])), rows["v"]])
        v = sum(self.taps[j] * padded[j : j + count] for j in range(TAPS))
        v = v + (0 if self.bias is None else self.bias)
        out = np.empty_like(v)
        for head in range(shape.value_heads):
            ratio = shape.value_heads // shape.key_heads
            group = head % shape.key_heads if shape.tiled else head // ratio
            part = slice(group * shape.key_dim, (group + 1) * shape.key_dim)
            mine = slice(head * shape.value_dim, (head + 1) * shape.value_dim)
            state = np.zeros((shape.key_dim, shape.value_dim))
            size = shape.steps // shape.value_heads
            own = slice(head * size, (head + 1) * size)
            rate = self.rate[:, mine] if shape.decays == "value" else self.rate[head]
            skip = self.skip[mine] if shape.decays == "value" and self.skip is not None else None
            if skip is None and self.skip is not None:
                skip = self.skip[head]
            for t in range(count):
                given = rows["decay"][t, own] + self.shift[own]
                step = np.logaddexp(0, given)
                b = 1 / (1 + np.exp(-rows["beta"][t, head])) if "beta" in rows else step
                if shape.unit:
                    step = 1 / (1 + np.exp(-given))
                    b = np.sqrt(1 - np.exp(2 * rate[0] * step)) if t else 1.0
                if shape.bound:
                    state *= np.exp(-shape.bound / (1 + np.exp(rate * given)))[:, None]
                else:
                    state *= np.exp(rate * (step[:, None] if shape.decays == "key" else step))
                k, given = rows["k"][t, part], v[t, mine]
                state += np.outer(k, b * (given - (k @ state if shape.delta else 0)))
                out[t, mine] = rows["q"][t, part] @ state
                out[t, mine] += 0 if skip is None else skip * given
        return out

    def run(self, ids: Values, states: list[tuple[int, int]], runs: list[int] | None = None) -> Values:
        """All rows' results; `runs` are the rows of each text."""
        starts = np.concatenate([np.arange(n) for n in runs or [len(ids)]]).astype(np.int32)
        pages = np.zeros(len(runs or [1]), np.int32)
        several = [(n, 1) for n in runs] if runs else []
        found: Values = self.program.run(
            Step(ids.astype(np.int32), starts, pages, len(ids), several, states)
        ).copy()
        return found

    def close(self) -> None:
        self.program.close()
        self.cache.close()


IDS = np.random.default_rng(1).integers(0, VOCABULARY, 40)


def backend_of(name: str, interpret: bool = False) -> Any:
    if name == "cuda":
        return CudaBackend([FakeDevice(interpret=interpret)])
    return CpuBackend(2) if name == "cpu" else ReferenceBackend()


def made(backend: str, name: str, with_beta: bool = True, with_bias: bool = True) -> Layer:
    return Layer(backend_of(backend), SHAPES[name], with_beta, with_bias)


def close_to(found: Values, expected: Values) -> None:
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.slow_after(2 * len(SHAPES))
@pytest.mark.parametrize(
    ("backend", "name"), [(backend, name) for backend in BACKENDS for name, shape in SHAPES.items()]
)
def test_formulas_hold_in_any_cut(backend: str, name: str) -> None:
    with_beta = name != "mamba" and SHAPES[name].decays != "value"
    layer = made(backend, name, with_beta=with_beta, with_bias=name != "delta")
    expected = layer.expected(IDS)
    whole = layer.run(IDS, [(-1, 5)])
    close_to(whole, expected)
    for sizes in ([1] * 40, [2, 1, 7, 9, 20, 1], [39, 1]):
        before = -1
        for number, (start, end) in enumerate(pairwise([0, *accumulate(sizes)])):
            after = number % 2
            found = layer.run(IDS[start:end], [(before, after)])
            if backend != "reference":
                assert np.array_equal(found, whole[start:end])
            close_to(found, expected[start:end])
            before = after
    layer.close()


@pytest.mark.parametrize(
    "shape",
    [
        LinearAttentionShape(2, 2, 70, 39, True),
        LinearAttentionShape(2, 2, 70, 39, True, decays="key"),
        # More scratch memory than products without an input have.
        LinearAttentionShape(1, 1, 600, 32, False, decays="value"),
    ],
)
def test_the_padding_of_heads_is_never_read_before_it_is_written(
    memory_without_numbers: None, shape: LinearAttentionShape
) -> None:
    layer = Layer(CpuBackend(1), shape, shape.delta, True)
    close_to(layer.run(IDS, [(-1, 0)]), layer.expected(IDS))
    layer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_may_be_written_over_itself_and_others_stay(backend: str) -> None:
    layer = made(backend, "delta")
    layer.run(IDS[:10], [(-1, 2)])
    first = layer.run(IDS[10:20], [(2, 3)])
    assert np.array_equal(layer.run(IDS[10:20], [(2, 4)]), first)  # reading changes nothing
    assert np.array_equal(layer.run(IDS[10:20], [(2, 2)]), first)
    last = layer.run(IDS[20:30], [(3, 0)])
    assert np.array_equal(layer.run(IDS[20:30], [(2, 2)]), last)
    assert np.array_equal(layer.run(IDS[20:30], [(4, 1)]), last)
    for rows in (1, 2, 3):  # fewer rows than the state of a convolution has
        found = layer.run(IDS[:rows], [(-1, 0)])
        assert np.array_equal(found, layer.run(IDS[:rows], [(-1, 1)]))
        again = layer.run(IDS[rows : rows + 2], [(0, 0)])
        assert np.array_equal(again, layer.run(IDS[rows : rows + 2], [(1, 2)]))
    layer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_texts_in_one_pass_do_not_touch_each_other(backend: str) -> None:
    layer = made(backend, "delta, tiled")
    layer.run(IDS[:9], [(-1, 0)])
    layer.run(IDS[20:29], [(-1, 1)])
    alone = [layer.run(IDS[9:12], [(0, 5)]), layer.run(IDS[3:4], [(-1, 5)]), layer.run(IDS[29:33], [(1, 5)])]
    ids = np.concatenate([IDS[9:12], IDS[3:4], IDS[29:33]])
    together = layer.run(ids, [(0, 2), (-1, 3), (1, 4)], [3, 1, 4])
    assert np.array_equal(together, np.concatenate(alone))
    assert np.array_equal(layer.run(IDS[:5], [(2, 5)]), layer.run(IDS[:5], [(2, 5)]))
    after = [layer.run(IDS[:3], [(state, 5)]) for state in (2, 3, 4)]
    layer.run(IDS[9:12], [(0, 0)]), layer.run(IDS[29:33], [(1, 1)])
    assert np.array_equal(after[0], layer.run(IDS[:3], [(0, 5)]))
    assert np.array_equal(after[2], layer.run(IDS[:3], [(1, 5)]))
    layer.close()


def test_states_count_in_the_cache() -> None:
    shape = LinearAttentionShape(1, 2, 6, 40, False)
    states = States((ConvolutionShape(18, 4), shape), 3)
    assert states.state_bytes == 4 * (3 * 32 + 2 * 8 * 64)
    plain = AttentionShape(1, 1, 16, 1.0)
    for backend in map(backend_of, BACKENDS):
        sizes = [backend.new_cache([plain], 2, "fp16", given).nbytes for given in (states, States())]
        assert sizes[0] - sizes[1] == 3 * states.state_bytes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gate", ["sigmoid", "identity"])
def test_gates_of_recurrent_layers(backend: str, gate: str) -> None:
    one = backend_of(backend)
    tables = [Matrix("F32", (VOCABULARY, 37), seed) for seed in (1, 2)]
    weights = [one.load_weight(table) for table in tables]
    cache = one.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto")
    program = one.record(
        lambda ops: ops.last_rows(ops.gated(*(ops.embed(w) for w in weights), gate)), cache, 16
    )
    ids = np.arange(10, dtype=np.int32)
    found = program.run(Step(ids, ids, np.zeros(1, np.int32), 10)).copy()
    x, y = (table.dequantise()[:10] for table in tables)
    expected = (1 / (1 + np.exp(-x)) if gate == "sigmoid" else x) * y
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    program.close()
    cache.close()


def together_on(layer: Layer) -> list[int]:
    """The rows of three texts in one pass; GPUs take at most eight."""
    return [5, 1, 9] if layer.program.batch_rows >= 15 else [3, 1, 4]


class DeltaLayer(Layer):
    """The generalised delta rule alone, or one of those without delta; inputs are rows of tables."""

    def __init__(
        self, backend: Any, heads: int, dim: int, values: int, rule: str = "delta", groups: int = 0
    ) -> None:
        groups = groups or heads
        self.shape = LinearAttentionShape(groups, heads, dim, values, rule == "delta", decays="key")
        rng = np.random.default_rng(9)
        removal, mixing, bonus = (rng.standard_normal((heads, dim)).astype(np.float32) for _ in range(3))
        self.rule = DeltaWeights(
            self.shape,
            *((removal, mixing) if rule == "delta" else (None, None)),
            None if rule == "gated" else bonus,
        )
        assert self.rule.rule == rule
        counts = {"r": heads, "k": groups, "v": groups, "decay": heads, "rate": heads}
        widths = {name: count * (values if name == "v" else dim) for name, count in counts.items()}
        self.tables = {
            name: Matrix("F32", (VOCABULARY, width), seed)
            for seed, (name, width) in enumerate(widths.items(), 3)
        }
        self.weights = {name: backend.load_weight(table) for name, table in self.tables.items()}
        self.states = States((self.shape,), 6)
        self.cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto", self.states)
        self.program = backend.record(self, self.cache, 64)

    def __call__(self, ops: Ops) -> Any:
        r, k, v, decay, rate = (ops.embed(table) for table in self.weights.values())
        return ops.last_rows(ops.generalised_delta(0, (r, k, v), decay, rate, self.rule))

    def expected(self, ids: Values) -> Values:
        """The formulas of `DeltaWeights`, in float64 and for each head alone."""
        heads, dim, values = self.shape.value_heads, self.shape.key_dim, self.shape.value_dim
        rows = {name: table.dequantise()[ids].astype(np.float64) for name, table in self.tables.items()}
        out = np.empty((2, len(ids), heads, values))
        for head in range(heads):
            keys, group = slice(head * dim, (head + 1) * dim), head // (heads // self.shape.key_heads)
            state = np.zeros((dim, values))
            for t in range(len(ids)):
                r, decay, rate = (rows[name][t, keys] for name in ("r", "decay", "rate"))
                k, v = (rows[name][t].reshape(self.shape.key_heads, -1)[group] for name in ("k", "v"))
                before = state
                w, u = np.exp(-np.exp(decay)), k
                if self.rule.removal is not None and self.rule.mixing is not None:
                    w, a = np.exp(-np.exp(-0.5) / (1 + np.exp(-decay))), 1 / (1 + np.exp(-rate))
                    n = k * self.rule.removal[head]
                    n = n / np.linalg.norm(n)
                    u = k * (1 + (a - 1) * self.rule.mixing[head])
                    state = w[:, None] * state - np.outer(a * n, n @ state)
                else:
                    u = k * (1 - w) if self.rule.bonus is None else k
                    state = w[:, None] * state
                state = state + np.outer(u, v)
                out[0, t, head] = r @ (before if self.rule.rule == "bonus" else state)
                out[1, t, head] = 0 if self.rule.bonus is None else (r * u * self.rule.bonus[head]).sum() * v
        return np.concatenate([part.reshape(len(ids), -1) for part in out], 1)


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "sizes",
    [  # every rule first
        (3, 7, 37), (4, 7, 37, "bonus", 2), (4, 64, 64, "gated", 2), (2, 64, 96), (2, 20, 32),
        (2, 64, 64, "bonus"), (3, 7, 37, "bonus"), (3, 7, 37, "gated"),
    ],
    ids=str,
)  # fmt: skip
def test_the_generalised_delta_rule_holds_in_any_cut(backend: str, sizes: tuple[Any, ...]) -> None:
    layer = DeltaLayer(backend_of(backend), *sizes)
    expected = layer.expected(IDS)
    whole = layer.run(IDS, [(-1, 5)])
    close_to(whole, expected)
    for start, end in pairwise([0, 1, 2, 9, 10, 38, 40]):
        found = layer.run(IDS[start:end], [(1 if start else -1, 1)])
        if backend != "reference":
            assert np.array_equal(found, whole[start:end])
        close_to(found, expected[start:end])
    runs = together_on(layer)
    together = layer.run(np.concatenate([IDS[:n] for n in runs]), [(-1, 0), (-1, 2), (-1, 3)], runs)
    close_to(together, np.concatenate([expected[:n] for n in runs]))
    layer.close()


class MeanLayer(Layer):
    """The weighted mean alone; inputs are rows of tables, keys so large that e^key is no float32."""

    def __init__(self, backend: Any, channels: int) -> None:
        self.tables = {name: Matrix("F32", (VOCABULARY, channels), seed) for seed, name in enumerate("kv", 3)}
        self.weights = {name: backend.load_weight(table) for name, table in self.tables.items()}
        rng = np.random.default_rng(9)
        self.decay = -rng.uniform(0.01, 8, channels).astype(np.float32)
        self.first = rng.standard_normal(channels).astype(np.float32)
        self.states = States((MeanShape(channels),), 6)
        self.cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto", self.states)
        self.program = backend.record(self, self.cache, 64)

    def __call__(self, ops: Ops) -> Any:
        k, v = (ops.embed(table) for table in self.weights.values())
        return ops.last_rows(ops.weighted_mean(0, ops.soft_cap(k, 90.0, 0.0), v, self.decay, self.first))

    def expected(self, ids: Values) -> Values:
        """The formula, in float64."""
        k, v = (table.dequantise()[ids].astype(np.float64) for table in self.tables.values())
        out = np.empty_like(v)
        for t in range(len(ids)):
            ages = np.arange(t - 1, -2, -1)[:, None]
            size = 90 * k[: t + 1] + np.where(ages < 0, self.first, ages * self.decay)
            weights = np.exp(size - size.max(0))
            out[t] = (weights * v[: t + 1]).sum(0) / weights.sum(0)
        return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("channels", [7, 64, 100])
def test_the_weighted_mean_holds_in_any_cut(backend: str, channels: int) -> None:
    layer = MeanLayer(backend_of(backend), channels)
    expected = layer.expected(IDS)
    assert np.abs(layer.tables["k"].dequantise()[IDS]).max() > 1
    whole = layer.run(IDS, [(-1, 5)])
    close_to(whole, expected)
    for start, end in pairwise([0, 1, 2, 9, 10, 38, 40]):
        found = layer.run(IDS[start:end], [(1 if start else -1, 1)])
        assert np.array_equal(found, whole[start:end])
    runs = together_on(layer)
    together = layer.run(np.concatenate([IDS[:n] for n in runs]), [(-1, 0), (-1, 2), (-1, 3)], runs)
    assert np.array_equal(together, np.concatenate([whole[:n] for n in runs]))
    layer.close()
