"""Scales in headers: those without effect are no reason to refuse a model, and MPT's is obeyed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.dense import cohere
from engine.models.architectures.gpt import mpt
from engine.models.architectures.llama import granite, minicpm
from engine.models.headers.decoder import gguf_shape
from engine.models.headers.keys import Keys
from tests.engine.backends.kernel_oracles import Matrix

SIZES = {
    "embedding_length": 64, "attention.head_count": 4, "block_count": 2, "feed_forward_length": 96,
    "context_length": 128, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
WIDTH = {"architectures": ["MptForCausalLM"], "d_model": 64, "n_layers": 2, "n_heads": 4}


def shape(**more: Any) -> dict[str, Any]:
    """What the header of a `llama` says with these keys."""
    named = {f"llama.{name}": value for name, value in {**SIZES, **more}.items()}
    return gguf_shape(
        Keys(named, "the header", "llama."), {"token_embd.weight": Matrix("F32", (10, 64), 1)}, "llama"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logit_scale", 1.0), ("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 0.0),
        ("attention.scale", 0.25), ("attention.scale", 0.25000003),
    ],
)  # fmt: skip
def test_a_scale_without_effect_is_no_reason_to_refuse(key: str, value: float) -> None:
    assert shape(**{key: value}) == shape()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logit_scale", 0.5), ("embedding_scale", 1.001), ("attention.scale", 1.0), ("attention.scale", "1"),
        ("attention.clamp_kqv", 1.0),
    ],
)  # fmt: skip
def test_another_is(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedModel, match=f"{re.escape(key)}, which is not supported"):
        shape(**{key: value})


def test_the_scale_of_another_head_dimension() -> None:
    assert shape(**{"attention.key_length": 100, "attention.value_length": 100, "attention.scale": 0.1})
    with pytest.raises(UnsupportedModel, match=r"attention\.scale"):
        shape(**{"attention.key_length": 100, "attention.value_length": 100, "attention.scale": 0.25})


@pytest.mark.parametrize(
    ("said", "scale"), [({}, 1.0), ({"logit_scale": None}, 1.0), ({"logit_scale": 0.5}, 0.5),
                        ({"logit_scale": "inv_sqrt_d_model"}, 0.125)],
)  # fmt: skip
def test_mpt_s_logits_are_scaled_as_the_makers_say(said: dict[str, Any], scale: float) -> None:
    assert mpt.from_hf(Keys({**WIDTH, **said}, "config.json")).logit_scale == scale


def test_mpt_s_scale_is_a_number() -> None:
    with pytest.raises(BadCheckpoint, match="logit_scale"):
        mpt.from_hf(Keys({**WIDTH, "logit_scale": "wide"}, "config.json"))


@pytest.mark.parametrize("given", [{}, {"logit_scale": 0.0, "embedding_scale": 0.0, "residual_scale": 0.0}])
def test_a_gguf_file_of_the_first_minicpm_has_its_scales_without_saying_so(given: dict[str, float]) -> None:
    named = {f"minicpm.{name}": value for name, value in {**SIZES, "block_count": 4, **given}.items()}
    tensors = {"token_embd.weight": Matrix("F32", (10, 64), 1)}
    config = minicpm.from_gguf(Keys(named, "the header", "minicpm."), tensors)
    assert (config.embed_scale, config.residual_scale, config.logit_scale) == (12.0, 0.7, 4.0)
    named |= {f"minicpm.{name}": 2.0 for name in ("logit_scale", "embedding_scale", "residual_scale")}
    config = minicpm.from_gguf(Keys(named, "the header", "minicpm."), tensors)
    assert (config.embed_scale, config.residual_scale, config.logit_scale) == (2.0, 2.0, 0.5)


def test_a_gguf_file_of_granite_multiplies_pictures_as_it_does_embeddings() -> None:
    named = {f"granite.{name}": value for name, value in {**SIZES, "embedding_scale": 12.0}.items()}
    named |= {"general.architecture": "granite", "granite.block_count": 2}
    tensors = {"token_embd.weight": Matrix("F32", (10, 64), 1)}
    config = granite.from_gguf(Keys(named, "the header", "granite."), tensors)
    assert config.embed_scale == config.picture_scale == 12.0
    config = minicpm.from_gguf(
        Keys(
            {f"minicpm.{name}": value for name, value in {**SIZES, "block_count": 2}.items()}, "", "minicpm."
        ),
        tensors,
    )
    assert (config.embed_scale, config.picture_scale) == (12.0, 1.0)


@pytest.mark.parametrize(("architecture", "windows"), [("command-r", ()), ("cohere2", (64, 64, 64, 0))])
def test_cohere_s_logits_are_not_scaled_where_the_file_says_nothing(
    architecture: str, windows: tuple[int, ...]
) -> None:
    keys = {**SIZES, "block_count": 4, "attention.sliding_window": 64, "attention.layer_norm_epsilon": 1e-5}
    named = {"general.architecture": architecture}
    named |= {f"{architecture}.{name}": value for name, value in keys.items()}
    tensors = {"token_embd.weight": Matrix("F32", (10, 64), 1)}
    config = cohere.from_gguf(Keys(named, "the header", f"{architecture}."), tensors)
    assert (config.logit_scale, config.windows) == (1.0, windows)
    assert config.nope_layers == ({3} if windows else set())
