"""A tiny Nomic Embed v2, BERT with rope and experts in every other layer, as its makers publish it and as
GGUF.

transformers has no such layers; the oracle is written from arXiv 2502.07972 and the layout of the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.models.architectures import Config, Floats, Tensors
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.tiny import write_tokenizer

WIDTH, INNER, HEADS, LAYERS, EXPERTS, USED, BASE = 64, 48, 4, 4, 5, 2, 900.0
CONFIG: Config = {
    "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "gelu",
    "n_embd": WIDTH, "n_inner": INNER, "n_head": HEADS, "n_layer": LAYERS, "n_positions": 320,
    "vocab_size": 307, "layer_norm_epsilon": 1e-5, "rotary_emb_base": BASE, "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False, "type_vocab_size": 1, "prenorm": False, "causal": False,
    "moe_every_n_layers": 2, "num_experts": EXPERTS, "moe_top_k": USED, "num_shared_experts": 0,
    "moe_normalize_expert_weights": False, "expert_choice_router": False, "parallel_block": False,
    "max_trained_positions": 2048, "pad_token_id": 1,
}  # fmt: skip


def nomic_tensors() -> Tensors:
    """Random tensors under the makers' names."""
    random, made = np.random.default_rng(6), Tensors()

    def matrix(name: str, rows: int, columns: int, scale: float = 1.5) -> None:
        made[name] = (scale * columns**-0.5 * random.standard_normal((rows, columns))).astype("f4")

    def vector(name: str, size: int, around: float = 0.0) -> None:
        made[name] = (around + 0.3 * random.standard_normal(size)).astype("f4")

    def norm(name: str) -> None:
        vector(name + ".weight", WIDTH, 1.0)
        vector(name + ".bias", WIDTH)

    matrix("embeddings.word_embeddings.weight", 307, WIDTH)
    matrix("embeddings.token_type_embeddings.weight", 1, WIDTH)
    norm("emb_ln")
    for layer in range(LAYERS):
        at = f"encoder.layers.{layer}."
        shapes = {"attn.Wqkv": (3 * WIDTH, WIDTH), "attn.out_proj": (WIDTH, WIDTH)}
        if layer % 2 == 0:
            shapes |= {"mlp.fc1": (INNER, WIDTH), "mlp.fc2": (WIDTH, INNER)}
        else:
            matrix(at + "mlp.router.layer.weight", EXPERTS, WIDTH)
            matrix(at + "mlp.experts.mlp.w1", EXPERTS * INNER, WIDTH)
            matrix(at + "mlp.experts.mlp.w2", EXPERTS * INNER, WIDTH, 2.0)
            vector(at + "mlp.experts.bias", WIDTH)
        for name, (rows, columns) in shapes.items():
            matrix(f"{at}{name}.weight", rows, columns)
            vector(f"{at}{name}.bias", rows)
        norm(at + "norm1")
        norm(at + "norm2")
    return made


def nomic_states(tensors: Tensors, tokens: list[int]) -> Floats:
    """The last hidden states (T, E) in float64; without the tensors of biases of experts, these are 0."""
    import torch
    from torch.nn import functional

    weights = {name: torch.from_numpy(values).double() for name, values in tensors.items()}

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (WIDTH,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    def experts(x: Any, at: str) -> Any:
        shares = (x @ weights[at + "router.layer.weight"].T).softmax(-1)
        first, second = (
            weights[at + "experts.mlp." + w].reshape(EXPERTS, INNER, WIDTH) for w in ("w1", "w2")
        )
        total = torch.zeros_like(x) + weights.get(at + "experts.bias", 0.0)
        for row, chosen in enumerate(shares.topk(USED).indices.tolist()):
            for i in chosen:
                total[row] += shares[row, i] * (functional.gelu(first[i] @ x[row]) @ second[i])
        return total

    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "emb_ln")
    dim = WIDTH // HEADS
    speeds = BASE ** (-torch.arange(0, dim, 2).double() / dim)
    angles = torch.outer(torch.arange(len(tokens)).double(), speeds)
    turn = torch.polar(torch.ones_like(angles), angles)
    for layer in range(LAYERS):
        at = f"encoder.layers.{layer}."
        q, k, v = linear(x, at + "attn.Wqkv").reshape(-1, 3, HEADS, dim).permute(1, 2, 0, 3)
        q, k = (torch.complex(part[..., : dim // 2], part[..., dim // 2 :]) * turn for part in (q, k))
        scores = (q @ k.conj().transpose(1, 2)).real * dim**-0.5
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(tokens), WIDTH)
        x = norm(x + linear(mixed, at + "attn.out_proj"), at + "norm1")
        if layer % 2:
            fed = experts(x, at + "mlp.")
        else:
            fed = linear(functional.gelu(linear(x, at + "mlp.fc1")), at + "mlp.fc2")
        x = norm(x + fed, at + "norm2")
    found: Floats = x.float().numpy()
    return found


def write_nomic(folder: Path, **changes: Any) -> Path:
    """The makers' folder. Returns `folder`."""
    from safetensors.numpy import save_file

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    save_file(nomic_tensors(), folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def write_nomic_gguf(path: Path) -> Path:
    """The file of llama.cpp's converter, which leaves the biases of experts out. Returns `path`."""

    def change(config: Config, tensors: Tensors) -> Tensors:
        made = Tensors()
        for name, values in tensors.items():
            if ".experts." not in name:
                made[name] = values
            elif not name.endswith("bias"):
                stack = values.reshape(EXPERTS, INNER, WIDTH)
                made[name + ".weight"] = stack.transpose(0, 2, 1) if name.endswith("w2") else stack
        return made

    keys = {
        "attention.causal": False, "attention.layer_norm_epsilon": 1e-5, "rope.freq_base": BASE,
        "feed_forward_length": INNER, "expert_count": EXPERTS, "expert_used_count": USED,
        "moe_every_n_layers": 2, "tokenizer.ggml.token_type_count": 1,
    }  # fmt: skip
    form = GgufForm("nomic-bert-moe", keys=lambda config: keys, change=change)
    return write_gguf(path, form, CONFIG, nomic_tensors())


def without_biases(tensors: Tensors) -> Tensors:
    """What is left of the tensors in a GGUF file."""
    return {name: values for name, values in tensors.items() if not name.endswith("experts.bias")}
