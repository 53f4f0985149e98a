"""Models whose layers run several times, Nanbeige 4.2 and Ouro: folders against transformers' layers of Llama
run in loops, GGUF files against the folders and llama.cpp.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import Config, Floats, Tensors, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import CONTEXT, by_llama_cpp
from tests.tiny import write_tokenizer

TOKENS, CUTS = ids(60), [1, 7, 8, 21, 59]
COMMON = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 307, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 900.0, "tie_word_embeddings": False,
}  # fmt: skip
NANBEIGE = {**COMMON, "architectures": ["NanbeigeForCausalLM"], "model_type": "nanbeige", "num_loops": 3}
OURO = {
    **COMMON, "architectures": ["OuroForCausalLM"], "model_type": "ouro", "total_ut_steps": 2,
    "early_exit_threshold": 1.0, "layer_types": ["full_attention"] * 3, "sliding_window": None,
    "use_sliding_window": False,
}  # fmt: skip
FOLDERS: dict[str, tuple[Config, int, bool]] = {
    "nanbeige": (NANBEIGE, 3, True),
    "without the norm between": ({**NANBEIGE, "skip_loop_final_norm": True}, 3, False),
    "biases, one run more than weights": (
        {**NANBEIGE, "attention_bias": True, "mlp_bias": True, "loop_loss_weights": [0.3]}, 2, True,
    ),
    "one run": ({**NANBEIGE, "num_loops": 1}, 1, True),
    "ouro": (OURO, 2, True),
}  # fmt: skip


def llama(config: Config) -> Any:
    """Llama of transformers with random weights; Ouro has two further norms in each layer."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    own = {key: value for key, value in config.items() if key not in ("architectures", "model_type")}
    model = LlamaForCausalLM(LlamaConfig(**own, attn_implementation="eager")).float().eval()
    if config["model_type"] == "ouro":
        for layer in model.model.layers:
            layer.input_layernorm_2 = LlamaRMSNorm(64, 1e-5)
            layer.post_attention_layernorm_2 = LlamaRMSNorm(64, 1e-5)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            size = 1.5 * parameter.shape[-1] ** -0.5
            if name.endswith("bias"):
                parameter.copy_(0.3 * drawn)
            else:
                parameter.copy_(1 + 0.2 * drawn if parameter.ndim == 1 else size * drawn)
    return model


@torch.inference_mode()
def expected(model: Any, tokens: list[int], times: int, normed: bool) -> Floats:
    """Logits (T, V) of `times` runs of all layers."""
    inner, count = model.model, len(tokens)
    x = inner.embed_tokens(torch.tensor([tokens]))
    rope = inner.rotary_emb(x, torch.arange(count)[None])
    mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
    for run in range(times):
        for layer in inner.layers:
            after = [getattr(layer, name, lambda y: y) for name in (
                "input_layernorm_2", "post_attention_layernorm_2"
            )]  # fmt: skip
            y = layer.self_attn(layer.input_layernorm(x), position_embeddings=rope, attention_mask=mask)[0]
            x = x + after[0](y)
            x = x + after[1](layer.mlp(layer.post_attention_layernorm(x)))
        x = inner.norm(x) if normed or run == times - 1 else x
    found: Floats = model.lm_head(x)[0].numpy()
    return found


def tensors_of(model: Any) -> Tensors:
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def written(config: Config, tensors: Tensors, path: Path) -> Path:
    if config["model_type"] == "ouro":
        gate = {"model.early_exit_gate.weight": (1, 64), "model.early_exit_gate.bias": (1,)}
        tensors = tensors | {name: np.ones(shape, np.float32) for name, shape in gate.items()}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, path / "model.safetensors")
    write_tokenizer(path)
    return path


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name: str, tmp_path: Path) -> None:
    """At once, in steps, and on the CPU backend."""
    config, times, normed = FOLDERS[name]
    model = llama(config)
    right = expected(model, TOKENS, times, normed)
    folder = written(config, tensors_of(model), tmp_path / "m")
    for cuts in ([], CUTS):
        found = logits(load(folder), TOKENS, cuts)
        assert np.abs(found - right).max() <= 1e-4 * np.abs(right).max()
    on_cpu = load(folder, CpuBackend(threads=2))
    found = logits(on_cpu, TOKENS, CUTS)
    on_cpu.close()
    assert np.abs(found - right).max() <= 1e-3 * np.abs(right).max()


def gguf_file(config: Config, tensors: Tensors, path: Path) -> Path:
    def keys(config: Config) -> Config:
        own = ("num_loops", "skip_loop_final_norm")
        return {key: config[key] for key in own if key in config} | {"rope.freq_base": 900.0}

    form = GgufForm("nanbeige", interleaved=True, keys=keys, alike=("llama",))
    return write_gguf(path, form, config, tensors)


@pytest.mark.parametrize("name", ["nanbeige", "without the norm between", "one run"])
def test_gguf_files(name: str, tmp_path: Path) -> None:
    config, times, normed = FOLDERS[name]
    model = llama(config)
    right = expected(model, TOKENS, times, normed)
    found = logits(load(gguf_file(config, tensors_of(model), tmp_path / "m.gguf")), TOKENS, CUTS)
    assert np.abs(found - right).max() <= 1e-4 * np.abs(right).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nanbeige", "without the norm between"])
def test_gguf_files_by_llama_cpp(name: str, tmp_path: Path) -> None:
    config = FOLDERS[name][0]
    file = gguf_file(config, tensors_of(llama(config)), tmp_path / "m.gguf")
    right = by_llama_cpp(file, TOKENS)
    assert right.std() > 0.5
    found = logits(load(file), TOKENS, context=CONTEXT)
    assert np.abs(found - right).max() <= 1e-4 * np.abs(right).max()


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (NANBEIGE, "qk_layernorm", True), (NANBEIGE, "enable_mhc", True), (NANBEIGE, "emb_neighbor_num", 3),
        (NANBEIGE, "enable_double_loop_split", True), (OURO, "early_exit_threshold", 0.9),
    ],
)  # fmt: skip
def test_what_is_not_supported(config: Config, key: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=f"sets {key} to"):
        read_config(open_checkpoint(tmp_path))


def test_runs_without_number(tmp_path: Path) -> None:
    """Each costs a cache of its own."""
    config = {**NANBEIGE, "loop_loss_weights": [0.1] * 64}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(BadCheckpoint, match="num_loops"):
        read_config(open_checkpoint(tmp_path))
