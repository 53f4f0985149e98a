"""Tiny models with EAGLE-3 drafters in each layout, and what plain torch makes of a pair.

The forward pass is written from arXiv 2503.01840, section 3.1, and the configurations of SpecForge and
`speculators`; the hidden states are those of `transformers`' layers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.engine.models.architectures import Case, transformers_model, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.tiny import TINY, _add_key, _gguf_metadata, _interleaved

Floats = npt.NDArray[np.float32]
Tensors = dict[str, Any]
IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Layout:
    """A main model, and a drafter's config.json: `layer` has the keys of its layers, which stand in an object
    of their own where there are `outer` ones of `speculators`. `before` are the layers before each hidden
    state; `drafted` is the number of tokens that can be drafted (0: all).
    """

    main: Case
    before: tuple[int, ...]
    drafted: int = 40
    prefix: str = ""
    first: str = "layers.0."
    tables: bool = False
    """Whether it has an embedding of its own."""
    layer: Mapping[str, Any] = field(default_factory=dict)
    outer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def main_width(self) -> int:
        return int(self.main.settings["hidden_size"])

    @property
    def vocabulary(self) -> int:
        return int(self.main.settings["vocab_size"])

    def key(self, name: str, default: Any = None) -> Any:
        """The value of a key in config.json."""
        return {**_LAYER, "hidden_size": self.main_width, **self.layer, **self.outer}.get(name, default)


_LAYER: Mapping[str, Any] = {
    "model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80,
    "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 32, "rope_theta": 10000.0,
    "hidden_act": "silu",
}  # fmt: skip
SPECULATORS = {"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"]}
LAYOUTS = {
    "SafeAILab": Layout(
        BY_NAME["Llama"], (2, 1, 0), first="midlayer.", layer={"architectures": ["LlamaForCausalLM"]}
    ),
    "speculators": Layout(
        BY_NAME["Qwen 3"], (0, 2, 3), tables=True,
        outer={**SPECULATORS, IDS: [0, 2, 3], "norm_before_residual": True, "target_hidden_size": None},
    ),
    "SpecForge, EAGLE 3.1": Layout(
        BY_NAME["GPT-OSS"], (1, 2, 3), 0, first="midlayer.",
        layer={
            "architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {IDS: [0, 1, 2]}, "fc_norm": True,
            "norm_output": True, "head_dim": 24,
        },
    ),
    "for recurrent layers": Layout(BY_NAME["Qwen 3.5"], (2, 2, 1), first="midlayer."),
    "for Gemma 4": Layout(
        BY_NAME["Gemma 4"], (2, 4, 5), outer={"architectures": ["Eagle3DraftModel"], **SPECULATORS}
    ),
    "narrower, Qwen 3's layers": Layout(
        BY_NAME["Llama"], (2, 0), 31, "model.", tables=True,
        layer={"model_type": "qwen3", "hidden_size": 48, "head_dim": 16, "num_hidden_layers": 2},
        outer={**SPECULATORS, IDS: [2, 0], "norm_before_fc": True, "target_hidden_size": 64},
    ),
}  # fmt: skip


def tensors_of(layout: Layout, seed: int = 5) -> Tensors:
    """Random tensors by their names without a prefix."""
    draw, width = np.random.default_rng(seed), layout.key("hidden_size")
    heads, groups = layout.key("num_attention_heads"), layout.key("num_key_value_heads")
    head, inner = layout.key("head_dim") or width // heads, layout.key("intermediate_size")
    states, main = len(layout.before), layout.main_width
    made: Tensors = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        made[name] = (1.5 * columns**-0.5 * draw.standard_normal((rows, columns))).astype(np.float32)

    def norm(name: str, size: int) -> None:
        made[name] = (1 + 0.2 * draw.standard_normal(size)).astype(np.float32)

    matrix("fc.weight", width, states * main)
    for number in range(layout.key("num_hidden_layers")):
        at, inputs = (layout.first, 2 * width) if number == 0 else (f"layers.{number}.", width)
        for name, rows in (("q", heads), ("k", groups), ("v", groups)):
            matrix(f"{at}self_attn.{name}_proj.weight", rows * head, inputs)
        matrix(at + "self_attn.o_proj.weight", width, heads * head)
        for name, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            matrix(f"{at}mlp.{name}_proj.weight", rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            norm(f"{at}{name}.weight", width)
        if layout.key("model_type") == "qwen3":
            norm(at + "self_attn.q_norm.weight", head)
            norm(at + "self_attn.k_norm.weight", head)
    norm(layout.first + "hidden_norm.weight", width)
    norm("norm.weight", width)
    matrix("lm_head.weight", layout.drafted or layout.vocabulary, width)
    if layout.tables:
        matrix("embed_tokens.weight", layout.vocabulary, width)
    if layout.key("fc_norm"):
        for number in range(states):
            norm(f"fc_norm.{number}.weight", main)
    if layout.key("norm_before_fc"):
        norm("input_norm.weight", states * main)
    if layout.drafted:
        chosen = np.sort(draw.choice(np.arange(3, layout.vocabulary), layout.drafted, replace=False))
        made["d2t"] = chosen.astype(np.int64) - np.arange(layout.drafted)
        made["t2d"] = np.isin(np.arange(layout.vocabulary), chosen)
    return made


def config_of(layout: Layout) -> dict[str, Any]:
    """config.json."""
    layer = {**_LAYER, "hidden_size": layout.main_width, "vocab_size": layout.vocabulary, **layout.layer}
    drafted = {"draft_vocab_size": layout.drafted} if layout.drafted else {}
    if not layout.outer:
        return {**layer, **drafted}
    return {**layout.outer, **drafted, "transformer_layer_config": layer}


def write_drafter(layout: Layout, folder: Path, tensors: Tensors | None = None) -> Path:
    """The drafter's folder."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(layout) if tensors is None else tensors
    plain = ("lm_head", "d2t", "t2d")
    named = {
        name if name.startswith(plain) else layout.prefix + name: values for name, values in tensors.items()
    }
    save_file(named, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(layout)), "utf-8")
    return folder


def write_drafter_file(layout: Layout, path: Path, older: bool = False) -> Path:
    """The drafter as llama.cpp's converter writes it, or as the first version of it did, beside the main
    model's tokenizer.
    """
    import gguf

    tensors, config = tensors_of(layout), config_of(layout)
    shape = config.get("transformer_layer_config", config)
    names = {
        "fc": "fc", "norm": "output_norm", "lm_head": "output", "embed_tokens": "token_embd",
        "input_layernorm": "attn_norm", "hidden_norm": "attn_norm_2", "q_proj": "attn_q", "k_proj": "attn_k",
        "v_proj": "attn_v", "o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
        "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
    }  # fmt: skip
    writer = gguf.GGUFWriter(path, "eagle3")
    keys = {
        "block_count": 1, "context_length": shape["max_position_embeddings"],
        "embedding_length": shape["hidden_size"], "feed_forward_length": shape["intermediate_size"],
        "attention.head_count": shape["num_attention_heads"],
        "attention.head_count_kv": shape["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": shape["rms_norm_eps"], "rope.freq_base": shape["rope_theta"],
        "vocab_size": layout.vocabulary, "target_hidden_size": layout.main_width,
        "extract_layers" if older else "target_layers": list(layout.before),
        "norm_before_residual": bool(layout.key("norm_before_residual")),
    }  # fmt: skip
    tokens = {key: value for key, value in _gguf_metadata(TINY).items() if key.startswith("tokenizer.")}
    for key, value in ({f"eagle3.{key}": value for key, value in keys.items()} | tokens).items():
        _add_key(writer, key, value)
    for name, values in tensors.items():
        *_, module = name.removesuffix(".weight").split(".")
        if module == "d2t":
            values = values + np.arange(len(values))
            writer.add_tensor("d2t", values, raw_dtype=gguf.GGMLQuantizationType.I64)
        elif module != "t2d":
            heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(module)
            values = _interleaved(values, shape[heads]) if heads else values
            at = "blk.0." if name.startswith(layout.first) else ""
            writer.add_tensor(f"{at}{names[module]}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_pair(layout: Layout, folder: Path) -> tuple[Path, Path]:
    """The folders of the main model and of its drafter."""
    return write_checkpoint(layout.main, folder / "main"), write_drafter(layout, folder / "drafter")


GOOD = replace(
    LAYOUTS["SafeAILab"],
    layer={
        "architectures": ["LlamaForCausalLMEagle3"], "num_attention_heads": 1, "num_key_value_heads": 1,
        "head_dim": 64, "norm_before_residual": True,
    },
)  # fmt: skip
"""The layout of a drafter that can be perfect."""


def write_perfect(folder: Path) -> tuple[Path, Path]:
    """A main model whose layers add nothing, so that the next token depends on the last one alone, and is one
    that can be drafted; and a drafter that sees that token alone and knows as much of it.
    """
    from safetensors.numpy import load_file, save_file

    path = write_checkpoint(GOOD.main, folder / "main")
    tensors, own = load_file(path / "model.safetensors"), tensors_of(GOOD)
    targets = np.arange(GOOD.drafted) + own["d2t"]
    head = tensors["lm_head.weight"]
    head[:10] = 0  # none that ends a text is written
    head[np.setdiff1d(np.arange(GOOD.vocabulary), targets)] = 0
    head *= 8  # it is sure
    tensors["model.norm.weight"][:] = 1
    for name, values in (*tensors.items(), *own.items()):
        if name.endswith("down_proj.weight") or (name in tensors and name.endswith("o_proj.weight")):
            values[:] = 0
        if name in own and "norm" in name:
            values[:] = 1
    one = np.eye(GOOD.main_width, 2 * GOOD.main_width, dtype=np.float32)  # the token's half of the input
    own["midlayer.hidden_norm.weight"][:] = 0
    for name, scale in (("q", 100), ("k", 1), ("v", 1)):  # the last token is far more like itself
        own[f"midlayer.self_attn.{name}_proj.weight"] = scale * one
    own["midlayer.self_attn.o_proj.weight"] = np.eye(GOOD.main_width, dtype=np.float32)
    own["lm_head.weight"] = head[targets].copy()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path, write_drafter(GOOD, folder / "drafter", own)


@functools.cache
def hidden_states(case_name: str, ids: tuple[int, ...]) -> tuple[Floats, ...]:
    """The hidden states (T, E) before each of the main model's layers, and behind the last."""
    import torch

    model = transformers_model(BY_NAME[case_name])
    found: list[Any] = []
    layers = model.model.layers
    for layer in layers:
        layer.register_forward_pre_hook(
            lambda _, args, kwargs: found.append(args[0] if args else kwargs["hidden_states"]),
            with_kwargs=True,
        )
    layers[-1].register_forward_hook(
        lambda _, args, result: found.append(result[0] if isinstance(result, tuple) else result)
    )
    with torch.inference_mode():
        model(torch.tensor([ids]), use_cache=False)
    return tuple(states.reshape(len(ids), -1).numpy().copy() for states in found)


def main_tables(main: Case) -> tuple[Floats, Floats]:
    """The embedding and the head of the main model, (V, E) both."""
    model = transformers_model(main)
    return model.model.embed_tokens.weight.detach().numpy(), model.lm_head.weight.detach().numpy()


class Oracle:
    """A drafter in plain torch, in float32."""

    def __init__(self, layout: Layout, tensors: Tensors) -> None:
        import torch

        self.layout, self.torch = layout, torch
        self.tensors = {name: torch.from_numpy(np.asarray(values)) for name, values in tensors.items()}
        if not layout.tables:
            self.tensors["embed_tokens.weight"] = torch.from_numpy(main_tables(layout.main)[0])

    def norm(self, x: Any, name: str) -> Any:
        eps = self.layout.key("rms_norm_eps")
        return x * self.torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * self.tensors[name + ".weight"]

    def features(self, ids: Sequence[int]) -> Any:
        """The states (T, H) that the main model's hidden states make."""
        found = hidden_states(self.layout.main.name, tuple(ids))
        parts = [self.torch.from_numpy(found[before]) for before in self.layout.before]
        if self.layout.key("fc_norm"):
            parts = [self.norm(part, f"fc_norm.{number}") for number, part in enumerate(parts)]
        joined = self.torch.cat(parts, -1)
        if self.layout.key("norm_before_fc"):
            joined = self.norm(joined, "input_norm")
        return joined @ self.tensors["fc.weight"].T

    def run(self, tokens: Sequence[int], states: Any) -> tuple[Any, Any]:
        """The logits (T, D) of pairs of a state (T, H) and the token after it, and what takes the place of
        the states.
        """
        with self.torch.inference_mode():
            residual, normed = states, self.norm(states, self.layout.first + "hidden_norm")
            if self.layout.key("norm_before_residual"):
                residual = normed
            embedded = self.tensors["embed_tokens.weight"][self.torch.tensor(list(tokens))]
            embedded = self.norm(embedded, self.layout.first + "input_layernorm")
            x = self.layer(self.layout.first, self.torch.cat([embedded, normed], -1), residual)
            for number in range(1, self.layout.key("num_hidden_layers")):
                at = f"layers.{number}."
                x = self.layer(at, self.norm(x, at + "input_layernorm"), x)
            last = self.norm(x, "norm")
            return last @ self.tensors["lm_head.weight"].T, last if self.layout.key("norm_output") else x

    def layer(self, at: str, inputs: Any, residual: Any) -> Any:
        weights, torch, count = self.tensors, self.torch, len(inputs)
        heads, groups = self.layout.key("num_attention_heads"), self.layout.key("num_key_value_heads")
        q, k, v = (
            (inputs @ weights[f"{at}self_attn.{name}_proj.weight"].T).view(count, number, -1).transpose(0, 1)
            for name, number in (("q", heads), ("k", groups), ("v", groups))
        )
        if self.layout.key("model_type") == "qwen3":
            q, k = self.norm(q, at + "self_attn.q_norm"), self.norm(k, at + "self_attn.k_norm")
        q, k = self.rotated(q), self.rotated(k)
        k, v = (each.repeat_interleave(heads // groups, 0) for each in (k, v))
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        later = torch.triu(torch.ones(count, count, dtype=torch.bool), 1)
        mixed = torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ v
        x = residual + mixed.transpose(0, 1).reshape(count, -1) @ weights[at + "self_attn.o_proj.weight"].T
        h = self.norm(x, at + "post_attention_layernorm")
        gate, up = (h @ weights[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return x + (torch.nn.functional.silu(gate) * up) @ weights[at + "mlp.down_proj.weight"].T

    def rotated(self, x: Any) -> Any:
        torch, half = self.torch, x.shape[-1] // 2
        turns = self.layout.key("rope_theta") ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * turns
        cos, sin = angles.cos().float(), angles.sin().float()
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def targets(self) -> npt.NDArray[np.int64]:
        """The main model's tokens that can be drafted."""
        if not self.layout.drafted:
            return np.arange(self.layout.vocabulary)
        return np.arange(self.layout.drafted) + self.tensors["d2t"].numpy()
