"""Weights by their names: how a matrix is stored in a tensor, and what a survey says of the headers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint
from engine.models.building.source import (
    Loader,
    Survey,
    View,
    is_expert,
    linear,
    linear_parts,
    norm,
    vector_if,
)
from engine.weights.tensor import FileTensor

Floats = npt.NDArray[np.float32]
ORDER = np.array([4, 0, 3], np.int64)
FACTORS = np.array([0.5, 2.0, -1.0], np.float32)


def tensor(name: str, *shape: int) -> FileTensor:
    """Numbers that all differ, float32."""
    values = np.arange(np.prod(shape, dtype=np.int64), dtype=np.float32) + len(name)
    return FileTensor(name, "F32", shape, values.view(np.uint8))


def tensors(**shapes: tuple[int, ...]) -> dict[str, FileTensor]:
    return {name.replace("__", "."): tensor(name, *shape) for name, shape in shapes.items()}


def surveyed(found: dict[str, FileTensor]) -> Survey:
    return Survey(found, ReferenceBackend())


@pytest.mark.parametrize(
    ("view", "shape", "expected"),
    [
        (View(), (3, 8), lambda t: t),
        (View(part=2, parts=4), (4, 3, 8), lambda t: t[2]),
        (View(transposed=True), (8, 3), lambda t: t.T),
        (View(part=1, parts=2, transposed=True), (2, 8, 3), lambda t: t[1].T),
        (View(order=ORDER, stored_rows=5), (5, 8), lambda t: t[ORDER]),
        (View(order=ORDER, stored_rows=5, transposed=True), (8, 5), lambda t: t.T[ORDER]),
        (View(flipped=True), (8, 3), lambda t: t.T),
        (View(factors=FACTORS), (3, 8), lambda t: t * FACTORS[:, None]),
        (View(taps=2), (3, 4, 2), lambda t: t.reshape(3, 8)),
        (View(taps=2, factors=FACTORS), (3, 4, 2), lambda t: t.reshape(3, 8) * FACTORS[:, None]),
    ],
)  # fmt: skip
def test_views(view: View, shape: tuple[int, ...], expected: Any) -> None:
    """Of each, the matrix (3, 8) in a tensor of the shape that it states."""
    assert view.shape(3, 8) == shape
    stored = tensor("w", *shape)
    found = view.of(stored)
    assert found.shape == (3, 8)
    np.testing.assert_array_equal(found.dequantise(), expected(stored.dequantise()))


def test_a_vector_as_one_row() -> None:
    assert View(vector=True).shape(1, 6) == (6,)
    found = View(vector=True).of(tensor("v", 6))
    assert found.shape == (1, 6)
    np.testing.assert_array_equal(found.dequantise()[0], tensor("v", 6).dequantise())


def test_the_survey_counts_what_the_loader_loads() -> None:
    found = tensors(a__weight=(4, 8), a__bias=(4,), b__experts__0__up__weight=(2, 8), c=(3,))
    sources = [surveyed(found), Loader(found, ReferenceBackend())]
    for source in sources:
        linear(source, "a", 4, 8, bias=True)
        source.matrix("b.experts.0.up.weight", 2, 8)
        source.vector("c", 3)
        assert (source.bytes, source.expert_bytes) == (4 * (32 + 4 + 16 + 3), 4 * 16)
        assert source.linears["a"].weight.shape == (4, 8)
        assert (source.has("c"), source.has("d")) == (True, False)
    assert isinstance(sources[0], Survey)
    assert sources[0].parameters == 32 + 4 + 16 + 3
    sources[0].check("m")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (1, "m lacks tensors that its headers name: t0. The file is incomplete; download it again."),
        (5, "m lacks tensors that its headers name: t0, t1, t2, t3, t4. The file is"),
        (6, "m lacks tensors that its headers name: t0, t1, t2, t3, t4 and 1 more. The file is"),
    ],
)
def test_missing_tensors_are_named(missing: int, words: str) -> None:
    """Five of them at most, and how many more there are."""
    source = surveyed({})
    for number in range(missing):
        weight = source.matrix(f"t{number}", 2, 3) if number % 2 == 0 else source.vector(f"t{number}", 2)
        assert weight.shape == ((2, 3) if number % 2 == 0 else (2,))
    with pytest.raises(BadCheckpoint) as caught:
        source.check("m")
    assert str(caught.value).startswith(words)


def test_headers_that_name_too_many_tensors() -> None:
    source = surveyed({})
    for number in range(10_000):
        source.vector(f"t{number}", 1)
    with pytest.raises(BadCheckpoint, match="over 10000 tensors that are missing; the file is damaged"):
        source.vector("one more", 1)


def test_shapes_that_the_headers_do_not_state() -> None:
    """Only small tensors may have other dimensions of 1, or lack them."""
    source = surveyed(tensors(v=(1, 6), w=(6,), m=(1, 2, 6), n=(6, 1), o=(3, 1, 2)))
    assert source.vector("v", 6).shape == (6,)
    assert source.vector("n", 6).shape == (6,)
    assert source.vector("o", 1, 3, 2).shape == (1, 3, 2)
    assert source.vector("w", 1, 1, 6).shape == (1, 1, 6)
    with pytest.raises(BadCheckpoint, match=r"The tensor m has the shape \(1, 2, 6\), but the headers state"):
        source.matrix("m", 2, 6)
    with pytest.raises(BadCheckpoint, match="tensor o has the shape"):
        source.vector("o", 6)
    with pytest.raises(BadCheckpoint, match="tensor o has the shape"):
        source.vector("o", 2, 3)
    with pytest.raises(BadCheckpoint, match="tensor v has the shape"):
        source.vector("v", 5)
    loaded = Loader(tensors(v=(1, 6)), ReferenceBackend()).vector("v", 6)
    np.testing.assert_array_equal(loaded, tensor("v", 6).dequantise())


def test_biases_that_are_needed_or_there() -> None:
    """None: as the file has it. False: not even then."""
    source = Loader(tensors(a=(5,)), ReferenceBackend())
    values = tensor("a", 5).dequantise()
    for needed in (True, None):
        found = vector_if(source, "a", needed, 5)
        assert found is not None
        np.testing.assert_array_equal(found, values)
    ordered = vector_if(source, "a", None, 3, View(order=ORDER, stored_rows=5))
    assert ordered is not None
    np.testing.assert_array_equal(ordered, values[ORDER])
    assert vector_if(source, "a", False, 5) is None
    assert vector_if(source, "b", None, 5) is None
    counted = surveyed({})
    vector_if(counted, "b", True, 5)
    assert counted.missing == ["b"]


@pytest.mark.parametrize("names", [("n.weight", "n.bias"), ("n.gamma", "n.beta"), ("n", "n.bias")])
def test_names_of_norms(names: tuple[str, str]) -> None:
    """The first files of BERT have their own; Falcon-H1's GGUF files leave one's end out."""
    found = {name: tensor(name, 4) for name in names}
    made = norm(Loader(found, ReferenceBackend()), "n", 4, 1e-5, layer_norm=True, bias=True, offset=1.0)
    np.testing.assert_array_equal(made.weight, found[names[0]].dequantise() + 1)
    assert made.bias is not None
    np.testing.assert_array_equal(made.bias, found[names[1]].dequantise())
    assert (made.eps, made.is_layer_norm) == (1e-5, True)


def test_linears_that_are_rows_of_one_matrix() -> None:
    found, x = tensors(qk__weight=(5, 8), qk__bias=(5,)), np.ones((1, 8), np.float32)
    source = Loader(found, ReferenceBackend())
    orders = (np.array([3, 1], np.int64), np.array([0, 2, 4], np.int64))
    made = linear_parts(source, "qk", orders, 8, bias=None)
    whole = x @ found["qk.weight"].dequantise().T + found["qk.bias"].dequantise()
    assert list(source.linears) == ["qk first", "qk second"]
    assert list(source.linears.values()) == list(made)
    for part, order in zip(made, orders, strict=True):
        assert part.weight.shape == (len(order), 8)
        assert part.bias is not None
        weight: Any = part.weight
        np.testing.assert_array_equal(x @ np.asarray(weight.values).T + part.bias, whole[:, order])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.mlp.experts.7.up_proj.weight", True), ("blk.3.ffn_up_exps.weight", True),
        ("blk.0.ffn_gate.5.weight", True), ("blk.0.ffn_gate.weight", False),
        ("model.layers.0.block_sparse_moe.input_linear.weight", True), ("blk.0.ffn_gate_inp.weight", False),
        ("model.layers.3.mlp.shared_expert.up_proj.weight", False),
    ],
)  # fmt: skip
def test_experts_by_their_names(name: str, expected: bool) -> None:
    assert is_expert(name) is expected
