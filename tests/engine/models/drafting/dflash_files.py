"""Tiny models with DFlash drafters, and what plain torch makes of a pair.

The forward pass is written from arXiv 2602.06036, section 3, and the configurations of z-lab; the hidden
states are those of `transformers`' layers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.engine.models.architectures import Case, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.drafting.eagle3_files import hidden_states, main_tables
from tests.tiny import TINY, _add_key, _gguf_metadata

Floats = npt.NDArray[np.float32]
Tensors = dict[str, Any]
OWN = "dflash_config"
MASK = 301


@dataclass(frozen=True)
class Layout:
    """A main model, its layers before each hidden state that is read, and keys of config.json; `apart` says
    whether the drafter's own stand in an object.
    """

    main: Case
    before: tuple[int, ...]
    keys: Mapping[str, Any] = field(default_factory=dict)
    apart: bool = True

    @property
    def width(self) -> int:
        return int(self.main.settings["hidden_size"])

    def config(self) -> dict[str, Any]:
        """config.json."""
        own = {"target_layer_ids": [before - 1 for before in self.before], "mask_token_id": MASK}
        shape = {**_SHAPE, "hidden_size": self.width, "vocab_size": self.main.settings["vocab_size"]}
        return {**shape, **({OWN: own} if self.apart else own), **self.keys}

    def key(self, name: str, default: Any = None) -> Any:
        return self.config().get(name, default)


_SHAPE: Mapping[str, Any] = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 80, "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 32, "rope_theta": 10000.0, "hidden_act": "silu",
    "attention_bias": False, "tie_word_embeddings": False, "block_size": 16,
}  # fmt: skip
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
LAYOUTS = {
    "Qwen 3": Layout(BY_NAME["Qwen 3"], (1, 3)),
    "with causal windows": Layout(BY_NAME["Llama"], (2,), _SLIDING),
    "with windows both ways": Layout(BY_NAME["GPT-OSS"], (3, 1), {**_SLIDING, "is_causal": False}),
    "causal": Layout(BY_NAME["Llama"], (1, 2), {"is_causal": True}),
    "with scales": Layout(
        BY_NAME["Gemma 4"], (1, 2, 5),
        {"input_embedding_scale": 3.0, "output_multiplier": 0.5, "final_logit_softcapping": 2.0}, apart=False,
    ),
    "for recurrent layers": Layout(BY_NAME["Qwen 3.5"], (2, 1)),
}  # fmt: skip


def tensors_of(layout: Layout, seed: int = 5) -> Tensors:
    """Random tensors by their names."""
    draw, width, config = np.random.default_rng(seed), layout.width, layout.config()
    head, inner = config["head_dim"], config["intermediate_size"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    made: Tensors = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        values = 1.5 * columns**-0.5 * draw.standard_normal((rows, columns))
        made[name + ".weight"] = values.astype(np.float32)

    def norm(name: str, size: int) -> None:
        made[name + ".weight"] = (1 + 0.2 * draw.standard_normal(size)).astype(np.float32)

    matrix("fc", width, len(layout.before) * width)
    norm("hidden_norm", width)
    for number in range(config["num_hidden_layers"]):
        at = f"layers.{number}."
        for name, rows in (("q", heads), ("k", groups), ("v", groups)):
            matrix(f"{at}self_attn.{name}_proj", rows * head, width)
        matrix(at + "self_attn.o_proj", width, heads * head)
        for name, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            matrix(f"{at}mlp.{name}_proj", rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            norm(at + name, width)
        norm(at + "self_attn.q_norm", head)
        norm(at + "self_attn.k_norm", head)
    norm("norm", width)
    return made


def write_drafter(layout: Layout, folder: Path, tensors: Tensors | None = None) -> Path:
    """The drafter's folder."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors_of(layout) if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(layout.config()), "utf-8")
    return folder


def write_drafter_file(layout: Layout, path: Path, tables: bool = False, **more: Any) -> Path:
    """The drafter as llama.cpp's converter writes it, beside the main model's tokenizer; with `tables`, with
    those of the main model, too. `more` are tensors.
    """
    import gguf

    config, own, tensors = layout.config(), "dflash.", tensors_of(layout) | more
    if tables:
        tensors |= dict(zip(("embed_tokens.weight", "lm_head.weight"), main_tables(layout.main), strict=True))
    writer = gguf.GGUFWriter(path, "dflash")
    keys = {
        "block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
        "embedding_length": layout.width, "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": config["rope_theta"],
        "block_size": config["block_size"], "target_layers": list(layout.before),
    }  # fmt: skip
    if "sliding_window" in config:
        keys["attention.sliding_window"] = config["sliding_window"]
        keys["attention.sliding_window_pattern"] = [kind[0] == "s" for kind in config["layer_types"]]
    keys |= {named: config[name] for name, named in _SCALES.items() if name in config}
    tokens = {key: value for key, value in _gguf_metadata(TINY).items() if key.startswith("tokenizer.")}
    tokens["tokenizer.ggml.mask_token_id"] = MASK
    for key, value in ({own + key: value for key, value in keys.items()} | tokens).items():
        _add_key(writer, key, value)
    for name, values in tensors.items():
        writer.add_tensor(_in_gguf(name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _in_gguf(name: str) -> str:
    """A tensor's name in a GGUF file."""
    at, _, module = name.removesuffix(".weight").rpartition(".")
    if module not in _GGUF:
        return name
    return f"blk.{at.split('.')[1]}.{_GGUF[module]}.weight" if at else f"{_GGUF[module]}.weight"


_SCALES = {
    "input_embedding_scale": "embedding_scale", "output_multiplier": "logit_scale",
    "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip
_GGUF = {
    "fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm", "embed_tokens": "token_embd",
    "lm_head": "output", "input_layernorm": "attn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
    "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "gate_proj": "ffn_gate", "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}  # fmt: skip


def write_pair(layout: Layout, folder: Path) -> tuple[Path, Path]:
    """The folders of the main model and of its drafter."""
    return write_checkpoint(layout.main, folder / "main"), write_drafter(layout, folder / "drafter")


CONSTANT = Layout(BY_NAME["Llama"], (2,))
"""The layout of a drafter that can be perfect."""


def write_perfect(folder: Path) -> tuple[Path, Path]:
    """A main model that always writes the same token, and a drafter that knows it."""
    from safetensors.numpy import load_file, save_file

    path = write_checkpoint(CONSTANT.main, folder / "main")
    tensors, own = load_file(path / "model.safetensors"), tensors_of(CONSTANT)
    for name, values in (*tensors.items(), *own.items()):
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            values[:] = 0
    tensors["model.embed_tokens.weight"][:] = np.abs(tensors["model.embed_tokens.weight"])
    tensors["model.norm.weight"][:] = own["norm.weight"][:] = 1
    tensors["lm_head.weight"][:] = 0
    tensors["lm_head.weight"][77] = 1  # all features are positive
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path, write_drafter(CONSTANT, folder / "drafter", own)


class Oracle:
    """A drafter in plain torch, in float32."""

    def __init__(self, layout: Layout, tensors: Tensors) -> None:
        import torch

        self.layout, self.torch = layout, torch
        self.tensors = {name: torch.from_numpy(np.asarray(values)) for name, values in tensors.items()}
        self.embed, self.head = (torch.from_numpy(table) for table in main_tables(layout.main))

    def norm(self, x: Any, name: str) -> Any:
        eps = self.layout.key("rms_norm_eps")
        return x * self.torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * self.tensors[name + ".weight"]

    def features(self, ids: Sequence[int]) -> Any:
        """M [a; b; ...] (T, E) of the main model's hidden states."""
        found = hidden_states(self.layout.main.name, tuple(ids))
        joined = self.torch.cat([self.torch.from_numpy(found[before]) for before in self.layout.before], -1)
        return joined @ self.tensors["fc.weight"].T

    def logits(self, features: Any, last: int, count: int) -> Any:
        """The logits (count, V) of the masks after token `last`, which follows tokens of features (T, E)."""
        with self.torch.inference_mode():
            context = self.norm(features, "hidden_norm")
            x = self.embed[self.torch.tensor([last, *[MASK] * count])]
            x = x * self.layout.key("input_embedding_scale", 1.0)
            for number in range(self.layout.key("num_hidden_layers")):
                x = self.layer(number, x, context)
            logits = self.norm(x, "norm")[1:] @ self.head.T * self.layout.key("output_multiplier", 1.0)
            cap = self.layout.key("final_logit_softcapping")
            return self.torch.tanh(logits / cap) * cap if cap else logits

    def layer(self, number: int, x: Any, context: Any) -> Any:
        torch, weights, at = self.torch, self.tensors, f"layers.{number}."
        head, count = self.layout.key("head_dim"), len(context) + len(x)
        normed = self.norm(x, at + "input_layernorm")
        both = torch.cat([context, normed])

        def project(name: str, rows: Any) -> Any:
            made = rows @ weights[f"{at}self_attn.{name}_proj.weight"].T
            return made.view(len(rows), -1, head).transpose(0, 1)

        q = self.rotated(self.norm(project("q", normed), at + "self_attn.q_norm"), len(context))
        k = self.rotated(self.norm(project("k", both), at + "self_attn.k_norm"), 0)
        v, times = project("v", both), len(q) // len(k)
        k, v = (each.repeat_interleave(times, 0) for each in (k, v))
        seen = self.seen(number, torch.arange(len(context), count)[:, None], torch.arange(count)[None])
        scores = (q @ k.transpose(1, 2) * head**-0.5).masked_fill(~seen, -torch.inf)
        mixed = (torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(len(x), -1)
        x = x + mixed @ weights[at + "self_attn.o_proj.weight"].T
        h = self.norm(x, at + "post_attention_layernorm")
        gate, up = (h @ weights[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return x + (torch.nn.functional.silu(gate) * up) @ weights[at + "mlp.down_proj.weight"].T

    def seen(self, number: int, query: Any, key: Any) -> Any:
        """Whether the token of a position sees that of another."""
        kinds = self.layout.key("layer_types")
        slides = kinds is not None and kinds[number] == "sliding_attention"
        causal, distance = self.layout.key("is_causal"), (query - key).abs()
        found = distance < (self.layout.key("sliding_window") if slides else 1 << 30)
        return found & (key <= query) if (slides if causal is None else causal) else found

    def rotated(self, x: Any, start: int) -> Any:
        torch, half = self.torch, x.shape[-1] // 2
        turns = self.layout.key("rope_theta") ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(start, start + x.shape[1], dtype=torch.float64)[:, None] * turns
        cos, sin = angles.cos().float(), angles.sin().float()
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
