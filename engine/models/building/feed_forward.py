"""Builds the feed-forward part of any layer: plain, a mixture of experts, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.models.building.source import WHOLE, View, WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.layers.mixture import beside_experts, expert_table, mixture, past_attention
from engine.models.layers.parts import FeedForward, GatedMlp, Linear, Norm, PlainMlp
from engine.models.layers.xielu import xielu_numbers
from engine.models.names import TensorNames


def experts_of(config: ModelConfig, layer: int) -> Experts | None:
    """A layer's experts, if it has any."""
    experts = config.experts
    return experts if experts is not None and layer in experts.layers else None


@dataclass(frozen=True, slots=True)
class FeedForwards:
    """Builds them from `source`; `view` is that of its matrices, `norm` makes a norm of a row, and `linear` a
    matrix (rows, columns) with its bias, by their names.
    """

    source: WeightSource
    config: ModelConfig
    names: TensorNames
    view: View
    norm: Callable[[str, int], Norm]
    linear: Callable[[str, int, int, bool | None], Linear]

    def of(self, layer: int, at: str) -> FeedForward:
        """The feed-forward part of a layer whose names begin with `at`."""
        config, names = self.config, self.names
        experts, plain = experts_of(config, layer), None
        if experts is None or experts.beside or experts.apart or experts.past_attention:
            own = (names.gate, names.up, names.down, names.gate_up)
            plain = self._plain(layer, at, own, config.ffn_of(layer), config.mlp_bias)
        if experts is None or experts.apart:
            assert plain is not None
            return plain
        limits = config.expert_limits[layer] if config.expert_limits else None
        tabled = layer in experts.tabled
        own_experts = replace(experts, corrected=False) if tabled else experts
        made = mixture(self.source, config, names, own_experts, at, limits)
        if tabled:
            made = replace(made, table=expert_table(self.source, config, names, experts, at))
        if plain is not None:
            both = past_attention if experts.past_attention else beside_experts
            return both(self.source, config, names, at, plain, made)
        if not experts.shared_width:
            return made
        own = (names.shared_gate, names.shared_up, names.shared_down, names.shared_gate_up)
        shared = self._plain(layer, at, own, experts.shared_width, config.mlp_bias)
        if experts.shared_scale != 1.0:
            assert isinstance(shared, GatedMlp)
            shared = replace(shared, scale=experts.shared_scale * shared.scale)
        if experts.shared_shares:
            shares = self.linear(at + names.shared_router, 2, config.width, True)
            return replace(made, shared=shared, shares=shares)
        return replace(
            made,
            shared=shared,
            shared_gate=self._shared_gate(at + names.shared_router) if experts.shared_gate else None,
        )

    def _plain(
        self, layer: int, at: str, names: tuple[str, str, str, str], inner: int, bias: bool | None
    ) -> GatedMlp | PlainMlp:
        """From the names of gate, up, down, and of gate and up in one."""
        config, width = self.config, self.config.width
        gate, up, down, gate_up = (name and at + name for name in names)
        last = self.linear(down, width, inner, bias)
        limits = config.mlp_limits[layer] if config.mlp_limits else None
        if not config.gated:
            first = self.linear(up, inner, width, bias)
            if config.activation != "xielu":
                return PlainMlp(first, last, config.activation)
            return PlainMlp(first, last, "xielu", xielu_numbers(self.source, config, self.names, layer))
        if gate_up and self.source.has(gate_up + ".weight") and not self._has(gate):
            view = self.view
            if self.names.gate_last:
                view = View(order=np.roll(np.arange(2 * inner), inner), stored_rows=2 * inner)
            both = linear(self.source, gate_up, 2 * inner, width, bias, view)
            return GatedMlp(None, both, last, inner, config.activation, limits=limits)
        first, scales = self.linear(gate, inner, width, bias), config.multipliers
        inside = self.norm(at + self.names.inner_norm, inner) if config.inner_norms else None
        return GatedMlp(
            first, self.linear(up, inner, width, bias), last, inner, config.activation,
            scales.mlp_gate, scales.mlp_output, inside, limits,
        )  # fmt: skip

    def _shared_gate(self, name: str) -> Linear:
        """E -> 1, a vector in GGUF files."""
        view = View(vector=True) if self.names.shared_gate_vector else WHOLE
        return linear(self.source, name, 1, self.config.width, False, view)

    def _has(self, name: str) -> bool:
        return bool(name) and self.source.has(name + ".weight")


def with_bias_of_sum(
    source: WeightSource, config: ModelConfig, names: TensorNames, layer: int, post: Norm | None
) -> Norm | None:
    """The norm `post` with the bias that the sum of the experts' results has, where there is one."""
    experts = config.experts
    if post is None or experts is None or not experts.sum_bias or layer not in experts.layers:
        return None
    bias = source.vector(names.layer.format(layer) + names.expert_sum_bias, config.width)
    return replace(post, bias=bias if post.bias is None else post.bias + bias)
