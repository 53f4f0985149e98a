"""The numbers of the activation xIELU (arXiv 2411.13010)."""

from __future__ import annotations

import numpy as np

from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.names import TensorNames


def xielu_numbers(
    source: WeightSource, config: ModelConfig, names: TensorNames, layer: int
) -> tuple[float, float, float]:
    """Those of `Ops.activate_with`, from the headers, or from a folder, which has logarithms of e^a - 1."""
    if config.xielu:
        return config.xielu[layer]
    at = names.layer.format(layer) + names.xielu
    above, below = (
        float(np.logaddexp(0.0, float(source.vector(at + name, 1)[0]))) for name in ("alpha_p", "alpha_n")
    )
    slope = float(source.vector(at + "beta")) if source.has(at + "beta") else 0.5
    return above, slope + below, slope
