from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import Step
from engine.backends.cuda.kernels import moe, routes
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.lowering.call import Runtime
from engine.backends.graph.buffers import Buffer
from engine.backends.reference.backend import ReferenceOps
from engine.backends.routing import ROOT, SCORES, Routing
from tests.simt.played import TABLES, empty, laid_out, played

OPS: Any = ReferenceOps(Step(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)), None)  # type: ignore[arg-type]


def numbers(*shape: int, spread: float = 1.0) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * spread).astype(np.float32)


def routed(logits: Any, routing: Routing, bias: Any = None, scales: Any = None) -> list[tuple[Any, Any]]:
    """ids and weights, by the interpreter and by the model."""
    a, ids, weights = Buffer(routing.experts), Buffer(routing.used), Buffer(routing.used)
    rows, used = len(logits), routing.used
    arrays: dict[Any, Any] = {a: laid_out(logits), ids: empty(ids, rows), weights: empty(weights, rows)}
    vectors = {TABLES[i]: each for i, each in enumerate((bias, scales)) if each is not None}
    at = [0 if each is None else TABLES[i] for i, each in enumerate((bias, scales))]
    out = played(routes.route_call(a, ids, weights, routing, *at), arrays | vectors, rows)
    return [(o[ids].view(np.int32)[:, :used], o[weights][:, :used]) for o in out]


@pytest.mark.parametrize(("count", "used"), [(8, 2), (60, 4), (128, 8), (37, 37), (256, 8), (512, 10)])
@pytest.mark.parametrize("normalise", [True, False])
def test_route(count: int, used: int, normalise: bool) -> None:
    routing = Routing(count, used, normalise)
    logits = numbers(2, count, spread=3.0)
    expected, shares = OPS.route(torch.from_numpy(logits), routing)
    for ids, weights in routed(logits, routing):
        np.testing.assert_array_equal(ids, expected.numpy())
        np.testing.assert_allclose(weights, shares.numpy(), rtol=3e-6)


SCORED = {
    "sigmoid": Routing(37, 5, False, "sigmoid"),
    "by their logits": Routing(41, 5, False, "sigmoid", by_logit=True),
    "512 by their logits": Routing(512, 10, True, "sigmoid", by_logit=True),
    "groups by logits": Routing(40, 6, True, "sigmoid", 0.5, 8, 3, 2, by_logit=True),
    "one of one": Routing(1, 1, False, "sigmoid"),
    "roots of softplus": Routing(256, 6, True, ROOT, 1.5),
    "a scale": Routing(60, 4, True, scale=2.5),
    "groups by their best": Routing(40, 6, False, groups=8, used_groups=3, scale=0.7),
    "groups by their two best": Routing(256, 8, True, "sigmoid", 2.5, 8, 4, 2),
    "groups of one expert": Routing(6, 2, True, "sigmoid", 1.0, 6, 3, 2),
    "32 groups": Routing(512, 10, True, "softmax", 1.0, 32, 5, 2),
    **{
        f"{count} by {scores}": Routing(count, 6, True, scores)
        for count in (32, 128, 256, 512)
        for scores in ("softmax", "sigmoid")
    },
}


@pytest.mark.slow_after(14)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", SCORED)
def test_route_scored(name: str, with_bias: bool) -> None:
    routing = SCORED[name]
    logits = numbers(3, routing.experts, spread=2.0)
    bias = numbers(routing.experts, spread=0.3) if with_bias else None
    scales = np.abs(numbers(routing.experts + 1))[1:] + np.float32(0.5) if with_bias else None
    expected, shares = OPS.route(torch.from_numpy(logits), routing, bias, scales)
    for ids, weights in routed(logits, routing, bias, scales):
        np.testing.assert_array_equal(ids, expected.numpy())
        np.testing.assert_allclose(weights, shares.numpy(), rtol=5e-6)


@pytest.mark.parametrize("nearness", [0.0, 0.01, 0.4])
@pytest.mark.parametrize(("count", "used"), [(16, 2), (70, 5)])
def test_weights_of_near_experts(count: int, used: int, nearness: float) -> None:
    """SparseMixer's: with logits of either sign, and with equal ones."""
    routing = Routing(count, used, False, nearness=nearness, scale=1.5)
    logits = numbers(3, count, spread=0.5)
    logits[1] -= 3.0
    logits[2, 3:6] = 2.0
    scales = np.abs(numbers(count)) + np.float32(0.5)
    expected, shares = OPS.route(torch.from_numpy(logits), routing, None, scales)
    for ids, weights in routed(logits, routing, None, scales):
        np.testing.assert_array_equal(ids, expected.numpy())
        np.testing.assert_allclose(weights, shares.numpy(), rtol=5e-6)


@pytest.mark.parametrize("scores", [*SCORES, ROOT])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(("count", "used"), [(9, 2), (70, 40)])
def test_experts_of_a_table(count: int, used: int, normalise: bool, scores: str) -> None:
    """Those of the rows' tokens."""
    routing, rng = Routing(count, used, normalise, scores, 1.5), np.random.default_rng(used)
    table = np.array([rng.permutation(count)[:used] for _ in range(7)], np.int32)
    tokens, logits = np.array([5, 0, 6], np.int32), numbers(3, count, spread=4.0)
    x, ids, weights = Buffer(count), Buffer(used), Buffer(used)
    given = {x: laid_out(logits), ids: empty(ids, 3), weights: empty(weights, 3), TABLES[0]: table,
             Runtime.TOKENS: tokens}  # fmt: skip
    ops: Any = ReferenceOps(Step(tokens, tokens, np.zeros(1, np.int32)), None)  # type: ignore[arg-type]
    expected, shares = ops.route(torch.from_numpy(logits), routing, table=table)
    for out in played(routes.tabled_call(x, ids, weights, routing, TABLES[0]), given, 3):
        np.testing.assert_array_equal(out[ids].view(np.int32)[:, :used], expected.numpy())
        np.testing.assert_allclose(out[weights][:, :used], shares.numpy(), rtol=5e-6)


def test_a_bias_counts_for_the_choice_alone() -> None:
    logits, bias = np.zeros((1, 6), np.float32), np.zeros(6, np.float32)
    bias[[4, 2]] = 2.0, -1.0
    for ids, weights in routed(logits, Routing(6, 5, False, "sigmoid"), bias):
        assert ids.tolist() == [[4, 0, 1, 3, 5]]
        np.testing.assert_allclose(weights, 0.5, rtol=1e-6)


def test_a_bias_of_logits_chooses_as_that_of_scores_would_not() -> None:
    logits, bias = np.array([[9.0, 2.0, 0.0]], np.float32), np.array([0.0, 0.0, 1.0], np.float32)
    for by_logit, best in ((True, 0), (False, 2)):
        for ids, weights in routed(logits, Routing(3, 1, False, "sigmoid", by_logit=by_logit), bias):
            assert ids.tolist() == [[best]]
            np.testing.assert_allclose(weights, 1 / (1 + np.exp(-logits[:, [best]])), rtol=1e-6)


def test_sigmoids_that_are_all_zero_give_no_weights() -> None:
    for ids, weights in routed(np.full((1, 8), -1000, np.float32), Routing(8, 2, True, "sigmoid")):
        assert ids.tolist() == [[0, 1]]
        assert weights.tolist() == [[0, 0]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_ids_are_experts_of_open_groups_whatever_the_logits() -> None:
    logits = np.zeros((3, 40), np.float32)
    logits[0], logits[1], logits[2, 5:10] = np.nan, -np.inf, np.nan
    for ids, _ in routed(logits, Routing(40, 6, True, "sigmoid", 1.0, 8, 2, 2)):
        assert ids.tolist() == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 10]]


def test_of_equal_experts_the_first() -> None:
    logits = np.zeros((2, 70), np.float32)
    logits[0, [65, 3, 40]] = 2.0
    logits[1, ::2] = -0.0  # equal to 0, whatever its sign
    for ids, weights in routed(logits, Routing(70, 5)):
        assert ids.tolist() == [[3, 40, 65, 0, 1], [0, 1, 2, 3, 4]]
        np.testing.assert_allclose(weights[1], 0.2, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_ids_are_experts_whatever_the_logits() -> None:
    logits = np.zeros((4, 40), np.float32)
    logits[0], logits[1], logits[2, 5], logits[3] = np.nan, -np.inf, np.inf, -3e38
    logits[3, 33] = 3e38
    found = routed(logits, Routing(40, 4))
    for ids, _ in found:
        assert ids.tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [5, 0, 1, 2], [33, 0, 1, 2]]
    assert found[0][1][3].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("width", [70, 516])
def test_spread(width: int) -> None:
    x = numbers(3, width)
    a, y = Buffer(width), Buffer(width, copies=3)
    for out in played(moe.spread_call(a, y), {a: laid_out(x), y: empty(y, 9)}, 3):
        np.testing.assert_array_equal(
            out[y][:, :width], OPS.spread(torch.from_numpy(x), (torch.zeros(3, 3), None)).numpy()
        )
        assert (out[y][:, width:] == -77).all()


def test_records_are_spread_bit_for_bit() -> None:
    a = packed_buffer("fp16", Buffer(100))
    y = Buffer(a.width, copies=2)
    x = np.random.default_rng(0).integers(0, 1 << 32, (2, a.stride // 4), np.uint64).astype(np.uint32)
    for out in played(moe.spread_call(a, y), {a: x.view(np.float32), y: empty(y, 4)}, 2):
        np.testing.assert_array_equal(out[y].view(np.uint32)[:, : a.width], x[[0, 0, 1, 1], : a.width])


@pytest.mark.parametrize(("width", "used"), [(1, 1), (131, 6), (514, 4)])
def test_gather(width: int, used: int) -> None:
    x, weights, residual = numbers(2 * used, width), np.abs(numbers(2, used)), numbers(2, width, spread=2.0)
    a, w, r, y = Buffer(width, copies=used), Buffer(used), Buffer(width), Buffer(width)
    arrays = {a: laid_out(x), w: laid_out(weights), r: laid_out(residual), y: empty(y, 2)}
    expected = OPS.gather(
        torch.from_numpy(x), (None, torch.from_numpy(weights)), torch.from_numpy(residual)
    ).numpy()
    for out in played(moe.gather_call(a, w, r, y), arrays, 2):
        np.testing.assert_allclose(out[y][:, :width], expected, rtol=2e-6, atol=2e-6)
        assert (out[y][:, width:] == -77).all()


def test_gather_without_a_residual() -> None:
    x, weights = numbers(6, 131), np.abs(numbers(2, 3))
    a, w, y = Buffer(131, copies=3), Buffer(3), Buffer(131)
    arrays = {a: laid_out(x), w: laid_out(weights), y: empty(y, 2)}
    expected = OPS.gather(torch.from_numpy(x), (None, torch.from_numpy(weights))).numpy()
    for out in played(moe.gather_call(a, w, None, y), arrays, 2):
        np.testing.assert_allclose(out[y][:, :131], expected, rtol=2e-6, atol=2e-6)


def test_rows_do_not_know_of_each_other() -> None:
    logits = numbers(3, 50)
    (together, weights), _ = routed(logits, Routing(50, 6, False))
    for row in range(3):
        (ids, alone), _ = routed(logits[row : row + 1], Routing(50, 6, False))
        np.testing.assert_array_equal(ids[0], together[row])
        np.testing.assert_array_equal(alone[0], weights[row])
