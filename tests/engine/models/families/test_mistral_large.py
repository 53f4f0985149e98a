"""What Mistral Large 4 says of its layers beyond the cases: shared latents, learned rope, defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.models.architectures.latent.mistral_large4 import from_hf
from engine.models.headers.keys import Keys
from engine.models.headers.rope import learned_rope
from engine.models.layers.positions.rope import RopeConfig, rotary_table
from engine.tensors import Floats

ROPE = RopeConfig(100.0, 6, True, (1.0, 2.0, 4.0))


def read(**changes: Any) -> Any:
    text = {"num_hidden_layers": 4, "max_position_embeddings": 4096, **changes}
    whole = {"architectures": ["MistralLarge4ForConditionalGeneration"], "text_config": text}
    return from_hf(Keys(whole, "config.json"))


def test_defaults() -> None:
    config = read()
    assert (config.nope_layers, config.kv_sources) == (frozenset({3}), (0, 1, 2, 3))
    assert config.kv_shapes == ((1, 576),) * 3 + ((1, 512),) + ((1, 128),) * 4  # and keys of indexers
    assert config.shape(0).scale == config.shape(3).scale == pytest.approx(128**-0.5)
    assert (config.rope.magnitude, config.logit_cap, config.context_length) == (1.0, 30.0, 1 << 20)


def test_layers_that_read_the_latents_of_earlier_ones() -> None:
    config = read(kv_source_layers=[0, 0, 2, 3], no_rope_layers=[1, 1, 1, 0])
    assert config.cached_layers == (0, 2, 3)
    assert [config.cache_layer(layer) for layer in range(4)] == [0, 0, 1, 2]
    assert config.uncached_layers == {1}


@pytest.mark.parametrize("sources", [[0, 1, 2], [0, 2, 2, 3], [0, 0, 1, 3], [0, 1, 2, 2]])
def test_sources_that_cannot_be(sources: list[int]) -> None:
    """Too few, a later one, one without keys of its own, one with rope for a layer without."""
    with pytest.raises(BadCheckpoint, match="kv_source_layers does not name for each of 4 layers"):
        read(kv_source_layers=sources)


@dataclass
class Numbers:
    """A tensor."""

    values: Floats
    name: str = "a"
    type: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def dequantise(self) -> Floats:
        return self.values


def test_learned_numbers_multiply_frequencies() -> None:
    numbers: Any = Numbers(np.array([0.5, 0.0, -0.25], np.float32))
    found, plain = (rotary_table(rope, 2) for rope in (learned_rope(ROPE, {"b": numbers}, "a", "b"), ROPE))
    angles = np.arccos(plain.cos[1]) * np.exp(numbers.values)
    np.testing.assert_allclose(found.cos[1], np.cos(angles), atol=1e-6)


@pytest.mark.parametrize("values", [[0.1, 0.2], [0.1, np.nan, 0.2], [0.1, 0.2, 99.0], None])
def test_damaged_numbers_are_told(values: list[float] | None) -> None:
    there: Any = {} if values is None else {"a": Numbers(np.array(values, np.float32))}
    with pytest.raises(BadCheckpoint, match=r"The tensor a is missing or damaged: the shape \(3,\)"):
        learned_rope(ROPE, there, "a")
