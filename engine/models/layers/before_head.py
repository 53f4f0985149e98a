"""What stands before the head, where that is more than a norm, and what multiplies its logits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.layers.parts import Linear, Norm
from engine.models.names import TensorNames

_LEAST = np.float32(1e-12)
"""The least length that a row of a normed head is divided by."""


@dataclass(frozen=True, slots=True)
class HeadTransform:
    """norm(activation(dense(x))): x (T, E) -> (T, N), as the heads of BERT have it."""

    dense: Linear
    activation: str
    norm: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.norm(ops, ops.activate(self.dense(ops, x), self.activation))


def before_head(
    source: WeightSource, config: ModelConfig, names: TensorNames
) -> Callable[[Ops, Array], Array] | None:
    """What makes the head's input of the last hidden state; None: that is the input."""
    width, narrow = config.width, config.embed_width or config.width
    if config.headless:
        return None
    if config.head_activation:
        return HeadTransform(
            linear(source, names.project_out, narrow, width, config.head_transform_bias),
            config.head_activation,
            norm(
                source, names.head_norm, narrow, config.norm_eps, layer_norm=config.norm == "layer",
                bias=config.norm_bias,
            ),
        )  # fmt: skip
    return None if narrow == width else linear(source, names.project_out, narrow, width, False)


def logit_factors(source: WeightSource, config: ModelConfig, names: TensorNames) -> Norm | None:
    """What multiplies the logits of each token (V,), where a model has such factors."""
    if config.headless or (config.sphere is None and not config.normed_head):
        return None
    from engine.models.layers.residual.residual_gates import product

    if config.normed_head:
        head = names.embed if config.tied else names.head
        lengths = source.lengths(head + ".weight", config.vocab_size, config.width)
        return product((1 / np.maximum(lengths, _LEAST)).astype(np.float32))
    assert config.sphere is not None
    return product(source.vector(names.sphere.logits, config.vocab_size) / np.float32(config.sphere.unit))
