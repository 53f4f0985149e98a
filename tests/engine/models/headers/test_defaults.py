"""A key that config.json leaves out takes the default of transformers' class, which is why it is absent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.errors import EngineError
from engine.models.architectures import ARCHITECTURES
from engine.models.architectures.with_pictures import TEXT_MODELS, WITH_PICTURES
from engine.models.config import ModelConfig
from engine.models.headers.keys import Keys
from tests.engine.models.architectures import transformers_config
from tests.engine.models.cases.table import BY_NAME

SIZES = {
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "n_embd", "n_layer",
    "n_head", "moe_intermediate_size", "layers_block_type",
}  # fmt: skip
"""Keys that every file has; a model without them is damaged."""
WHOLE = {"architectures", "model_type", "vocab_size", "dtype", "transformers_version", "per_layer_config"}
"""What names the file itself, and a table that the class makes of other keys."""
MADE = {
    ("falcon", "ffn_hidden_size"), ("granitemoehybrid", "mamba_d_head"), ("minicpm3", "v_head_dim"),
    ("opt", "word_embed_proj_dim"), ("ministral3", "rope_parameters"), ("mistral", "head_dim"),
    ("qwen2_moe", "sliding_window"), ("cohere2", "head_dim"), ("bamba", "mamba_d_head"),
    ("mamba", "intermediate_size"), ("falcon_mamba", "intermediate_size"),
    ("mamba", "time_step_rank"), ("falcon_mamba", "time_step_rank"), ("jamba", "mamba_dt_rank"),
    ("modernbert-decoder", "sliding_window"), ("bailing_hybrid", "linear_head_dim"),
    ("bailing_hybrid", "linear_num_heads"), ("zamba", "mamba_dt_rank"),
    ("recurrent_gemma", "head_dim"), ("cohere_compass_text", "head_dim"),
}  # fmt: skip
"""(model type, key) whose default the class computes from other keys."""


def read(config: dict[str, Any]) -> ModelConfig | None:
    """The model's shape; None if the file is refused."""
    (architecture,) = (each for each in ARCHITECTURES if config["architectures"][0] in each.hf)
    try:
        assert architecture.from_hf is not None
        return architecture.from_hf(Keys(config, "config.json"))
    except EngineError:
        return None


OWN = {"sarvam_mla": "SarvamMLAForCausalLM", "sarvam_moe": "SarvamMoEForCausalLM"}
"""The makers' classes, where transformers runs those of other models."""


def defaults(name: str) -> tuple[dict[str, Any], Iterator[tuple[str, Any]]]:
    """The whole config.json of a case, and the class's default of each key that has one."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    config = transformers_config(BY_NAME[name])
    known = AutoModelForCausalLM._model_mapping
    classes = known if type(config) in known else AutoModelForImageTextToText._model_mapping
    architecture = OWN.get(config.model_type, classes[type(config)].__name__)
    if architecture in WITH_PICTURES:  # whose text model is run
        config = config.get_text_config()
        architecture = TEXT_MODELS[config.model_type]
    kind = type(config)
    whole = json.loads(json.dumps(config.to_dict()))
    whole["architectures"] = [architecture]
    usual = json.loads(json.dumps(kind().to_dict()))
    return whole, (
        (key, value)
        for key, value in usual.items()
        if value is not None
        and key not in WHOLE
        and (config.model_type, key) not in MADE
        and getattr(kind, key, value) is not None  # else computed
    )


@pytest.mark.parametrize(
    "name", sorted({case.model_type: case.name for case in reversed(BY_NAME.values())}.values())
)
def test_absent_keys_take_the_defaults_of_the_class(name: str) -> None:
    whole, usual = defaults(name)
    assert read(whole) is not None
    compared = 0
    for key, value in usual:
        given, left_out = read(whole | {key: value}), read({k: v for k, v in whole.items() if k != key})
        if given is not None and not (left_out is None and key in SIZES):
            assert left_out == given, key
            compared += 1
    assert compared > 3
