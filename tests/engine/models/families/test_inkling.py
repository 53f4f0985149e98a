"""What folders of Inkling say, the tokens that are never written, and the names that adapters have for its
matrices.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.states import ConvolutionShape
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.windowed_mixtures.inkling import from_hf
from engine.models.base import read_bytes
from engine.models.config import ModelConfig
from engine.models.config.relative import RelativeHeads
from engine.models.headers.keys import Keys
from tests.engine.models.architectures import cached_logits, ids, write_checkpoint
from tests.engine.models.cases.inkling import INKLING
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits


def read(**keys: Any) -> ModelConfig:
    return from_hf(Keys({**INKLING, "architectures": ["InklingForCausalLM"]} | keys, "config.json"))


def relative(config: ModelConfig) -> RelativeHeads:
    assert isinstance(config.recurrent, RelativeHeads)
    return config.recurrent


def test_layers_with_windows_have_their_own_heads() -> None:
    config = read()
    shapes = [config.shape(layer) for layer in range(4)]
    found = [(shape.heads, shape.kv_heads, shape.head_dim, shape.window) for shape in shapes]
    assert found == [(6, 3, 16, 7), (4, 2, 24, 0)] * 2
    kind = relative(config)
    assert (kind.extents, kind.keys, kind.tempered) == ((7, 19) * 2, (48,) * 4, {1, 3})
    assert config.cached_layers == (0, 1, 2, 3)


def test_states_are_as_wide_as_the_keys_of_their_layer() -> None:
    config = read(swa_head_dim=8)
    keys = (24, 48, 24, 48)
    parts = [ConvolutionShape(width, 4) for each in keys for width in (each, each, 64, 64)]
    assert list(config.state_shapes) == parts
    assert [config.first_state_part(layer) for layer in range(4)] == [0, 4, 8, 12]


def test_shared_experts_are_the_last_ones() -> None:
    experts = read(n_shared_experts=3).experts
    assert experts is not None
    assert (experts.count, experts.used, experts.always, experts.width) == (9, 5, 3, 32)
    assert experts.layers == {1, 2}
    assert read(mlp_layer_types=["dense"] * 4).experts is None


def test_a_step_reads_the_routed_experts_that_a_token_uses(tmp_path: Path) -> None:
    """Two of six, and all of the rest, with which the shared ones are counted."""
    model = load(write_checkpoint(BY_NAME["Inkling"], tmp_path / "m"))
    whole, found = (read_bytes(model.config, 1 << 20, size, model.parts) for size in (0, 60_000))
    assert whole - found == 40_000


def test_defaults() -> None:
    config = from_hf(Keys({"architectures": ["InklingForCausalLM"]}, "config.json"))
    assert (config.layers, config.width, config.vocab_size, config.ffn_width) == (66, 6144, 201_024, 24_576)
    assert config.windows[:7] == (512, 512, 512, 512, 512, 0, 512)
    assert (config.shape(0).kv_heads, config.shape(5).kv_heads) == (16, 8)
    assert (config.context_length, config.logit_scale, config.tied) == (131_072, 1 / 24, False)
    kind, experts = relative(config), config.experts
    assert (kind.rank, kind.taps, kind.extents[:6], kind.tempered) == (
        16,
        4,
        (512,) * 5 + (1024,),
        frozenset(),
    )
    assert experts is not None
    assert (experts.count, experts.used, experts.scale, len(experts.layers)) == (258, 8, 8.0, 66)


def test_the_names_of_the_makers() -> None:
    """The usual width is that of experts, where dense layers, the first ones, have another one."""
    kept = {key: value for key, value in INKLING.items() if key not in ("mlp_layer_types", "local_layer_ids")}
    makers = {
        **kept, "intermediate_size": 32, "dense_intermediate_size": 96, "dense_mlp_idx": 1,
        "sconv_kernel_size": 5, "model_max_length": 999, "layer_types": ["hybrid"] * 3 + ["hybrid_sliding"],
    }  # fmt: skip
    del makers["moe_intermediate_size"], makers["max_position_embeddings"]
    whole = {"architectures": ["InklingForConditionalGeneration"], "text_config": makers}
    config = from_hf(Keys(whole, "config.json"))
    assert config.experts is not None
    assert (config.ffn_width, config.experts.width, config.experts.layers) == (96, 32, {1, 2, 3})
    assert (relative(config).taps, config.context_length, config.windows) == (5, 999, (0, 0, 0, 7))


def test_scores_grow_with_the_position() -> None:
    factors = relative(read(log_scaling_n_floor=4, log_scaling_alpha=0.5)).factors(9)
    assert factors is not None
    expected = [1 + 0.5 * np.log(max((place + 1) / 4, 1.0)) for place in range(9)]
    np.testing.assert_allclose(factors[:, 0], expected, rtol=1e-6)
    assert relative(read(log_scaling_n_floor=None)).factors(9) is None


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ({"shared_expert_sink": False}, UnsupportedModel, "sets shared_expert_sink to False"),
        ({"layer_types": ["hybrid", "linear"] * 2}, UnsupportedModel, "layers of the kind 'linear'"),
        ({"layer_types": ["hybrid"]}, BadCheckpoint, "not a list of 4 kinds"),
        ({"mlp_layer_types": ["dense", "moe"] * 2}, UnsupportedModel, "layers of the kind 'moe'"),
        ({"local_layer_ids": [4]}, BadCheckpoint, "local_layer_ids"),
        ({"n_shared_experts": 0}, BadCheckpoint, "n_shared_experts is 0"),
        ({"num_experts_per_tok": 7}, BadCheckpoint, "num_experts_per_tok is 7"),
        ({"unpadded_vocab_size": 308}, BadCheckpoint, "unpadded_vocab_size is 308"),
        ({"swa_num_attention_heads": 7}, BadCheckpoint, "has 7 heads and 3 key/value heads"),
        ({"d_rel": 0}, BadCheckpoint, "d_rel is 0"), ({"rel_extent": 0}, BadCheckpoint, "rel_extent is 0"),
    ],
)  # fmt: skip
def test_what_is_refused(keys: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read(**keys)


def test_tokens_that_only_fill_up_the_vocabulary_are_never_written(tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME["Inkling"], tmp_path / "m")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"unpadded_vocab_size": 300}), "utf-8")
    found = logits(load(folder), ids(60))
    expected = cached_logits("Inkling")
    np.testing.assert_allclose(found[:, :300], expected[:, :300], atol=1e-4 * np.abs(expected).max())
    assert found[:, 300:].max() < -1e30


@pytest.mark.parametrize("name", ["Inkling", "Inkling, with pictures and sounds"])
def test_adapters_name_modules_as_transformers_does(tmp_path: Path, name: str) -> None:
    model = load(write_checkpoint(BY_NAME[name], tmp_path / "m"))
    at = "model." if name == "Inkling" else "model.language_model."
    attention = [f"self_attn.{each}_proj" for each in "qkvro"]
    dense = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    for layer, modules in ((0, [*attention, *dense]), (1, [*attention, "mlp.gate"])):
        for module in modules:
            assert model.slots[f"{at}layers.{layer}.{module}"].linears
    assert model.slots["lm_head"].rows == 307
