"""Files of Gemma 3n and 4 beyond the table of cases: models with images, defaults, fewer rows, damage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.config import ModelConfig
from engine.models.load import read_config
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.engine.models.architectures import cached_logits, ids, write_case_gguf, write_checkpoint
from tests.engine.models.cases.gemma_3n_4 import GEMMA_3N, GEMMA_4, GEMMA_4_E, GEMMA_4_MIXTURE
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

TOKENS = ids(60)
SECOND = "Gemma 4, a second embedding and shared layers"


def config_of(folder: Path, config: Mapping[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return read_config(open_checkpoint(folder))


@pytest.mark.parametrize("settings", [GEMMA_4_E, GEMMA_4_MIXTURE])
def test_the_text_part_of_gemma_4_with_images(tmp_path: Path, settings: Mapping[str, Any]) -> None:
    """A Gemma4ForConditionalGeneration as transformers saves it."""
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration
    from transformers.utils import logging

    logging.disable_progress_bar()
    eyes = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 16, "position_embedding_size": 32,
    }  # fmt: skip
    config = Gemma4Config(text_config={**settings, "pad_token_id": 0}, vision_config=eyes)
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    model = Gemma4ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.model.language_model.parameters():
            parameter.mul_(5.0 if parameter.ndim > 1 else 1.0)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS]), use_cache=False).logits[0].numpy()
    assert expected.std() > 0.1
    np.testing.assert_allclose(logits(load(tmp_path), TOKENS), expected, atol=1e-4 * np.abs(expected).max())


def test_numbers_of_layers_that_transformers_pads(tmp_path: Path) -> None:
    """With eleven layers or more, per_layer_config names them by two digits."""
    from transformers import Gemma4UnifiedTextConfig

    whole = Gemma4UnifiedTextConfig(num_hidden_layers=12, architectures=["Gemma4UnifiedForCausalLM"])
    written = json.loads(whole.to_json_string())
    assert "05" in written["per_layer_config"]
    left_out = {"architectures": whole.architectures, "num_hidden_layers": 12}
    (tmp_path / "bare").mkdir()
    config = config_of(tmp_path, written)
    assert config.layer_heads == (((4, 256),) * 5 + ((4, 512),)) * 2
    assert config.windows == ((1024,) * 5 + (0,)) * 2
    assert (config.context_length, config.per_layer) == (262144, None)
    assert config == config_of(tmp_path / "bare", left_out)


def test_defaults_of_gemma_4(tmp_path: Path) -> None:
    """Where config.json leaves out what is the class's default."""
    text = {"model_type": "gemma4_text", "num_hidden_layers": 12}
    config = config_of(
        tmp_path,
        {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": text},
    )
    assert (config.heads, config.width, config.vocab_size, config.context_length) == (8, 2304, 262144, 131072)
    assert config.windows == ((512,) * 5 + (0,)) * 2
    assert config.layer_heads == (((4, 256),) * 5 + ((4, 512),)) * 2
    assert config.rope is not None
    assert config.rope_local is not None
    assert (config.rope.base, config.rope.dim) == (1e6, 512)
    assert config.rope.divisors == (1.0,) * 64 + (np.inf,) * 192
    assert (config.rope_local.base, config.rope_local.dim) == (1e4, 256)
    assert config.per_layer is not None
    assert (config.per_layer.width, config.per_layer.vocab_size) == (256, 262144)
    assert (config.attention_scale, config.logit_cap, config.tied, config.shared_kv) == (1.0, 0.0, True, 0)
    assert config.experts is None


def test_defaults_of_gemma_3n(tmp_path: Path) -> None:
    text = {"model_type": "gemma3n_text", "rope_theta": 5e5, "rope_local_base_freq": 2e4}
    config = config_of(
        tmp_path,
        {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "text_config": text},
    )
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (35, 8, 2, 256)
    assert (config.width, config.vocab_size, config.context_length, config.shared_kv) == (
        2048, 262400, 32768, 15,
    )  # fmt: skip
    assert config.windows == ((512,) * 4 + (0,)) * 7
    assert len(config.kv_shapes) == 20
    assert [config.cache_layer(layer) for layer in (20, 23, 24, 34)] == [18, 18, 19, 19]
    assert config.rope is not None
    assert config.rope_local is not None
    assert (config.rope.base, config.rope_local.base) == (5e5, 2e4)
    assert config.altup is not None
    assert config.per_layer is not None
    assert config.per_layer.vocab_size == 262144
    assert config.altup.deviations == (pytest.approx(1.6448536),) * 10 + (None,) * 25
    assert (config.altup.inputs, config.altup.active, config.altup.rank) == (4, 0, 64)
    assert (config.altup.scaled, config.logit_cap) == (True, 30.0)


@pytest.mark.parametrize("name", [SECOND, "Gemma 3n"])
def test_tokens_past_the_second_embedding_take_its_first_row(tmp_path: Path, name: str) -> None:
    """As the makers' code does for images and sounds."""
    folder, rows = write_checkpoint(BY_NAME[name], tmp_path), 200
    config, tensors = (
        json.loads((folder / "config.json").read_text()),
        load_file(folder / "model.safetensors"),
    )
    table = tensors["model.embed_tokens_per_layer.weight"]
    table[rows:] = table[0]
    save_file(tensors, folder / "model.safetensors")
    expected = logits(load(folder), TOKENS)
    tensors["model.embed_tokens_per_layer.weight"] = table[:rows].copy()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size_per_layer_input": rows}))
    np.testing.assert_array_equal(logits(load(folder), TOKENS), expected)
    model = load(folder, CpuBackend(threads=1))
    np.testing.assert_allclose(logits(model, TOKENS), expected, atol=1e-4 * np.abs(expected).max())
    model.close()


def test_a_gguf_file_without_what_readers_know(tmp_path: Path) -> None:
    """Gemma 3n's first files: the kinds of layers and the sparse gates are those of the published models."""
    from dataclasses import replace

    case = BY_NAME["Gemma 3n, default kinds of layers and ropes, untied"]
    form = BY_NAME["Gemma 3n"].gguf
    assert form is not None
    left_out = ("attention.sliding_window_pattern", "activation_sparsity_scale", "altup.active_idx")
    keys = form.keys
    form = replace(form, keys=lambda c: {k: v for k, v in keys(c).items() if k not in left_out})
    case = replace(case, gguf=form)
    path = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = cached_logits(case.name)
    found = logits(load(path), TOKENS)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_shared_layers_have_no_pages(tmp_path: Path) -> None:
    """Each page holds the keys and values of four of the eight layers, and estimates know."""
    folder = write_checkpoint(BY_NAME[SECOND], tmp_path)
    info = describe(folder)
    assert info.kv_shapes == ((2, 16), (2, 16), (2, 24), (2, 16))
    assert info.kv_bytes_per_token == 2 * 2 * (3 * (16 + 16) + 24 + 32)  # values are padded to 16
    for backend in (CpuBackend(threads=1), ReferenceBackend()):
        model = load(folder, backend)
        cache = model.new_cache(300, "fp16")
        assert cache.page_bytes == model.page_bytes("fp16")
        model.close()
    table = 307 * 8 * 12 * 4
    assert info.resident_bytes - info.read_bytes > table - 16 * 8 * 12 * 4  # one row of it is read


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME[SECOND], tmp_path)
    config = json.loads((folder / "config.json").read_text())

    def opened(**changes: Any) -> None:
        (folder / "config.json").write_text(json.dumps(config | changes))
        load(folder)

    with pytest.raises(UnsupportedModel, match="bidirectional"):
        opened(use_bidirectional_attention="all")
    with pytest.raises(BadCheckpoint, match="shares an earlier layer's keys and values"):
        opened(num_kv_shared_layers=6)  # only layers with a window are left
    with pytest.raises(BadCheckpoint, match="num_kv_shared_layers is 8"):
        opened(num_kv_shared_layers=8)
    with pytest.raises(BadCheckpoint, match="heads of different sizes"):
        opened(per_layer_config={"2": {"head_dim": 24}, "4": {"head_dim": 32}})
    with pytest.raises(BadCheckpoint, match=r"the headers state \(16, 64\)"):
        opened(hidden_size_per_layer_input=16)
    opened(use_bidirectional_attention="vision")
    with pytest.raises(BadCheckpoint, match="activation_sparsity_pattern"):
        config_of(
            tmp_path,
            {
                **GEMMA_3N,
                "architectures": ["Gemma3nForCausalLM"],
                "activation_sparsity_pattern": [0.9, 1.0] + [0.0] * 6,
            },
        )


def test_layers_of_one_kind_alone(tmp_path: Path) -> None:
    """All layers without a window, and all but the last with one."""
    for number, kinds in enumerate((["full_attention"] * 3, ["sliding_attention"] * 2 + ["full_attention"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = config_of(
            folder,
            {**GEMMA_4, "architectures": ["Gemma4ForCausalLM"], "num_hidden_layers": 3, "layer_types": kinds},
        )
        assert config.windows == tuple(0 if kind == "full_attention" else 9 for kind in kinds)
        assert config.layer_heads[2] == (2, 24)
