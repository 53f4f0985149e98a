"""Attention's parts against NumPy: what makes queries, keys and values, norms, gates, scales, and a sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.reference.backend import ReferenceBackend, ReferenceOps
from engine.backends.reference.kv_cache import ReferenceCache
from engine.models.building.attention import (
    Attention,
    BesideAttention,
    FusedQkv,
    KeysAsValues,
    QueryAlone,
    SeparateQkv,
    qk_norm,
)
from engine.models.building.source import Loader
from engine.models.layers.parts import Linear, Norm, RopeTables
from engine.models.load import read_config
from engine.weights import open_checkpoint
from engine.weights.tensor import FileTensor
from tests.engine.backends.kernel_oracles import Matrix
from tests.tiny import TINY, write_folder

ROWS, WIDTH, DIM = 6, 8, 4
SHAPE = AttentionShape(4, 2, DIM, 0.6)
RNG = np.random.default_rng(5)


class Weights:
    """A linear of the reference backend, and its matrix."""

    def __init__(self, rows: int, columns: int, seed: int) -> None:
        matrix = Matrix("F32", (rows, columns), seed)
        self.linear = Linear(ReferenceBackend().load_weight(matrix), None)
        self.matrix = matrix.dequantise().reshape(rows, columns)


QUERY, KEY, VALUE = Weights(16, WIDTH, 1), Weights(8, WIDTH, 2), Weights(8, WIDTH, 3)
OUTPUT, GATE, NARROW = Weights(WIDTH, 16, 4), Weights(16, WIDTH, 5), Weights(WIDTH, 12, 6)
SEPARATE = SeparateQkv(QUERY.linear, KEY.linear, VALUE.linear)


def rows(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def ops(shape: AttentionShape = SHAPE) -> ReferenceOps:
    places = np.arange(ROWS, dtype=np.int32)
    return ReferenceOps(Step(places, places, np.zeros(1, np.int32)), ReferenceCache([shape], 1, "fp32"))


def attended(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of 4 heads that share 2 keys and values."""
    out = np.zeros((ROWS, 4, DIM))
    q, k, v = q.reshape(ROWS, 4, DIM), k.reshape(ROWS, 2, DIM), v.reshape(ROWS, 2, -1)
    for t in range(ROWS):
        for head in range(4):
            scores = np.exp(k[: t + 1, head // 2] @ q[t, head] * 0.6)
            out[t, head, : v.shape[2]] = scores @ v[: t + 1, head // 2] / scores.sum()
    return out.reshape(ROWS, 16)


def rms(x: Any, heads: int, weight: Any = 1.0) -> Any:
    parts = x.reshape(ROWS, heads, -1)
    return (parts / np.sqrt((parts**2).mean(2, keepdims=True) + 1e-5) * weight).reshape(ROWS, -1)


def result(attention: Attention, x: Any, residual: Any = None) -> Any:
    given = None if residual is None else torch.from_numpy(residual)
    found: Any = attention(ops(), torch.from_numpy(x), RopeTables(), given)
    return found.numpy()


def test_inputs_of_every_kind() -> None:
    x = torch.from_numpy(rows(ROWS, WIDTH))
    q, k, v = (x.numpy() @ each.matrix.T for each in (QUERY, KEY, VALUE))
    both = np.concatenate([QUERY.matrix, KEY.matrix, VALUE.matrix]).ravel()
    fused = FileTensor("w", "F32", (32, WIDTH), both.view(np.uint8))
    one = Linear(ReferenceBackend().load_weight(fused), None)
    for made, expected in (
        (FusedQkv(one, (16, 8, 8)), (q, k, v)), (SEPARATE, (q, k, v)),
        (KeysAsValues(QUERY.linear, KEY.linear), (q, k, k)), (QueryAlone(QUERY.linear), (q, None, None)),
    ):  # fmt: skip
        for found, right in zip(made(ops(), x), expected, strict=True):
            assert (found is None) == (right is None)
            assert found is None or np.allclose(found, right, atol=1e-5)


def test_attention_and_what_stands_around_it() -> None:
    x, residual, weight = rows(ROWS, WIDTH), rows(ROWS, WIDTH), rows(DIM)
    q, k, v = (x @ each.matrix.T for each in (QUERY, KEY, VALUE))
    plain = Attention(0, SHAPE, SEPARATE, OUTPUT.linear, rope="none")
    np.testing.assert_allclose(result(plain, x), attended(q, k, v) @ OUTPUT.matrix.T, atol=1e-4)
    expected = attended(q, k, v) @ OUTPUT.matrix.T + residual
    np.testing.assert_allclose(result(plain, x, residual), expected, atol=1e-4)
    query_norm, key_norm = Norm(weight, 1e-5, heads=4), Norm(2 * weight, 1e-5, heads=2)
    normed = attended(rms(q, 4, weight), rms(k, 2, 2 * weight), v) @ OUTPUT.matrix.T
    for last in (False, True):
        made = replace(plain, query_norm=query_norm, key_norm=key_norm, norm_last=last)
        np.testing.assert_allclose(result(made, x), normed, atol=1e-4)
    for changes, expected in (
        ({"value_norm": Norm(weight, 1e-5, heads=2)}, attended(q, k, rms(v, 2, weight))),
        ({"clip": 0.5}, attended(*(each.clip(-0.5, 0.5) for each in (q, k, v)))),
        ({"value_scale": 0.5}, attended(q, k, 0.5 * v)),
        ({"result_norm": Norm(weight, 1e-5, heads=4)}, rms(attended(q, k, v), 4, weight)),
        ({"gate": GATE.linear}, attended(q, k, v) / (1 + np.exp(-x @ GATE.matrix.T))),
        ({"gate": GATE.linear, "activation": "identity"}, attended(q, k, v) * (x @ GATE.matrix.T)),
    ):
        found = result(replace(plain, **changes), x)
        np.testing.assert_allclose(found, expected @ OUTPUT.matrix.T, atol=1e-4)


def test_which_table_scales_queries() -> None:
    x = 0.1 * rows(ROWS, WIDTH)
    q, k, v = (x @ each.matrix.T for each in (QUERY, KEY, VALUE))

    def table(scale: float) -> RotaryTable:
        """Of no rotation, which multiplies."""
        whole = np.ones((ROWS, DIM // 2), np.float32)
        return RotaryTable(scale * whole, 0 * whole, interleaved=False)

    tables = RopeTables(table(2), table(3), table(5), table(7))
    for rope, (of_queries, of_keys) in {
        "main": (5, 2), "local": (3, 3), "scaled": (7, 1), "none": (1, 1)
    }.items():  # fmt: skip
        made = Attention(0, SHAPE, SEPARATE, OUTPUT.linear, rope=rope)
        found: Any = made(ops(), torch.from_numpy(x), tables)
        expected = attended(of_queries * q, of_keys * k, v) @ OUTPUT.matrix.T
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-3)
    alone: Any = Attention(0, SHAPE, SEPARATE, OUTPUT.linear)(
        ops(), torch.from_numpy(x), RopeTables(table(2))
    )
    np.testing.assert_allclose(alone.numpy(), attended(2 * q, 2 * k, v) @ OUTPUT.matrix.T, atol=1e-3)


def test_values_that_are_shorter_than_keys() -> None:
    x, value = rows(ROWS, WIDTH), Weights(6, WIDTH, 7)
    short = SeparateQkv(QUERY.linear, KEY.linear, value.linear)
    made = Attention(0, SHAPE, short, NARROW.linear, rope="none", value_dim=3)
    whole = attended(x @ QUERY.matrix.T, x @ KEY.matrix.T, x @ value.matrix.T).reshape(ROWS, 4, DIM)
    expected = whole[:, :, :3].reshape(ROWS, 12) @ NARROW.matrix.T
    np.testing.assert_allclose(result(made, x), expected, atol=1e-4)


@pytest.mark.parametrize("first", [(1.0, 1.0), (0.5, 2.0)])
@pytest.mark.parametrize("second", [(1.0, 1.0), (3.0, 0.25)])
@pytest.mark.parametrize("with_residual", [False, True])
def test_a_recurrent_part_and_attention_are_added(first: Any, second: Any, with_residual: bool) -> None:
    x, residual = rows(ROWS, WIDTH), rows(ROWS, WIDTH) if with_residual else None

    def recurrent(ops: Any, x: Any, tables: Any, residual: Any = None) -> Any:
        return 7 * x if residual is None else 7 * x + residual

    attention = Attention(0, SHAPE, SEPARATE, OUTPUT.linear, rope="none")
    (before, after), (into, out_of) = first, second
    made = BesideAttention(recurrent, attention, first, second)
    given = None if residual is None else torch.from_numpy(residual)
    found = made(ops(), torch.from_numpy(x), RopeTables(), given)
    expected = after * 7 * before * x + out_of * result(attention, into * x)
    expected = expected if residual is None else expected + residual
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)


def test_norms_of_queries_and_keys(tmp_path: Any) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", TINY))
    config = replace(read_config(checkpoint), norm_eps=1e-3, norm_offset=1.0)
    values = {"n.weight": rows(8), "n.bias": rows(8), "h.weight": rows(4), "n.0.weight": rows(4),
              "n.1.weight": rows(4)}  # fmt: skip
    source = Loader(
        {name: FileTensor(name, "F32", each.shape, each.view(np.uint8)) for name, each in values.items()},
        ReferenceBackend(),
    )

    def made(kind: str, name: str = "n", rope: str = "main", **changes: Any) -> Norm | None:
        return qk_norm(source, replace(config, qk_norm=kind, **changes), name, 2, 4, rope)

    assert made("none") is made("roped", rope="none") is made("roped", rope="scaled") is None
    for bare in (made("bare"), made("roped")):
        assert bare is not None
        assert (bare.weight.tolist(), bare.eps, bare.heads, bare.is_layer_norm) == ([1.0] * 4, 1e-3, 2, False)
    row, each, listed, head = made("row"), made("each"), made("each", "n.{}"), made("head", "h")
    assert row is not None
    assert each is not None
    assert listed is not None
    assert head is not None
    assert (row.weight.tolist(), row.heads, row.bias) == (values["n.weight"].tolist(), 1, None)
    assert (each.weight.tolist(), each.heads, each.eps) == (values["n.weight"].tolist(), 2, 1e-3)
    assert each.bias is not None
    assert each.bias.tolist() == values["n.bias"].tolist()
    both = [*values["n.0.weight"].tolist(), *values["n.1.weight"].tolist()]
    assert (listed.weight.tolist(), listed.bias) == (both, None)
    assert (head.weight.tolist(), head.heads) == ((values["h.weight"] + 1).tolist(), 2)
    other = made("each", qk_norm_eps=0.5, qk_layer_norm=True)
    assert other is not None
    assert (other.eps, other.is_layer_norm) == (0.5, True)
