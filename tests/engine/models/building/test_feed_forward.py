"""Feed-forward parts from their tensors: plain, gated in one matrix or two, with shared experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import Step
from engine.backends.reference.backend import ReferenceBackend, ReferenceOps
from engine.models.building.decoder import Builder
from engine.models.building.feed_forward import experts_of, with_bias_of_sum
from engine.models.building.source import Loader
from engine.models.config.experts import Experts
from engine.models.config.recurrent import Multipliers
from engine.models.layers.mixture import Mixture
from engine.models.layers.parts import GatedMlp, Norm, PlainMlp
from engine.models.names import HF, TensorNames
from engine.weights.tensor import FileTensor
from tests.engine.models.building.test_decoder import WIDTH, config

INNER, ROWS = 20, 3
RNG = np.random.default_rng(6)
EXPERT_NAMES = replace(
    HF, router="gate", expert_gate="experts.{}.gate", expert_up="experts.{}.up",
    expert_down="experts.{}.down", shared_gate="shared.gate", shared_up="shared.up",
    shared_down="shared.down", shared_router="shared_router",
)  # fmt: skip


class Tensors:
    """A source of random tensors of these shapes; `values` are their numbers."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.values = {
            name.replace("__", "."): RNG.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        found = {
            name: FileTensor(name, "F32", each.shape, each.reshape(-1).view(np.uint8))
            for name, each in self.values.items()
        }
        self.loader = Loader(found, ReferenceBackend())

    def mlp(self, names: TensorNames = HF, layer: int = 0, **changes: Any) -> Any:
        sizes: dict[str, Any] = {"ffn_width": INNER}
        return Builder(self.loader, config(**{**sizes, **changes}), names).mlp(layer, "")


SEPARATE: dict[str, tuple[int, ...]] = {
    "mlp__gate_proj__weight": (INNER, WIDTH), "mlp__up_proj__weight": (INNER, WIDTH),
    "mlp__down_proj__weight": (WIDTH, INNER),
}  # fmt: skip


def result(mlp: Any, x: Any) -> Any:
    places = np.arange(ROWS, dtype=np.int32)
    ops: Any = ReferenceOps(Step(places, places, np.zeros(1, np.int32)), None)  # type: ignore[arg-type]
    return mlp(ops, torch.from_numpy(x)).numpy()


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def test_a_gate_and_what_it_multiplies() -> None:
    tensors, x = Tensors(**SEPARATE), RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
    gate, up, down = tensors.values.values()
    usual = silu(x @ gate.T) * (x @ up.T) @ down.T
    np.testing.assert_allclose(result(tensors.mlp(), x), usual, atol=1e-3)
    scaled = tensors.mlp(multipliers=Multipliers(mlp_gate=0.5, mlp_output=3.0))
    expected = 3 * (silu(0.5 * x @ gate.T) * (x @ up.T)) @ down.T
    np.testing.assert_allclose(result(scaled, x), expected, atol=1e-3)
    limited = tensors.mlp(mlp_limits=((1.0, 0.5), None))
    expected = silu(x @ gate.T).clip(-1, 1) * (x @ up.T).clip(-0.5, 0.5) @ down.T
    np.testing.assert_allclose(result(limited, x), expected, atol=1e-3)
    np.testing.assert_allclose(
        result(tensors.mlp(layer=1, mlp_limits=((1.0, 0.5), None)), x), usual, atol=1e-3
    )
    assert tensors.mlp(activation="gelu").activation == "gelu"


def test_a_norm_inside() -> None:
    tensors = Tensors(**SEPARATE, inside__weight=(INNER,))
    assert tensors.mlp().norm is None
    normed = tensors.mlp(replace(HF, inner_norm="inside"), inner_norms=True)
    assert normed.norm.weight.tolist() == tensors.values["inside.weight"].tolist()


@pytest.mark.parametrize("last", [False, True])
def test_a_gate_in_one_matrix_with_what_it_multiplies(last: bool) -> None:
    tensors = Tensors(both__weight=(2 * INNER, WIDTH), mlp__down_proj__weight=(WIDTH, INNER))
    names = replace(HF, gate_up="both", gate_last=last)
    x = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
    both, down = tensors.values.values()
    gate, up = (both[INNER:], both[:INNER]) if last else (both[:INNER], both[INNER:])
    expected = silu(x @ gate.T) * (x @ up.T) @ down.T
    np.testing.assert_allclose(result(tensors.mlp(names), x), expected, atol=1e-3)
    apart = Tensors(both__weight=(2 * INNER, WIDTH), **SEPARATE).mlp(names)
    assert isinstance(apart, GatedMlp)
    assert apart.gate is not None, "matrices of their own count first"


def test_a_part_without_a_gate() -> None:
    tensors, x = Tensors(**SEPARATE), RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
    _gate, up, down = tensors.values.values()
    plain = tensors.mlp(gated=False, activation="relu")
    assert isinstance(plain, PlainMlp)
    np.testing.assert_allclose(result(plain, x), (x @ up.T).clip(0) @ down.T, atol=1e-3)
    numbers = ((0.8, 0.6, 0.5), (0.1, 0.2, 0.3))
    made = tensors.mlp(layer=1, gated=False, activation="xielu", xielu=numbers)
    assert (made.activation, made.numbers) == ("xielu", numbers[1])


def mixed(
    experts: Experts, layer: int = 0, shapes: dict[str, tuple[int, ...]] | None = None,
    names: TensorNames = EXPERT_NAMES,
) -> Any:  # fmt: skip
    sizes: dict[str, tuple[int, ...]] = {"gate__weight": (2, WIDTH), **SEPARATE, **(shapes or {})}
    for number in range(2):
        sizes |= {f"experts__{number}__{part}__weight": (8, WIDTH) for part in ("gate", "up")}
        sizes[f"experts__{number}__down__weight"] = (WIDTH, 8)
    return Tensors(**sizes).mlp(names, layer, experts=experts)


def test_layers_with_experts_and_what_they_share() -> None:
    experts = Experts(2, 1, 8, True, frozenset({1}))
    assert isinstance(mixed(experts), GatedMlp)
    plain = mixed(experts, layer=1)
    assert isinstance(plain, Mixture)
    assert (plain.shared, plain.shared_gate) == (None, None)
    own: dict[str, tuple[int, ...]] = {
        "shared__gate__weight": (6, WIDTH), "shared__up__weight": (6, WIDTH),
        "shared__down__weight": (WIDTH, 6), "shared_router__weight": (1, WIDTH),
    }  # fmt: skip
    shared = mixed(replace(experts, shared_width=6, shared_scale=2.5), layer=1, shapes=own)
    assert (shared.shared.width, shared.shared.scale, shared.shared_gate) == (6, 2.5, None)
    gated = mixed(replace(experts, shared_width=6, shared_gate=True), layer=1, shapes=own)
    assert gated.shared_gate.weight.shape == (1, WIDTH)
    vector = own | {"shared_router__weight": (WIDTH,)}
    names = replace(EXPERT_NAMES, shared_gate_vector=True)
    gated = mixed(replace(experts, shared_width=6, shared_gate=True), 1, vector, names)
    assert gated.shared_gate.weight.shape == (1, WIDTH)
    assert isinstance(mixed(replace(experts, apart=True), layer=1), GatedMlp)


def test_which_layers_have_experts() -> None:
    experts = Experts(2, 1, 8, True, frozenset({1}))
    assert experts_of(config(), 1) is experts_of(config(experts=experts), 0) is None
    assert experts_of(config(experts=experts), 1) is experts


def test_the_bias_of_the_sum_of_experts() -> None:
    tensors = Tensors(model__layers__1__sum=(WIDTH,))
    names, own = replace(HF, expert_sum_bias="sum"), tensors.values["model.layers.1.sum"]
    experts = Experts(2, 1, 8, True, frozenset({1}), sum_bias=True)
    bare = Norm(np.ones(WIDTH, np.float32), 1e-6)
    post = replace(bare, bias=np.full(WIDTH, 2, np.float32))

    def made(norm: Norm | None, layer: int = 1, experts: Experts | None = experts) -> Norm | None:
        return with_bias_of_sum(tensors.loader, config(experts=experts), names, layer, norm)

    for norm, expected in ((bare, own), (post, own + 2)):
        found = made(norm)
        assert found is not None
        assert found.bias is not None
        np.testing.assert_allclose(found.bias, expected)
    assert made(None) is made(post, 0) is made(post, 1, None) is None
    assert made(post, 1, replace(experts, sum_bias=False)) is None
