"""Families that are Llama's or Qwen 3's in transformers' terms, under names and keys of their own: Aquila,
the first InternLM, IQuest Coder, K2 Horizon, Lille, TeleChat, Klear.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn.functional import linear, silu
from transformers import AutoConfig, AutoModelForCausalLM

from engine.backends.cpu.backend import CpuBackend
from engine.errors import UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

TOKENS = ids(40)
CUTS = [1, 7, 8, 21, 39]
Tensors = dict[str, Any]


def oracle(kind: str, zero: tuple[str, ...] = (), **settings: Any) -> Any:
    """A model of transformers with random weights; those whose names contain one of `zero` are 0."""
    torch.manual_seed(3)
    config = AutoConfig.for_model(kind, **{**SMALL, **settings})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape)
            parameter.copy_(1 + 0.2 * random if "norm" in name else random * 1.5 / parameter.shape[-1] ** 0.5)
            if any(part in name for part in zero):
                parameter.zero_()
    return model


def expected(model: Any) -> Any:
    with torch.inference_mode():
        return model(torch.tensor([TOKENS])).logits[0].numpy()


def tensors_of(model: Any, zero: tuple[str, ...] = ()) -> Tensors:
    state = model.state_dict()
    return {name: each.numpy() for name, each in state.items() if not any(part in name for part in zero)}


def write_folder(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(
        {name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "m.safetensors"
    )
    write_tokenizer(folder)
    return folder


def assert_near(found: Any, exact: Any, share: float = 1e-4) -> None:
    assert exact.std() > 0.3
    assert np.abs(found - exact).max() <= share * np.abs(exact).max()


PLAIN = {**SMALL, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False}


@pytest.mark.parametrize(
    "name", ["AquilaForCausalLM", "AquilaModel", "IQuestCoderForCausalLM", "K2HorizonForCausalLM"]
)
def test_llama_under_another_name(name: str, tmp_path: Path) -> None:
    model = oracle("llama")
    folder = write_folder(tmp_path / "m", {**PLAIN, "architectures": [name]}, tensors_of(model))
    assert_near(logits(load(folder), TOKENS, CUTS), expected(model))


def test_k2_horizon_in_a_gguf_file_with_yarn(tmp_path: Path) -> None:
    """Whose rope is in halves, unlike that of Llama's files."""
    rope = {
        "rope_type": "yarn", "rope_theta": 700.0, "factor": 8.0, "original_max_position_embeddings": 16,
    }  # fmt: skip
    settings = {**SMALL, ROPE: rope, "rms_norm_eps": 1e-6}
    model, form = oracle("llama", **{ROPE: rope}), GgufForm("k2-horizon", alike=("qwen3",))
    path = write_gguf(tmp_path / "m.gguf", form, settings, tensors_of(model))
    assert_near(logits(load(path), TOKENS, CUTS), expected(model))


def test_tele_chat_3_may_have_all_biases(tmp_path: Path) -> None:
    model = oracle("llama", attention_bias=True, mlp_bias=True)
    config = {
        **PLAIN, "architectures": ["TeleChat3ForCausalLM"], "attention_bias": True, "mlp_bias": True,
    }  # fmt: skip
    folder = write_folder(tmp_path / "m", config, tensors_of(model))
    assert_near(logits(load(folder), TOKENS, CUTS), expected(model))


@pytest.mark.parametrize("bias", [True, False])
def test_internlm(bias: bool, tmp_path: Path) -> None:
    """Biases of the four matrices of attention, and a base of rope under a key of its own."""
    rope = {"rope_type": "default", "rope_theta": 700.0}
    model = oracle("llama", attention_bias=bias, num_key_value_heads=4, **{ROPE: rope})
    config = {
        **PLAIN, "architectures": ["InternLMForCausalLM"], "bias": bias,
        "rotary": {"base": 700, "type": "dynamic"},
    }  # fmt: skip
    del config["num_key_value_heads"]
    folder = write_folder(tmp_path / "m", config, tensors_of(model))
    assert_near(logits(load(folder), TOKENS, CUTS), expected(model))


def interleaved(values: Any) -> Any:
    """Rows of heads of 16 numbers, whose rope is in halves, in the order of interleaved rope."""
    return values.reshape(-1, 2, 8, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


LILLE_PARTS = {
    "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "model.layers": "layers",
    "input_layernorm": "attention.norm", "post_attention_layernorm": "feed_forward.norm",
    "self_attn.o_proj": "attention.out_proj", "mlp": "feed_forward",
}  # fmt: skip
LILLE = {
    "architectures": ["LilleForCausalLM"], "model_type": "lille-130m", "n_embd": 64, "n_layer": 3,
    "n_head": 4, "n_kv_heads": 2, "vocab_size": 307, "block_size": 512, "rope_theta": 700.0,
    "layer_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip


def lille_folder(folder: Path, model: Any) -> Path:
    tensors, held = Tensors(), tensors_of(model, ("lm_head",))
    for name, values in held.items():
        if ".k_proj" in name or ".v_proj" in name:
            continue
        if ".q_proj" in name:
            q, k, v = (held[name.replace(".q_", f".{each}_")] for each in "qkv")
            at = name.partition(".self_attn")[0].removeprefix("model")
            values = np.concatenate([interleaved(q), interleaved(k), v])
            tensors[f"transformer{at}.attention.qkv_proj.weight"] = values
            continue
        for old, new in LILLE_PARTS.items():
            name = name.replace(old, new)
        tensors["transformer." + name] = values
    return write_folder(folder, LILLE, tensors)


def test_lille(tmp_path: Path) -> None:
    """Queries, keys and values in one matrix, for interleaved rope; a feed-forward part as wide as its class
    makes it.
    """
    rope = {"rope_type": "default", "rope_theta": 700.0}
    model = oracle("llama", intermediate_size=256, head_dim=16, tie_word_embeddings=True, **{ROPE: rope})
    folder = lille_folder(tmp_path / "m", model)
    assert_near(logits(load(folder), TOKENS, CUTS), expected(model))
    on_cpu = load(folder, CpuBackend(threads=2))
    assert_near(logits(on_cpu, TOKENS, CUTS), expected(model), 1e-3)
    on_cpu.close()
    (folder / "config.json").write_text(json.dumps({"architectures": ["LilleForCausalLM"]}), "utf-8")
    config = read_config(open_checkpoint(folder))
    assert (config.width, config.ffn_width, config.kv_heads, config.context_length) == (768, 2048, 4, 512)


NONE = ("q_proj.bias", "k_proj.bias", "v_proj.bias", "gate_proj.bias", "up_proj.bias")
"""The biases that TeleChat lacks."""


def tele_chat(base: float, **changed: Any) -> tuple[Any, dict[str, Any], Tensors]:
    """A model of transformers, and the same under TeleChat 2's keys and names."""
    rope = {"rope_type": "default", "rope_theta": base}
    model = oracle("llama", NONE, attention_bias=True, mlp_bias=True, **{ROPE: rope})
    config = {
        "architectures": ["TeleChat2ForCausalLM"], "vocab_size": 307, "hidden_size": 64, "n_layer": 3,
        "n_head": 4, "num_key_value_heads": 2, "ffn_hidden_size": 96, "layer_norm_epsilon": 1e-6,
        "bos_token_id": 0, "eos_token_id": 2, "training_seqlen": 512, "base_seqlen": 512, **changed,
    }  # fmt: skip
    found: Tensors = {}
    for name, values in tensors_of(model, NONE).items():
        for old, new in (
            ("model.layers", "transformer.h"), ("model.norm", "transformer.ln_f"),
            ("self_attn", "self_attention"), ("model.embed_tokens", "transformer.word_embeddings"),
            ("o_proj", "dense"), ("q_proj", "query"),
        ):  # fmt: skip
            name = name.replace(old, new)
        found[name] = values
    for layer in range(3):
        at = f"transformer.h.{layer}.self_attention."
        key, value = (found.pop(f"{at}{part}_proj.weight").reshape(2, 16, 64) for part in "kv")
        found[at + "key_value.weight"] = np.stack([key, value], 1).reshape(-1, 64)
    return model, config, found


@pytest.mark.parametrize("name", ["TeleChat2ForCausalLM", "TelechatForCausalLM", "TeleChatForCausalLM"])
def test_tele_chat_2(name: str, tmp_path: Path) -> None:
    model, config, tensors = tele_chat(10000.0, architectures=[name])
    folder = write_folder(tmp_path / "m", config, tensors)
    assert_near(logits(load(folder), TOKENS, CUTS), expected(model))


@pytest.mark.parametrize(("base_seqlen", "factor"), [(512, 1.0), (256, 3.0), (200, 7.0), (1024, 1.0)])
def test_base_of_rope_for_longer_texts(base_seqlen: int, factor: float, tmp_path: Path) -> None:
    """With a trained length of 512: NTK-aware, in the maker's steps."""
    model, config, tensors = tele_chat(10000.0 * factor ** (16 / 14), base_seqlen=base_seqlen)
    folder = write_folder(tmp_path / "m", config, tensors)
    assert_near(logits(load(folder), TOKENS), expected(model))
    assert read_config(open_checkpoint(folder)).context_length == 512


def test_tele_chat_with_what_is_not_supported(tmp_path: Path) -> None:
    for number, name in enumerate(["embed_layernorm", "logn"]):
        folder = write_folder(tmp_path / str(number), *tele_chat(1e4, **{name: True})[1:])
        with pytest.raises(UnsupportedModel, match=f"sets {name} to True"):
            read_config(open_checkpoint(folder))


class KlearBlock(nn.Module):
    """The maker's mixture: `shares` weigh the chosen experts and the shared one."""

    def __init__(self, own: dict[str, torch.Tensor], used: int) -> None:
        super().__init__()
        self.own, self.used = own, used

    def network(self, name: str, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (self.own[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return linear(silu(linear(x, gate)) * linear(x, up), down)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        scores = linear(rows, self.own["gate.weight"]).sigmoid()
        chosen = (scores + self.own["expert_bias"]).topk(self.used).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for row in range(len(rows)):
            for weight, expert in zip(weights[row], chosen[row].tolist(), strict=True):
                out[row] += weight * self.network(f"experts.{expert}", rows[row])
        shares = linear(rows, self.own["coefficient.weight"], self.own["coefficient.bias"]).softmax(-1)
        both = out * shares[:, :1] + self.network("shared_experts", rows) * shares[:, 1:]
        return both.reshape(x.shape)


def klear() -> tuple[Any, dict[str, Any], Tensors]:
    """Qwen 3 in transformers with `KlearBlock`s in all layers but the first, and the folder's contents."""
    model = oracle("qwen3", head_dim=16)
    generator = torch.Generator().manual_seed(4)
    shapes = {
        "gate.weight": (6, 64),
        "expert_bias": (6,),
        "coefficient.weight": (2, 64),
        "coefficient.bias": (2,),
    }
    for name in (*(f"experts.{expert}" for expert in range(6)), "shared_experts"):
        inner = 72 if name == "shared_experts" else 36
        shapes |= {f"{name}.{part}_proj.weight": (inner, 64) for part in ("gate", "up")}
        shapes[f"{name}.down_proj.weight"] = (64, inner)
    tensors = tensors_of(model)
    for layer in (1, 2):
        own = {
            name: torch.randn(shape, generator=generator) * (2 / shape[-1] ** 0.5)
            for name, shape in shapes.items()
        }
        model.model.layers[layer].mlp = KlearBlock(own, 2)
        at = f"model.layers.{layer}.mlp."
        tensors = {name: values for name, values in tensors.items() if not name.startswith(at)}
        tensors |= {at + name: values.numpy() for name, values in own.items()}
    config = {
        **PLAIN, "architectures": ["KlearMoeForCausalLM"], "model_type": "Klear", "attention_bias": False,
        "mlp_only_layers": [0], "decoder_sparse_step": 1, "num_experts": 6, "num_experts_per_tok": 2,
        "n_shared_experts": 2, "moe_intermediate_size": 36, "norm_topk_prob": True, "rope_theta": 10000.0,
    }  # fmt: skip
    return model, config, tensors


@pytest.mark.parametrize(
    "backend", [lambda: None, pytest.param(lambda: CpuBackend(threads=2), marks=pytest.mark.slow)]
)
def test_klear(backend: Callable[[], Any], tmp_path: Path) -> None:
    whole, config, tensors = klear()
    folder, made = write_folder(tmp_path / "m", config, tensors), backend()
    model = load(folder) if made is None else load(folder, made)
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, expected(whole), 1e-4 if made is None else 3e-4)
