"""Folders of known architectures whose headers or names are not the usual ones, read as transformers reads
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.dense.gemma4 import gguf_local_rope
from engine.models.architectures.gpt import gpt_neox
from engine.models.architectures.llama import hunyuan
from engine.models.architectures.llama_variants import phi, smollm3, stablelm
from engine.models.architectures.mixtures import phimoe
from engine.models.architectures.recurrent import mamba2
from engine.models.headers.keys import Keys
from engine.models.layers.positions.rope import RopeConfig
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import (
    cached_logits,
    expected_logits,
    ids,
    write_case_gguf,
    write_checkpoint,
)
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.gguf_form import Config, Floats, Tensors
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Jamba", {"mamba_d_conv": 1, "num_experts": 0}), ("LFM2", {"conv_L_cache": 1}),
        ("Mamba-2", {"conv_kernel": 1}), ("Qwen 3.5", {"linear_conv_kernel_dim": 1}),
        ("Kimi Linear, as transformers 5 saves it", {"linear_conv_kernel_dim": 1}),
        ("RecurrentGemma", {"conv1d_width": 1}),
    ],
)  # fmt: skip
def test_convolutions_of_one_tap(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Their states hold nothing; and a Jamba may have no experts at all."""
    case = replace(BY_NAME[name], settings={**BY_NAME[name].settings, **more})
    folder, expected = write_checkpoint(case, tmp_path), expected_logits(case)
    for backend in (None, CpuBackend(threads=2)):
        model = load(folder, backend)
        found = logits(model, ids(case.length), [1, 7, 8, 21], context=case.length)
        model.close()
        assert np.abs(found - expected).max() <= 2 * case.tolerance * np.abs(expected).max()


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("Hunyuan 3", ".router.gate."), ("HRM-Text, the makers' names", ".gqkv_proj."),
        ("DeepSeek V4", ".attn.wq_a."),
    ],
)  # fmt: skip
def test_a_model_saved_without_its_head(name: str, own: str, tmp_path: Path) -> None:
    """The names then have no "model." in front, those that only its makers give included."""
    case = BY_NAME[name]
    tensors = load_file(write_checkpoint(case, tmp_path) / "model.safetensors")
    assert any(name.startswith("model.") and own in name for name in tensors)
    plain = {name.removeprefix("model."): values for name, values in tensors.items()}
    save_file(plain, tmp_path / "model.safetensors")
    expected = cached_logits(case.name)
    assert np.abs(logits(load(tmp_path), ids(case.length)) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["GPT-2", "GPT-1"])
def test_matrices_of_gpt_2_that_are_not_transposed(name: str, tmp_path: Path) -> None:
    """As quantising tools write them."""
    tensors = load_file(write_checkpoint(BY_NAME[name], tmp_path) / "model.safetensors")
    upright = {
        name: np.ascontiguousarray(values.T) if ".c_" in name and values.ndim == 2 else values
        for name, values in tensors.items()
    }
    save_file(upright, tmp_path / "model.safetensors")
    expected = cached_logits(name)
    assert np.abs(logits(load(tmp_path), ids(60)) - expected).max() <= 1e-4 * np.abs(expected).max()


def test_tied_folder_with_the_head_alone(tmp_path: Path) -> None:
    """transformers takes it for the embedding; one that is not tied lacks its embedding."""
    case = BY_NAME["Llama, biases, tied, own head dimension"]
    tensors = load_file(write_checkpoint(case, tmp_path) / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    expected = cached_logits(case.name)
    assert np.abs(logits(load(tmp_path), ids(case.length)) - expected).max() <= 1e-4 * np.abs(expected).max()
    config = json.loads((tmp_path / "config.json").read_text("utf-8")) | {"tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(BadCheckpoint, match=r"lacks tensors that its headers name: model.embed_tokens"):
        load(tmp_path)


@pytest.mark.parametrize("read", [stablelm.from_hf, phi.from_hf_2, gpt_neox.from_hf_persimmon])
def test_an_odd_part_of_heads_that_is_cut_off_first(read: Callable[[Keys], Any]) -> None:
    """transformers rotates no such part: of one number it makes two, of three it stops."""
    assert read(keys("-", partial_rotary_factor=0.25)).rope.dim == 4
    with pytest.raises(BadCheckpoint, match="rotates 3 dimensions of a head, but an even number"):
        read(keys("-", partial_rotary_factor=0.2))


def test_the_rope_that_the_makers_of_hunyuan_vl_call_xdrope() -> None:
    """It is transformers' "dynamic": with an alpha the base is raised, without one it grows with the text."""
    for alpha in ({"alpha": 50.0}, {}):
        makers, usual = (
            hunyuan.from_hf(keys("-", rope_scaling={"type": kind, "factor": 1.5, **alpha})).rope
            for kind in ("xdrope", "dynamic")
        )
        assert usual is not None
        assert makers == usual
        assert usual.base == (pytest.approx(1e4 * 50 ** (16 / 14)) if alpha else 1e4)


def test_heads_of_zamba_of_a_width_of_their_own(tmp_path: Path) -> None:
    case = BY_NAME["Zamba"]
    case = replace(case, settings={**case.settings, "attention_head_dim": 24})
    expected = expected_logits(case)
    found = logits(load(write_checkpoint(case, tmp_path)), ids(case.length))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_odd_heads_without_rope(tmp_path: Path) -> None:
    case = BY_NAME["Jamba"]
    case = replace(case, settings={**case.settings, "num_attention_heads": 3, "num_key_value_heads": 3})
    expected = expected_logits(case)
    found = logits(load(write_checkpoint(case, tmp_path)), ids(case.length))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_granite_4_with_attention_alone_has_any_activation(tmp_path: Path) -> None:
    """Mamba layers have silu alone."""
    case = BY_NAME["Granite 4, attention alone"]
    case = replace(case, settings={**case.settings, "hidden_act": "gelu_pytorch_tanh"})
    expected = expected_logits(case)
    found = logits(load(write_checkpoint(case, tmp_path)), ids(case.length))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["Gemma 4", "Gemma 4, a second embedding and shared layers"])
def test_fused_queries_of_gemma_4(name: str, tmp_path: Path) -> None:
    """llama.cpp's converter fuses queries, keys and values also where the keys and values are never read."""
    case = BY_NAME[name]
    form = case.gguf
    assert form is not None

    def fused(config: Config, tensors: Tensors) -> Tensors:
        made, unread = form.change(config, tensors), dict[int, tuple[Floats, Floats]]()
        for query_name in [each for each in made if each.endswith(".self_attn.q_proj.weight")]:
            query = made.pop(query_name)
            own = [made.pop(query_name.replace(".q_proj.", part), None) for part in (".k_proj.", ".v_proj.")]
            if own[0] is not None and own[1] is not None:
                unread[len(query)] = own[0] + 1, own[1] - 1
            rest = [given if given is not None else unread[len(query)][at] for at, given in enumerate(own)]
            made[f"blk.{query_name.split('.')[2]}.attn_qkv.weight"] = np.concatenate([query, *rest])
        return made

    changed = replace(case, gguf=replace(form, change=fused))
    path = write_case_gguf(changed, write_checkpoint(case, tmp_path), tmp_path / "x.gguf")
    expected = cached_logits(name)
    assert np.abs(logits(load(path), ids(case.length)) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["Qwen 3.5", "Qwen3-Next"])
def test_fused_queries_and_gates_of_qwen(name: str, tmp_path: Path) -> None:
    """llama.cpp takes one matrix of queries with their gates, keys and values."""
    case = BY_NAME[name]
    form = case.gguf
    assert form is not None

    def fused(config: Config, tensors: Tensors) -> Tensors:
        made = form.change(config, tensors)
        for query in [each for each in made if each.endswith(".self_attn.q_proj.weight")]:
            parts = [made.pop(query.replace(".q_proj.", f".{part}_proj.")) for part in "qkv"]
            made[f"blk.{query.split('.')[2]}.attn_qkv.weight"] = np.concatenate(parts)
        return made

    changed = replace(case, gguf=replace(form, change=fused))
    path = write_case_gguf(changed, write_checkpoint(case, tmp_path), tmp_path / "x.gguf")
    expected = cached_logits(name)
    assert np.abs(logits(load(path), ids(case.length)) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["Ministral 3", "DeepSeek V3", "DeepSeek V4, the makers' names, yarn, tied"])
def test_yarn_by_a_factor_of_0_in_gguf_scales_nothing(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    form, folder = case.gguf, write_checkpoint(case, tmp_path)
    assert form is not None
    yarn = {
        "rope.scaling.type": "yarn", "rope.scaling.original_context_length": 32,
        "rope.scaling.yarn_log_multiplier": 0.1,
    }  # fmt: skip
    configs = []
    for factor in (0.0, 1.0):
        scaled = yarn | {"rope.scaling.factor": factor}
        made = replace(form, keys=lambda config, scaled=scaled: {**form.keys(config), **scaled})
        path = write_case_gguf(replace(case, gguf=made), folder, tmp_path / f"{factor}.gguf")
        configs.append(read_config(open_checkpoint(path)))
    assert configs[0] == configs[1]


def test_gguf_scales_the_attention_of_gemma_in_layers_with_a_window_too() -> None:
    """llama.cpp does so by `rope.scaling.attn_factor`."""
    stated = {"rope.scaling.attn_factor": 1.25, "rope.freq_base_swa": 60.0}
    assert gguf_local_rope(Keys(stated, "x"), 8) == RopeConfig(60.0, 8, False, (1.0,) * 4, 1.25)


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
