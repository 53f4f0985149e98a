"""The authors' recommendation: which keys count, what is left out, and that greedy is temperature 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.models.headers.generation_defaults import sampler_defaults
from engine.settings import SamplerSettings
from engine.tensors import RawTensor


@dataclass
class Headers:
    """A checkpoint of which only the metadata is read."""

    format: str
    metadata: dict[str, Any]
    path: Path = Path("model")
    tensors: dict[str, RawTensor] = field(default_factory=dict)

    def close(self) -> None:
        """Nothing to close."""


def folder(**config: Any) -> dict[str, float]:
    return dict(sampler_defaults(Headers("safetensors", {"config": {}, "generation_config": config})))


def gguf(**values: Any) -> dict[str, float]:
    return dict(
        sampler_defaults(
            Headers("gguf", {f"general.sampling.{name}": value for name, value in values.items()})
        )
    )


def test_folder() -> None:
    advised = folder(
        do_sample=True,
        temperature=0.6,
        top_k=20,
        top_p=0.95,
        min_p=0,
        repetition_penalty=1.05,
        eos_token_id=[1, 2],
    )
    assert advised == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.0,
        "repetition_penalty": 1.05,
    }
    settings = SamplerSettings(**advised)  # type: ignore[arg-type]
    assert settings.top_k == 20
    assert folder() == {}


def test_greedy() -> None:
    assert folder(do_sample=False, temperature=0.9, top_p=0.8, repetition_penalty=1.1) == {
        "temperature": 0.0,
        "repetition_penalty": 1.1,
    }
    assert folder(do_sample=False) == {"temperature": 0.0}


def test_gguf() -> None:
    advised = gguf(
        temp=np.float32(0.95).item(), top_k=40, penalty_last_n=-1, penalty_repeat=1.0, sequence="k;p"
    )
    assert advised == {"temperature": 0.95, "top_k": 40, "repetition_range": -1, "repetition_penalty": 1.0}


@pytest.mark.parametrize("value", ["0.7", -1.0, 1e9, float("nan"), float("inf"), True, [0.7], {}, None])
def test_invalid_values_are_left_out(value: Any) -> None:
    assert folder(temperature=value, top_p=0.9) == {"top_p": 0.9}
    assert gguf(temp=value, top_k=5) == {"top_k": 5}


def test_whole_numbers() -> None:
    assert folder(top_k=50.0) == {"top_k": 50}
    assert folder(top_k=50.5) == {}
    assert type(folder(top_k=50.0)["top_k"]) is int


def test_no_config_at_all() -> None:
    assert sampler_defaults(Headers("safetensors", {"config": {}})) == ()
    assert sampler_defaults(Headers("safetensors", {"generation_config": [1]})) == ()
