"""Folders of known architectures whose headers or names are not the usual ones, read as transformers reads
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.errors import UnsupportedModel
from engine.models.architectures import mamba2, phimoe, smollm3
from engine.models.headers.keys import Keys
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import cached_logits, ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits
from tests.tiny import TINY, tiny_config, tiny_weights, write_tokenizer

SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 307,
}  # fmt: skip


def keys(architecture: str, **more: Any) -> Keys:
    return Keys({"architectures": [architecture], **SIZES, **more}, "config.json")


def test_windows_of_smollm3() -> None:
    """`layer_types` counts alone; without it, layers that have no rope get windows if the flag is set."""
    some = {"sliding_window": 9, "layer_types": ["sliding_attention", *["full_attention"] * 3]}
    for flag in (False, True):
        found = smollm3.from_hf(keys("SmolLM3ForCausalLM", use_sliding_window=flag, **some))
        assert found.windows == (9, 0, 0, 0)
    own = {"sliding_window": 9, "no_rope_layers": [1, 0, 1, 0]}
    assert smollm3.from_hf(keys("SmolLM3ForCausalLM", **own)).windows == ()
    slides = smollm3.from_hf(keys("SmolLM3ForCausalLM", use_sliding_window=True, **own))
    assert slides.windows == (0, 9, 0, 9)
    assert smollm3.from_hf(keys("SmolLM3ForCausalLM", use_sliding_window=True)).windows == ()


def test_the_part_of_a_head_with_rope_in_bamba() -> None:
    """It counts among `rope_parameters`, and is a half otherwise."""
    more = {"mamba_n_heads": 8, "mamba_d_head": 16, "attn_layer_indices": [1]}
    for share in ({"partial_rotary_factor": 0.75}, {}):
        rope = mamba2.from_hf_bamba(keys("BambaForCausalLM", **more, **share)).rope
        assert rope is not None
        assert rope.dim == 8
    inside = {"rope_theta": 1e4, "partial_rotary_factor": 0.75}
    rope = mamba2.from_hf_bamba(keys("BambaForCausalLM", **more, rope_parameters=inside)).rope
    assert rope is not None
    assert rope.dim == 12


def test_phi_mixtures_have_two_experts_a_token() -> None:
    assert phimoe.from_hf(keys("PhimoeForCausalLM")).experts is not None
    with pytest.raises(UnsupportedModel, match="num_experts_per_tok to 3, which is not supported"):
        phimoe.from_hf(keys("PhimoeForCausalLM", num_experts_per_tok=3))


def test_hunyuan_3_saved_without_its_head(tmp_path: Path) -> None:
    """The names then have no "model." in front, those of the makers' routers included."""
    case = BY_NAME["Hunyuan 3"]
    tensors = load_file(write_checkpoint(case, tmp_path) / "model.safetensors")
    assert any(".router.gate." in name for name in tensors)
    plain = {name.removeprefix("model."): values for name, values in tensors.items()}
    save_file(plain, tmp_path / "model.safetensors")
    expected = cached_logits(case.name)
    assert np.abs(logits(load(tmp_path), ids(case.length)) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("changed", [True, False])
def test_a_head_beside_a_table_that_is_said_to_be_tied(changed: bool, tmp_path: Path) -> None:
    """It counts if it has numbers of its own."""
    weights = tiny_weights(TINY)
    if not changed:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    for name, tied in (("said", True), ("plain", False)):
        (tmp_path / name).mkdir()
        save_file(weights, tmp_path / name / "model.safetensors")
        (tmp_path / name / "config.json").write_text(json.dumps(tiny_config(TINY.but(tied=tied))))
        write_tokenizer(tmp_path / name)
    assert read_config(open_checkpoint(tmp_path / "said")).tied is not changed
    found, expected = (logits(load(tmp_path / name), ids(20)) for name in ("said", "plain"))
    np.testing.assert_array_equal(found, expected)
