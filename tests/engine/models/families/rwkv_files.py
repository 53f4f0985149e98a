"""Tiny random models of RWKV-7 as folders and GGUF files, and their logits in float64 by the paper's formulas
(arXiv 2503.14456, section 4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from tests.tiny import TINY, _add_key, _gguf_metadata, write_tokenizer

Values = npt.NDArray[Any]
Tensors = dict[str, Values]
PARTS = ("r", "w", "k", "v", "a", "g")
EPS, HEAD_EPS, VOCABULARY = 1e-5, 64e-5, 307


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; `ranks` are those of decays, rates, shares of values and the gate."""

    width: int = 64
    dim: int = 16
    layers: int = 3
    inner: int = 96
    ranks: tuple[int, int, int, int] = (16, 9, 5, 12)
    converted: bool = False
    """Whether norms and feed-forward parts are Qwen's, as in `arwkv7`."""


def tensors(shape: Shape) -> Tensors:
    """Random weights under the names of flash-linear-attention."""
    rng, width = np.random.default_rng(5), shape.width

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Values:
        return rng.standard_normal((rows, columns)) * scale / columns**0.5

    def vector(size: int, middle: float, spread: float = 0.3) -> Values:
        return middle + spread * rng.standard_normal(size)

    found = {
        "model.embeddings.weight": matrix(VOCABULARY, width, 3.0),
        "lm_head.weight": matrix(VOCABULARY, width, 2.0), "model.norm.weight": vector(width, 1),
        "model.norm.bias": vector(width, 0), "model.layers.0.pre_norm.weight": vector(width, 1),
        "model.layers.0.pre_norm.bias": vector(width, 0),
    }  # fmt: skip
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            found |= {f"{at}{name}.weight": vector(width, 1), f"{at}{name}.bias": vector(width, 0)}
        found |= {f"{at}attn.x_{part}": rng.uniform(0, 1, (1, 1, width)) for part in PARTS}
        found |= {f"{at}attn.{part}_proj.weight": matrix(width, width, 1.5) for part in "rkvo"}
        for part, rank in zip("wavg", shape.ranks, strict=True):
            if part == "v" and layer == 0:
                continue
            found[f"{at}attn.{part}_lora.lora.0.weight"] = matrix(rank, width, 1.5)
            found[f"{at}attn.{part}_lora.lora.2.weight"] = matrix(width, rank, 1.5)
            if part != "g":
                found[f"{at}attn.{part}_lora.lora.2.bias"] = vector(width, 0, 1.0)
        found |= {
            at + "attn.k_k": vector(width, 0.8), at + "attn.k_a": vector(width, 1),
            at + "attn.r_k": vector(width, 0).reshape(-1, shape.dim),
            at + "ffn.x_k": rng.uniform(0, 1, width),
            at + "attn.g_norm.weight": vector(width, 1), at + "attn.g_norm.bias": vector(width, 0),
            at + "ffn.key.weight": matrix(shape.inner, width),
            at + "ffn.value.weight": matrix(width, shape.inner),
        }  # fmt: skip
        if shape.converted:
            found[at + "ffn.gate.weight"] = matrix(shape.inner, width)
    return {name: np.ascontiguousarray(values, np.float32) for name, values in found.items()}


def sigmoid(x: Values) -> Values:
    return 1 / (1 + np.exp(-x))


def norm_of(x: Values, weight: Values, bias: Values | float, eps: float, centred: bool = True) -> Values:
    x = x - x.mean(-1, keepdims=True) if centred else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


def before(x: Values) -> Values:
    return np.concatenate([np.zeros((1, x.shape[1])), x[:-1]])


class _Oracle:
    """The forward pass of one model over a text."""

    def __init__(self, shape: Shape, stored: Mapping[str, Values], eps: float) -> None:
        self.eps = eps
        self.shape, self.stored = shape, {name: values.astype(np.float64) for name, values in stored.items()}

    def low(self, at: str, part: str, x: Values, function: Any = lambda y: y) -> Values:
        name = f"{at}attn.{part}_lora.lora."
        y = function(x @ self.stored[name + "0.weight"].T) @ self.stored[name + "2.weight"].T
        return y + self.stored.get(name + "2.bias", 0)

    def time_mixing(self, at: str, x: Values, first: Values | None) -> tuple[Values, Values]:
        of, dim = self.stored, self.shape.dim
        moved = before(x) - x
        r_in, w_in, k_in, v_in, a_in, g_in = (x + moved * of[f"{at}attn.x_{part}"][0, 0] for part in PARTS)
        r, k, v = (
            y @ of[f"{at}attn.{part}_proj.weight"].T
            for part, y in zip("rkv", (r_in, k_in, v_in), strict=True)
        )
        w = np.exp(-np.exp(-0.5) * sigmoid(self.low(at, "w", w_in, np.tanh)))
        if first is not None:
            v = v + (first - v) * sigmoid(self.low(at, "v", v_in))
        a, heads = sigmoid(self.low(at, "a", a_in)), (len(x), -1, dim)
        removed = (k * of[at + "attn.k_k"]).reshape(heads)
        removed = removed / np.maximum(np.linalg.norm(removed, axis=-1, keepdims=True), 1e-12)
        k = k * (1 + (a - 1) * of[at + "attn.k_a"])
        by_head = [y.reshape(heads) for y in (r, w, k, v, a)]
        y = self.states(*by_head, removed)
        width = x.shape[1]
        y = norm_of(y, 1, 0, HEAD_EPS).reshape(len(x), width)
        y = y * of[at + "attn.g_norm.weight"] + of[at + "attn.g_norm.bias"]
        own = (by_head[0] * by_head[2] * of[at + "attn.r_k"]).sum(-1, keepdims=True) * by_head[3]
        y = (y + own.reshape(len(x), width)) * self.low(at, "g", g_in, sigmoid)
        return y @ of[at + "attn.o_proj.weight"].T, v if first is None else first

    def states(self, r: Values, w: Values, k: Values, v: Values, a: Values, removed: Values) -> Values:
        """The paper's S, values by keys: S (diag(w) - n^T (a n)) + v^T k, read by r."""
        out = np.empty_like(v)
        for head in range(r.shape[1]):
            state = np.zeros((self.shape.dim, self.shape.dim))
            for t in range(len(r)):
                n = removed[t, head]
                transition = np.diag(w[t, head]) - np.outer(n, a[t, head] * n)
                state = state @ transition + np.outer(v[t, head], k[t, head])
                out[t, head] = state @ r[t, head]
        return out

    def logits(self, ids: list[int]) -> Values:
        of, converted = self.stored, self.shape.converted

        def norm(name: str, x: Values) -> Values:
            bias = 0 if converted else of[name + ".bias"]
            return norm_of(x, of[name + ".weight"], bias, self.eps, not converted)

        x, first = of["model.embeddings.weight"][ids], None
        x = x if converted else norm("model.layers.0.pre_norm", x)
        for layer in range(self.shape.layers):
            at = f"model.layers.{layer}."
            y, first = self.time_mixing(at, norm(at + "attn_norm", x), first)
            x = x + y
            h = norm(at + "ffn_norm", x)
            if converted:
                gate = h @ of[at + "ffn.gate.weight"].T
                inner = gate * sigmoid(gate) * (h @ of[at + "ffn.key.weight"].T)
            else:
                h = h + (before(h) - h) * of[at + "ffn.x_k"]
                inner = np.maximum(h @ of[at + "ffn.key.weight"].T, 0) ** 2
            x = x + inner @ of[at + "ffn.value.weight"].T
        return norm("model.norm", x) @ of["lm_head.weight"].T


def expected_logits(shape: Shape, stored: Mapping[str, Values], ids: list[int], eps: float) -> Values:
    """Logits (T, V) float64; `eps` is that of the norms of whole rows."""
    return _Oracle(shape, stored, eps).logits(ids)


def write_folder(folder: Path, shape: Shape, stored: Tensors, **changed: Any) -> Path:
    """A folder as flash-linear-attention saves it; returns it."""
    decay, rate, share, gate = shape.ranks
    config = {
        "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_size": shape.width,
        "num_hidden_layers": shape.layers, "head_dim": shape.dim, "intermediate_size": shape.inner,
        "hidden_ratio": None, "decay_low_rank_dim": decay, "a_low_rank_dim": rate, "v_low_rank_dim": share,
        "gate_low_rank_dim": gate, "hidden_act": "sqrelu", "max_position_embeddings": 2048, "attn": None,
        "norm_eps": HEAD_EPS / shape.dim, "vocab_size": VOCABULARY, "tie_word_embeddings": False,
        "value_dim": [shape.width] * shape.layers, "bos_token_id": 0, "eos_token_id": 2,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | changed), "utf-8")
    save_file(stored, folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


_GGUF_NAMES = {
    "attn.r_proj": "time_mix_receptance", "attn.k_proj": "time_mix_key", "attn.v_proj": "time_mix_value",
    "attn.o_proj": "time_mix_output", "attn.g_norm": "time_mix_ln", "ffn.key": "channel_mix_key",
    "ffn.value": "channel_mix_value", "attn_norm": "attn_norm", "ffn_norm": "attn_norm_2",
    "attn.k_k": "time_mix_k_k", "attn.k_a": "time_mix_k_a", "attn.r_k": "time_mix_r_k",
    "ffn.x_k": "channel_mix_lerp_k",
}  # fmt: skip
_CONVERTED_NAMES = {
    "ffn.gate": "ffn_gate",
    "ffn.key": "ffn_up",
    "ffn.value": "ffn_down",
    "ffn_norm": "ffn_norm",
}
_OUTER = {
    "model.embeddings.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "model.norm.bias": "output_norm.bias",
    "model.layers.0.pre_norm.weight": "token_embd_norm.weight",
    "model.layers.0.pre_norm.bias": "token_embd_norm.bias",
}  # fmt: skip


def _renamed(shape: Shape, stored: Tensors) -> Tensors:
    """As llama.cpp's converter names and shapes them."""
    out: Tensors = {}
    names = _GGUF_NAMES | (_CONVERTED_NAMES if shape.converted else {})
    for name, values in stored.items():
        if name in _OUTER:
            out[_OUTER[name]] = values
            continue
        number, _, rest = name.removeprefix("model.layers.").partition(".")
        at, stem = f"blk.{number}.", rest.removesuffix(".weight").removesuffix(".bias")
        if "_lora." in rest:
            part, index = rest[5], {"0.weight": 1, "2.weight": 2, "2.bias": 0}[rest.split("lora.lora.")[1]]
            out[f"{at}time_mix_{part}{index}.weight"] = values
        elif not stem.startswith("attn.x_") and not (shape.converted and stem == "ffn.x_k"):
            end = ".bias" if rest.endswith(".bias") else ".weight"
            values = values.reshape(-1) if stem == "attn.r_k" else values
            values = values.reshape(1, 1, -1) if stem == "ffn.x_k" else values
            out[at + names[stem] + end] = values
    for layer in range(shape.layers):
        shares = [stored[f"model.layers.{layer}.attn.x_{part}"].reshape(1, 1, -1) for part in PARTS]
        out[f"blk.{layer}.time_mix_lerp_fused.weight"] = np.stack(shares)
    # The converter fills in what llama.cpp expects in the first layer, too, and never reads.
    out |= {f"blk.0.time_mix_v{i}.weight": out[f"blk.0.time_mix_a{i}.weight"] for i in range(3)}
    if not shape.converted:
        return out
    return {name: values for name, values in out.items() if not name.endswith("_norm.bias")}


def write_gguf(path: Path, shape: Shape, stored: Tensors) -> Path:
    """A file as llama.cpp's converter writes it, in F32 and with the tiny models' tokenizer; returns it."""
    import gguf

    name = "arwkv7" if shape.converted else "rwkv7"
    writer = gguf.GGUFWriter(path, name)
    for key, value in _gguf_metadata(TINY).items():
        if key.startswith("tokenizer."):
            _add_key(writer, key, value)
    decay, rate, share, gate = shape.ranks
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(0)
    writer.add_layer_norm_eps(EPS)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_wkv_head_size(shape.dim)
    writer.add_decay_lora_rank(decay)
    writer.add_iclr_lora_rank(rate)
    writer.add_value_residual_mix_lora_rank(share)
    writer.add_gate_lora_rank(gate)
    writer.add_token_shift_count(1 if shape.converted else 2)
    outer = ("token_embd_norm",) if shape.converted else ()
    for key, values in _renamed(shape, stored).items():
        if not key.startswith(outer or ("-",)):
            writer.add_tensor(key, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
