"""Encoders work in steps: between two of them anything else may run, and a picture may be given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from transformers import Gemma3Config, Gemma3ForConditionalGeneration
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from engine.drain import drain
from engine.vision import passes
from tests.engine.vision.tiny.encoding import TEXT, Encoded, picture, randomise, save

SIDE = 56


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoded]:
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": SIDE, "patch_size": 7, "model_type": "siglip_vision_model",
    }  # fmt: skip
    config = Gemma3Config(vision_config=tower, text_config={**TEXT, "head_dim": 20}, mm_tokens_per_image=4)
    processor = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    folder = tmp_path_factory.mktemp("gemma3")
    found = Encoded(save(randomise(Gemma3ForConditionalGeneration(config)), processor, folder))
    yield found
    found.close()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one stage each."""
    monkeypatch.setattr(passes, "STAGE_ROWS", 1)


def test_steps_change_nothing(encoded: Encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    image, found, counts = picture(80, 50), list[Any](), list[int]()
    for rows in (1 << 20, 64 * 4, 1):
        monkeypatch.setattr(passes, "STAGE_ROWS", rows)
        steps = encoded.steps(image)
        events = list[object]()
        found.append(drain(steps, events.append)[0].states)
        counts.append(len(events))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert counts[0] < counts[1] < counts[2]


def test_keys_of_16_bits_change_little(encoded: Encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    image = picture(80, 50)
    monkeypatch.setattr(passes, "MANY_ROWS", 1)
    other = Encoded(encoded.path)
    found, expected = other.states(image), encoded.states(image)
    other.close()
    assert 0 < np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.usefixtures("small_steps")
def test_a_picture_that_is_given_up_leaves_the_encoder_as_it_was(encoded: Encoded) -> None:
    image = picture(80, 50)
    expected = encoded.states(image)
    steps = encoded.steps(picture(10, 10))
    for _ in range(5):
        next(steps)
    steps.close()
    assert np.array_equal(encoded.states(image), expected)
