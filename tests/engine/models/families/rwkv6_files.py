"""Tiny random models of RWKV-6 as GGUF files, and their logits in float64 by the formulas of the paper
(arXiv 2404.05892, section 4) and, where attention was converted, of gated linear attention
(arXiv 2312.06635).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.engine.models.families.rwkv_files import (
    EPS,
    HEAD_EPS,
    VOCABULARY,
    Tensors,
    Values,
    before,
    norm_of,
    sigmoid,
)
from tests.tiny import TINY, _add_key, _gguf_metadata

PARTS = "wkvrg"
"""What is made of mixtures, in the order of a file's shares."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. `groups` are the heads of keys and values where attention was converted; 0: it
    was not. The sum of layers is halved after every `halved`, 0: never.
    """

    width: int = 64
    dim: int = 16
    layers: int = 3
    inner: int = 96
    rank: int = 12
    decay_rank: int = 9
    groups: int = 0
    halved: int = 0
    fused: bool = True
    biases: bool = True


def tensors(shape: Shape) -> Tensors:
    """Random weights under the names of GGUF files, in the shapes that llama.cpp's converter writes."""
    rng, width, converted = np.random.default_rng(5), shape.width, shape.groups > 0

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Values:
        return rng.standard_normal((rows, columns)) * scale / columns**0.5

    def vector(size: int, middle: float, spread: float = 0.3) -> Values:
        return middle + spread * rng.standard_normal(size)

    def norm(name: str) -> Tensors:
        bias = {} if converted else {f"{name}.bias": vector(width, 0)}
        return {f"{name}.weight": vector(width, 1), **bias}

    found = {
        "token_embd.weight": matrix(VOCABULARY, width, 3.0),
        "output.weight": matrix(VOCABULARY, width, 2.0),
    }
    found |= norm("output_norm") | ({} if converted else norm("token_embd_norm"))
    keys = (shape.groups or width // shape.dim) * shape.dim
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        found |= norm(at + "attn_norm") | norm(at + ("ffn_norm" if converted else "attn_norm_2"))
        shares = rng.uniform(0, 1, (5, 1, 1, width))
        if shape.fused:
            found[at + "time_mix_lerp_fused.weight"] = shares
        else:
            found |= {f"{at}time_mix_lerp_{p}.weight": row for p, row in zip(PARTS, shares, strict=True)}
        found |= {
            at + "time_mix_lerp_x.weight": rng.uniform(0, 1, (1, 1, width)),
            at + "time_mix_w1.weight": matrix(5 * shape.rank, width, 1.5),
            at + "time_mix_w2.weight": rng.standard_normal((5, width, shape.rank)) * 0.5 / shape.rank**0.5,
            at + "time_mix_decay.weight": vector(width, -1.0, 3.0),
            at + "time_mix_decay_w1.weight": matrix(shape.decay_rank, width, 1.5),
            at + "time_mix_decay_w2.weight": matrix(width, shape.decay_rank, 1.5),
        }  # fmt: skip
        for part, rows in (("receptance", width), ("key", keys), ("value", keys)):
            found[f"{at}time_mix_{part}.weight"] = matrix(rows, width, 1.5)
            if converted and shape.biases:
                found[f"{at}time_mix_{part}.bias"] = vector(rows, 0)
        found |= {f"{at}time_mix_{part}.weight": matrix(width, width, 1.5) for part in ("gate", "output")}
        if converted:
            inner = {"ffn_gate": shape.inner, "ffn_up": shape.inner, "ffn_down": width}
            found |= {f"{at}{n}.weight": matrix(r, width + shape.inner - r) for n, r in inner.items()}
            continue
        found |= {
            at + "time_mix_first.weight": vector(width, 0).reshape(-1, shape.dim),
            at + "time_mix_ln.weight": vector(width, 1), at + "time_mix_ln.bias": vector(width, 0),
            at + "channel_mix_lerp_k.weight": rng.uniform(0, 1, (1, 1, width)),
            at + "channel_mix_lerp_r.weight": rng.uniform(0, 1, (1, 1, width)),
            at + "channel_mix_key.weight": matrix(shape.inner, width),
            at + "channel_mix_value.weight": matrix(width, shape.inner),
            at + "channel_mix_receptance.weight": matrix(width, width),
        }  # fmt: skip
    return {name: np.ascontiguousarray(values, np.float32) for name, values in found.items()}


class _Oracle:
    """The forward pass of one model over a text."""

    def __init__(self, shape: Shape, stored: Mapping[str, Values]) -> None:
        self.shape, self.stored = shape, {name: values.astype(np.float64) for name, values in stored.items()}

    def of(self, name: str) -> Values:
        return self.stored[name + ".weight"]

    def made(self, name: str, x: Values) -> Values:
        return x @ self.of(name).T + self.stored.get(name + ".bias", 0)

    def norm(self, name: str, x: Values) -> Values:
        converted = self.shape.groups > 0
        return norm_of(x, self.of(name), 0 if converted else self.stored[name + ".bias"], EPS, not converted)

    def time_mixing(self, at: str, x: Values) -> Values:
        shape, at = self.shape, at + "time_mix_"
        moved, rank = before(x) - x, shape.rank
        inner = np.tanh(self.made(at + "w1", x + moved * self.of(at + "lerp_x")[0, 0]))
        mixed = {}
        for i, part in enumerate(PARTS):
            own = self.of(at + "lerp_fused")[i] if shape.fused else self.of(f"{at}lerp_{part}")
            dependent = inner[:, i * rank : (i + 1) * rank] @ self.of(at + "w2")[i].T
            mixed[part] = x + moved * (own.reshape(-1) + dependent)
        r, k, v = (
            self.made(at + name, mixed[part])
            for part, name in zip("rkv", ("receptance", "key", "value"), strict=True)
        )
        decay = np.tanh(self.made(at + "decay_w1", mixed["w"])) @ self.of(at + "decay_w2").T
        w = np.exp(-np.exp(decay + self.of(at + "decay")))
        heads = r.shape[1] // shape.dim
        r, w = (each.reshape(len(x), heads, shape.dim) for each in (r, w))
        k, v = (
            np.repeat(each.reshape(len(x), -1, shape.dim), heads * shape.dim // each.shape[1], axis=1)
            for each in (k, v)
        )
        gate = self.made(at + "gate", mixed["g"])
        if shape.groups:
            y = self.states(r * shape.dim**-0.5, k * (1 - w), v, w, None).reshape(x.shape) * sigmoid(gate)
            return self.made(at + "output", y)
        y = norm_of(self.states(r, k, v, w, self.of(at + "first")), 1, 0, HEAD_EPS).reshape(x.shape)
        y = y * self.of(at + "ln") + self.stored[at + "ln.bias"]
        return self.made(at + "output", y * gate * sigmoid(gate))

    @staticmethod
    def states(r: Values, k: Values, v: Values, w: Values, bonus: Values | None) -> Values:
        out = np.empty_like(v)
        for head in range(r.shape[1]):
            state = np.zeros((r.shape[2], r.shape[2]))
            for t in range(len(r)):
                new = np.outer(k[t, head], v[t, head])
                after = w[t, head][:, None] * state + new
                seen = after if bonus is None else state + bonus[head][:, None] * new
                out[t, head], state = r[t, head] @ seen, after
        return out

    def feed_forward(self, at: str, x: Values) -> Values:
        if self.shape.groups:
            h = self.norm(at + "ffn_norm", x)
            gate = self.made(at + "ffn_gate", h)
            return self.made(at + "ffn_down", gate * sigmoid(gate) * self.made(at + "ffn_up", h))
        h, at = self.norm(at + "attn_norm_2", x), at + "channel_mix_"
        moved = before(h) - h
        k = self.made(at + "key", h + moved * self.of(at + "lerp_k")[0, 0])
        r = self.made(at + "receptance", h + moved * self.of(at + "lerp_r")[0, 0])
        return sigmoid(r) * self.made(at + "value", np.maximum(k, 0) ** 2)

    def logits(self, ids: list[int]) -> Values:
        shape, x = self.shape, self.of("token_embd")[ids]
        x = x if shape.groups else self.norm("token_embd_norm", x)
        for layer in range(shape.layers):
            at = f"blk.{layer}."
            x = x + self.time_mixing(at, self.norm(at + "attn_norm", x))
            x = x + self.feed_forward(at, x)
            x = x / 2 if shape.halved and (layer + 1) % shape.halved == 0 else x
        return self.norm("output_norm", x) @ self.of("output").T


def expected_logits(shape: Shape, stored: Mapping[str, Values], ids: list[int]) -> Values:
    """Logits (T, V) float64."""
    return _Oracle(shape, stored).logits(ids)


def write_gguf(path: Path, shape: Shape, stored: Tensors) -> Path:
    """A file as llama.cpp's converter writes it, in F32 and with the tiny models' tokenizer; returns it."""
    import gguf

    writer = gguf.GGUFWriter(path, "rwkv6qwen2" if shape.groups else "rwkv6")
    for key, value in _gguf_metadata(TINY).items():
        if key.startswith("tokenizer."):
            _add_key(writer, key, value)
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(0)
    writer.add_head_count_kv(shape.groups)
    writer.add_layer_norm_eps(EPS)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_wkv_head_size(shape.dim)
    writer.add_time_mix_extra_dim(shape.rank)
    writer.add_time_decay_extra_dim(shape.decay_rank)
    writer.add_rescale_every_n_layers(shape.halved)
    writer.add_token_shift_count(1 if shape.groups else 2)
    for key, values in stored.items():
        writer.add_tensor(key, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
