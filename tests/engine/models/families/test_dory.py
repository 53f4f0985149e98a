"""What folders of Dory say, and the names that they and adapters have for its matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.dense.dory import from_hf
from engine.models.config import ModelConfig
from engine.models.headers.keys import Keys
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.dory import DORY, FULL, SLIDING
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load

MLP = "mlp"


def read(**keys: Any) -> ModelConfig:
    """Of two pairs of layers before the loop, one in it and one after it."""
    kinds = [SLIDING, MLP, FULL, MLP, SLIDING, MLP, FULL, MLP]
    usual = {
        **DORY, "architectures": ["DoryForCausalLM"], "num_hidden_layers": 8, "layer_types": kinds,
        "n_input_layers": 4, "n_output_layers": 2,
    }  # fmt: skip
    return from_hf(Keys(usual | keys, "config.json"))


def test_each_run_has_a_cache_of_its_own() -> None:
    config = read(n_recurrent_loops=3)
    assert config.cached_layers == (0, 2, 4, 4, 4, 6)
    assert [shape.window for shape in config.cache_shapes] == [9, 0, 9, 9, 9, 0]
    assert config.mlp_layers == {1, 3, 5, 7}


def test_layers_counted_in_pairs_are_the_same() -> None:
    pairs: dict[str, Any] = {"num_hidden_layers": 4, "n_input_layers": 2, "n_output_layers": 1}
    assert read(**pairs, layer_types=[SLIDING, FULL, SLIDING, FULL]) == read()


def test_defaults() -> None:
    config = from_hf(Keys({"architectures": ["DoryForCausalLM"]}, "config.json"))
    assert (config.layers, config.width, config.heads, config.head_dim) == (72, 2560, 16, 256)
    assert config.windows[:8] == (1024, 0, 1024, 0, 1024, 0, 0, 0)
    assert config.rope is not None
    assert config.rope_local is not None
    assert (config.rope.base, config.rope_local.base) == (1e7, 1e4)
    assert len(config.cached_layers) == 8 + 2 * 20 + 8


def test_cache_of_the_last_run() -> None:
    """What the earlier runs of a pass would read in it depends on where the pass begins."""
    with pytest.raises(UnsupportedModel, match="sets recurrent_kv_cache_mode to 'last_loop'"):
        read(recurrent_kv_cache_mode="last_loop")
    assert read(recurrent_kv_cache_mode="last_loop", n_recurrent_loops=1).cached_layers == (0, 2, 4, 6)


@pytest.mark.parametrize(
    "keys",
    [
        {"n_input_layers": 3}, {"n_recurrent_layers": 4}, {"layer_types": [MLP, SLIDING] * 4},
        {"n_output_layers": 6}, {"n_recurrent_loops": 65}, {"n_recurrent_loops": 0},
    ],
)  # fmt: skip
def test_layers_that_do_not_add_up(keys: dict[str, Any]) -> None:
    with pytest.raises(BadCheckpoint, match=r"[Tt]he file is damaged"):
        read(**keys)


def test_adapters_name_modules_as_transformers_does(tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME["Dory"], tmp_path / "model")
    model = load(folder)
    count = json.loads((folder / "config.json").read_text("utf-8"))["num_hidden_layers"]
    for layer in range(count // 2):
        for at, module, own in (
            (0, "self_attn", ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj")),
            (1, "mlp", ("gate_proj", "up_proj", "down_proj")),
        ):
            for name in own:
                made = name.replace("gate", "g") if module == "self_attn" else name
                trained = model.slots[f"model.layers.{layer}.{module}.{name}"].linears
                published = model.slots[f"backbone.layers.{2 * layer + at}.mixer.{made}"].linears
                assert trained[0][0] is published[0][0]
