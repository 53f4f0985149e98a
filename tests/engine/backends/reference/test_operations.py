"""Each operation of the reference backend against its formula: torch's own function, or a loop in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from engine.backends.base import AttentionShape, Step
from engine.backends.ngrams import NGrams
from engine.backends.reference.backend import ReferenceBackend, ReferenceOps
from engine.backends.reference.kv_cache import ReferenceCache
from engine.backends.reference.ngrams import hashed_rows
from engine.backends.relative import RelativeBias
from engine.backends.routing import ROOT, Routing
from engine.backends.states import ConvolutionShape, States
from tests.engine.backends.kernel_oracles import Matrix

ROWS = 5
RNG = np.random.default_rng(4)


def ops(rows: int = ROWS, first: int = 0, cache: Any = None, **more: Any) -> ReferenceOps:
    positions = np.arange(first, first + rows, dtype=np.int32)
    pages = np.arange(-(-(first + rows) // 256), dtype=np.int32)
    return ReferenceOps(Step(np.arange(rows, dtype=np.int32), positions, pages, **more), cache)


def normal(*shape: int) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape).astype(np.float32))


def assert_near(found: Any, expected: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=atol, rtol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_norm(shared: bool, with_bias: bool) -> None:
    x, size = 3 + 2 * normal(ROWS, 3 * 7), 7 if shared else 21
    weight, bias = normal(size), normal(size) if with_bias else None
    found = ops().layer_norm(x, weight.numpy(), None if bias is None else bias.numpy(), 1e-3, 3)
    parts = functional.layer_norm(x.reshape(ROWS, 3, 7), (7,), eps=1e-3)
    expected = parts * weight.reshape(-1, 7) + (0 if bias is None else bias.reshape(-1, 7))
    assert_near(found, expected.reshape(ROWS, -1))


ACTIVATIONS: dict[str, Any] = {
    "silu": functional.silu, "sigmoid": torch.sigmoid, "softplus": functional.softplus,
    "identity": lambda x: x, "gelu": functional.gelu, "relu": functional.relu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"), "relu2": lambda x: functional.relu(x) ** 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_gates(name: str) -> None:
    x, up = 3 * normal(ROWS, 33), normal(ROWS, 33)
    assert_near(ops().activate(x, name), ACTIVATIONS[name](x))
    assert_near(ops().gated(x, up, name), ACTIVATIONS[name](x) * up)


def test_the_gate_of_gpt_oss() -> None:
    gate, up = 9 * normal(ROWS, 33), 9 * normal(ROWS, 33)
    low, high = gate.numpy().clip(None, 7), up.numpy().clip(-7, 7)
    assert_near(ops().gated(gate, up, "clamped_swiglu"), (high + 1) * low / (1 + np.exp(-1.702 * low)), 1e-4)


@pytest.mark.parametrize(
    ("function", "numbers", "formula"),
    [
        ("clamp", (0.5,), lambda x: min(max(x, -0.5), 0.5)),
        ("sigmoid", (2.0, -1.0), lambda x: 2 / (1 + math.exp(-x)) - 1),
        ("root", (0.25,), lambda x: math.copysign(math.sqrt(max(abs(x), 0.25)), x)),
        ("xielu", (0.8, 0.6, 0.5),
         lambda x: (0.8 * x * x if x > 0 else 0.6 * (math.exp(min(x, 0)) - 1 - x)) + 0.5 * x),
    ],
)  # fmt: skip
def test_functions_with_numbers(function: str, numbers: tuple[float, ...], formula: Any) -> None:
    x = 2 * normal(ROWS, 33)
    assert_near(ops().activate_with(x, function, numbers), np.vectorize(formula)(x.numpy()))


def test_sums_and_pieces_of_rows() -> None:
    x, y, table = normal(ROWS, 12), normal(ROWS, 6), normal(20, 12)
    assert_near(ops().add(x, 2 * x, 0.5), 2 * x)
    assert_near(ops(first=7).add_positions(x, table.numpy()), x + table[7 : 7 + ROWS])
    parts = x.reshape(ROWS, 3, 4)
    assert_near(ops().columns(x, 1, 2, 3), parts[:, :, 1:3].reshape(ROWS, 6))
    assert_near(ops().columns(x, 5, 4), x[:, 5:9])
    joined = torch.cat([parts, y.reshape(ROWS, 3, 2)], 2).reshape(ROWS, 18)
    assert_near(ops().join(x, y, 3), joined)
    assert_near(ops().soft_cap(x, 2.0, 3.0), 3 * np.tanh(2 * x.numpy() / 3))
    assert_near(ops().soft_cap(x, 2.0, 0.0), 2 * x)
    assert_near(ops().last_rows(x), x[-1:])
    assert_near(ops(logit_rows=2).last_rows(x), x[-2:])


def test_the_smaller_of_two_and_a_softmax_alone() -> None:
    x, y = normal(ROWS, 12), normal(ROWS, 12)
    expected = np.where(np.abs(x.numpy()) <= np.abs(y.numpy()), x, y)
    assert np.array_equal(ops().gated(x, y, "smaller"), expected)
    shares = np.exp(x.numpy().reshape(ROWS, 4, 3))
    shares = shares / shares.sum(1, keepdims=True)
    assert_near(ops().balance(x, 4, 0, 0.0), shares.reshape(ROWS, 12))


def test_mixes_and_magnitudes() -> None:
    x, weights, residual = [normal(ROWS, 8) for _ in range(3)], normal(ROWS, 6), normal(ROWS, 8)
    expected = sum(part * weights[:, 2 + i, None] for i, part in enumerate(x))
    assert_near(ops().mix(x, weights, 2), expected)
    assert_near(ops().mix(x, weights, 2, residual), expected + residual)
    row = 2 + x[0].numpy()
    assert_near(ops().magnitude(torch.from_numpy(row)), np.sqrt((row**2).mean(1))[:, None])
    assert_near(ops().magnitude(torch.from_numpy(row), centred=True), row.std(1)[:, None])


@pytest.mark.parametrize(("rounds", "added"), [(1, None), (3, None), (3, 0.0)])
def test_matrices_become_nearly_doubly_stochastic(rounds: int, added: float | None) -> None:
    x, eps = normal(ROWS, 16), 0.01
    found = ops().balance(x, 4, rounds, eps, added)
    for row, logits in zip(np.asarray(found), x.numpy(), strict=True):
        y = np.exp(logits.reshape(4, 4))
        y = y / y.sum(0) + (eps if added is None else added)
        y = y / (y.sum(1)[:, None] + eps)
        for _ in range(rounds - 1):
            y = y / (y.sum(0) + eps)
            y = y / (y.sum(1)[:, None] + eps)
        assert_near(row, y.reshape(-1))


def test_a_matrix_for_each_head() -> None:
    backend, x = ReferenceBackend(), normal(ROWS, 3 * 4)
    matrices = [Matrix("F32", (2, 4), seed) for seed in range(3)]
    found = ops().head_linear(x, [backend.load_weight(each) for each in matrices])
    heads = [
        x[:, 4 * h : 4 * h + 4].numpy() @ each.dequantise().reshape(2, 4).T for h, each in enumerate(matrices)
    ]
    assert_near(found, np.concatenate(heads, axis=1))


def test_rows_that_are_kept_and_given() -> None:
    x, out = normal(ROWS, 3), np.zeros((9, 3), np.float32)
    ops(kept=2).keep(x, out)
    assert_near(out, np.concatenate([np.zeros((2, 3)), x.numpy(), np.zeros((2, 3))]))
    given = ops().given(out)
    assert_near(given, out[:ROWS])
    out[:] = 9
    assert not (given == 9).any()


# -- experts


def routed(logits: Any, routing: Routing, bias: Any, scales: Any) -> tuple[list[int], list[float]]:
    """The experts of one row and their weights, chosen one after the other."""
    scores = {
        "softmax": np.exp(logits) / np.exp(logits).sum(), "sigmoid": 1 / (1 + np.exp(-logits)),
        ROOT: np.sqrt(np.log1p(np.exp(logits))),
    }[routing.scores]  # fmt: skip
    choice = (logits if routing.by_logit else scores) + (0 if bias is None else bias)
    size = len(logits) // routing.groups
    rank = [sum(sorted(choice[g * size :][:size])[-routing.group_best :]) for g in range(routing.groups)]
    open_groups = sorted(range(routing.groups), key=lambda g: -rank[g])[: routing.used_groups]
    order = sorted(range(len(logits)), key=lambda each: -choice[each])
    chosen = [each for each in order if each // size in open_groups][: routing.used]
    weights = [float(scores[each]) for each in chosen]
    if routing.nearness >= 0:
        weights = []
        for number, each in enumerate(chosen):
            top = logits[each]
            left = [logit for other, logit in enumerate(logits) if other not in chosen[:number]]
            near = [logit for logit in left if top - logit <= 2 * routing.nearness * max(abs(logit), top)]
            weights.append(1 / sum(math.exp(logit - top) for logit in near))
    elif routing.normalise:
        weights = [each / sum(weights) for each in weights]
    factors = np.ones(len(logits)) if scales is None else scales
    return chosen, [
        weight * factors[each] * routing.scale for each, weight in zip(chosen, weights, strict=True)
    ]


@pytest.mark.parametrize(
    "routing",
    [
        Routing(12, 3), Routing(12, 3, normalise=False, scale=2.5), Routing(12, 3, scores="sigmoid"),
        Routing(12, 2, scores=ROOT), Routing(12, 3, groups=4, used_groups=2),
        Routing(12, 3, scores="sigmoid", groups=4, used_groups=2, group_best=2),
        Routing(12, 3, scores="sigmoid", by_logit=True), Routing(12, 2, nearness=0.1),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("extras", [(), ("bias",), ("scales",)])
def test_routes(routing: Routing, extras: tuple[str, ...]) -> None:
    logits = 2 * normal(40, 12)
    bias = normal(12).numpy() if "bias" in extras and routing.nearness < 0 else None
    scales = normal(12).numpy() if "scales" in extras else None
    experts, weights = ops(40).route(logits, routing, bias, scales)
    for row, (chosen, shares) in enumerate(zip(np.asarray(experts), np.asarray(weights), strict=True)):
        expected = routed(logits[row].numpy(), routing, bias, scales)
        assert chosen.tolist() == expected[0]
        assert_near(shares, expected[1], 1e-6)


def test_experts_in_a_table() -> None:
    logits, table = normal(ROWS, 12), RNG.integers(0, 12, (30, 2)).astype(np.int32)
    experts, weights = ops().route(logits, Routing(12, 2, normalise=False), table=table)
    assert (np.asarray(experts) == table[:ROWS]).all()
    shares = torch.softmax(logits, 1).numpy()
    assert_near(weights, np.take_along_axis(shares, table[:ROWS].astype(int), 1))


def test_rows_go_to_their_experts_and_come_back() -> None:
    backend, x, residual = ReferenceBackend(), normal(ROWS, 4), normal(ROWS, 3)
    matrices = [Matrix("F32", (3, 4), seed) for seed in range(6)]
    bias = normal(6, 3).numpy()
    routes = (torch.from_numpy(RNG.integers(0, 6, (ROWS, 2))), normal(ROWS, 2))
    spread = ops().spread(x, routes)
    found = ops().expert_linear(spread, [backend.load_weight(each) for each in matrices], routes, bias)
    whole = ops().gather(found, routes, residual)
    for t in range(ROWS):
        parts = []
        for expert, weight in zip(routes[0][t].tolist(), routes[1][t].tolist(), strict=True):
            matrix = matrices[expert].dequantise().reshape(3, 4)
            parts.append(weight * (matrix @ x[t].numpy() + bias[expert]))
        assert_near(whole[t], sum(parts) + residual[t].numpy())
    assert_near(ops().gather(found, routes), whole - residual)


# -- attention


def bf16(value: float) -> float:
    return float(torch.tensor(value).bfloat16())


ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {}, "window": {"window": 4}, "chunks": {"window": 4, "chunked": True}, "cap": {"soft_cap": 1.5},
    "slopes": {"slopes": (0.5, 0.25, 0.125, 0.0625)}, "both ways": {"bidirectional": True},
    "rounded slopes": {"slopes": (0.5, 0.3, 0.125, 0.07), "rounded_slopes": 0.6},
    "both ways in a window": {"bidirectional": True, "window": 3, "slopes": (0.5, 0.25, 0.125, 0.0625)},
    "sinks": {}, "distances": {}, "chosen": {}, "latent": {"latent": 5},
    "relative": {}, "relative in a window": {"window": 4}, "relative, both ways": {"bidirectional": True},
    "relative, with sinks of rows": {"window": 5},
}  # fmt: skip


def attended(name: str, shape: AttentionShape, t: int, head: int, given: dict[str, Any]) -> Any:
    """One head's result for the query at position t, position by position."""
    group, total = head // (shape.heads // shape.kv_heads), len(given["q"])
    scores, values = [], []
    for s in range(total):
        away = s - t
        seen = away <= 0 if not shape.bidirectional else True
        if shape.chunked:
            seen = seen and s >= t // shape.window * shape.window
        elif shape.window:
            seen = seen and abs(away) < shape.window
        if not seen or (name == "chosen" and not given["chosen"][t, 0, s]):
            continue
        score = float(given["q"][t, head] @ given["k"][s, group]) * shape.scale
        if shape.soft_cap:
            score = shape.soft_cap * math.tanh(score / shape.soft_cap)
        if shape.rounded_slopes:
            score += shape.rounded_slopes * bf16(shape.slopes[head] * bf16(float(s)))
        elif shape.slopes:
            score += shape.slopes[head] * (-abs(away) if shape.bidirectional else away)
        if name == "distances":
            score += given["distances"][head, min(max(away, -2), 2) + 2]
        if name.startswith("relative") and 0 <= -away < given["profiles"].shape[1]:
            score += given["weights"][t, 3 * head : 3 * head + 3] @ given["profiles"][:, -away]
        scores.append(score)
        values.append(given["k"][s, group][: shape.latent] if shape.latent else given["v"][s, group])
    if name == "sinks":
        scores.append(given["sinks"][head])
        values.append(np.zeros_like(values[0]))
    if "sinks of rows" in name:
        scores.append(given["row_sinks"][t, head])
        values.append(np.zeros_like(values[0]))
    weights = np.exp(np.array(scores) - max(scores))
    return (weights[:, None] * np.array(values)).sum(0) / weights.sum()


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    shape, total = AttentionShape(4, 2, 6, 0.7, **ATTENTION[name]), 11
    given = {
        "q": normal(total, 4, 6).numpy(), "k": normal(total, 2, 6).numpy(), "v": normal(total, 2, 6).numpy(),
        "sinks": normal(4).numpy(), "distances": normal(4, 5).numpy(),
        "chosen": RNG.random((total, 1, total)) < 0.5,
        "weights": normal(total, 12).numpy(), "profiles": normal(3, 5).numpy(),
        "row_sinks": normal(total, 4).numpy(),
    }  # fmt: skip
    given["chosen"][np.arange(total), 0, np.arange(total)] = True
    q, k, v = (torch.from_numpy(given[each].reshape(total, -1)) for each in "qkv")
    more: dict[str, Any] = {each: given[each] for each in ("sinks", "distances") if each == name} | (
        {"chosen": torch.from_numpy(given["chosen"])} if name == "chosen" else {}
    )
    if name.startswith("relative"):
        sinks = torch.from_numpy(given["row_sinks"]) if "sinks of rows" in name else None
        more["relative"] = RelativeBias(torch.from_numpy(given["weights"]), given["profiles"], sinks)
    cache = ReferenceCache([shape], 1, "fp32")
    found = ops(total, cache=cache).attention(0, q, k, None if shape.latent else v, shape, **more)
    expected = [[attended(name, shape, t, head, given) for head in range(4)] for t in range(total)]
    assert_near(found, np.array(expected).reshape(total, -1))


@pytest.mark.parametrize(("dtype", "error"), [("fp16", 1e-3), ("fp8", 0.07), ("q8", 0.02), ("q4", 0.3)])
def test_what_is_written_does_not_depend_on_the_cut(dtype: str, error: float) -> None:
    shape, total = AttentionShape(2, 1, 32, 0.2), 300
    q, k, v = normal(total, 64), normal(total, 32), normal(total, 32)
    whole, cut = (ReferenceCache([shape], 2, dtype) for _ in range(2))
    ops(total, cache=whole).attention(0, q, k, v, shape)
    start = 0
    for rows in (1, 6, 20, 229, 44):
        part = slice(start, start + rows)
        ops(rows, start, cut).attention(0, q[part], k[part], v[part], shape)
        start += rows
    assert start == total
    for one, other, given in ((whole.keys, cut.keys, k), (whole.values, cut.values, v)):
        assert_near(one[0].float(), other[0].float())
        found = one[0].reshape(512, 32)[:total].float()
        differences = (found - given).norm(dim=1) / given.norm(dim=1)
        assert 0 < differences[1:].max() < error
        # the first key and value of a text, which attention looks at most, are not rounded to four bits
        assert (differences[0] < 1e-6) == (dtype == "q4")


# -- n-grams and states


def test_rows_of_n_grams() -> None:
    ngrams = NGrams((7, 11, 13), (2, 2, 3, 3), (50, 51, 52, 53), (0, 50, 101, 153), reset=1, outside=1)
    last = np.array([[5, 4, 3], [5, 1, 3], [5, 4, 1], [5, 4, -1], [5, -1, -1], [1, 4, 3]])
    for row, found in zip(last, hashed_rows(torch.from_numpy(last), ngrams), strict=True):
        tokens = [int(row[0])]
        for token in row[1:]:
            over = 1 in tokens[1:] or token in (1, -1)
            tokens.append(1 if over else int(token))
        pair = tokens[0] * 7 ^ tokens[1] * 11
        three = pair ^ tokens[2] * 13
        assert found.tolist() == [pair % 50, pair % 51 + 50, three % 52 + 101, three % 53 + 153]


def test_states_are_written_as_they_were_read() -> None:
    states = States((ConvolutionShape(3, 4), ConvolutionShape(5, 2)), 4)
    one, other = (ReferenceCache([AttentionShape(1, 1, 2, 1.0)], 1, "fp32", states) for _ in range(2))
    for part in one.state_parts:
        part[:] = torch.randn(part.shape)
    other.write_state(3, one.read_state(1))
    for mine, theirs in zip(one.state_parts, other.state_parts, strict=True):
        assert torch.equal(mine[1], theirs[3])
        assert not theirs[:3].any()
