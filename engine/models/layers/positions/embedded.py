"""What is added to the embeddings of tokens: positions, and token types."""

from __future__ import annotations

import numpy as np

from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.layers.positions.sinusoids import sinusoids
from engine.models.names import TensorNames
from engine.tensors import Floats


def positions_table(
    source: WeightSource, config: ModelConfig, names: TensorNames, width: int
) -> Floats | None:
    """What is added to embeddings at each position (P, width): positions, and the first token type."""
    positions = None
    if config.rope is None and config.learned_positions:
        rows = config.learned_positions + config.learned_offset
        positions = source.vector(names.positions + ".weight", rows, width)[config.learned_offset :]
    if config.sinusoids:
        open_end = config.sinusoids == "open"
        positions = sinusoids(config.context_length, width, config.learned_offset, open_end=open_end)
    if config.token_types:
        row = source.vector(names.token_types + ".weight", config.token_types, width)[0]
        every = np.broadcast_to(row, (config.context_length, width))
        positions = every if positions is None else positions + row
    return positions
