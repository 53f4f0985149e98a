"""Tiny random Llama checkpoints with a real tokenizer, so that a whole turn runs in a second without any
download.

    TINY                            2 layers, E 96, 6 heads on 2 kv heads (groups of 3) of dimension 32, F
    160, V 307
    WIDE                            all widths multiples of 256, so that every GGUF type fits; head dimension
    64
    write_folder(folder, TINY)      config.json, safetensors (single or sharded, F32 / F16 / BF16), tokenizer,
    template write_gguf(path, TINY, "Q4_1")  the same model as GGUF, tensor types of choice
    read_gguf_weights(path)         what a GGUF file really holds after quantising, under Hugging Face's names

Everything is seeded: the same arguments give the same weights.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tiny_quants import dequantise, quantise

Floats = npt.NDArray[np.float32]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1, 2; the first is BOS, the last ends a turn."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
    "endif %}"
)

_TRAINING_TEXT = """\
The quick brown fox jumps over the lazy dog. The dog sleeps in the inglenook by the fire, and the fire is \
warm.
Hello there! How are you today? I am fine, thank you, and the other one is fine too. 1 2 3 4 5 6 7 8 9 0
def main(argument): return argument + 1  # the answer is in the question
Größe, façade, naïve, señor; Привет, мир; 你好，世界; こんにちは; 🙂🚀
"""


@dataclass(frozen=True)
class Tiny:
    """The shape of a Llama with the names of config.json; `rope_scaling` is that entry, or None."""

    layers: int = 2
    width: int = 96
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    ffn_width: int = 160
    context_length: int = 1024
    vocab_size: int = 307
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    seed: int = 1

    def but(self, **changes: Any) -> Tiny:
        """This shape with some fields changed."""
        return replace(self, **changes)


TINY = Tiny()
WIDE = Tiny(width=256, heads=4, kv_heads=2, head_dim=64, ffn_width=512, tied=True)
LLAMA3_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def tiny_weights(tiny: Tiny) -> dict[str, Floats]:
    """Random weights under Hugging Face's names, scaled so that logits vary by a few units."""
    rng = np.random.default_rng(tiny.seed)
    queries, keys = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Floats:
        values: Floats = rng.standard_normal((rows, columns), np.float32)
        return values * np.float32(scale / np.sqrt(columns))

    def near_one(size: int) -> Floats:
        return (1 + 0.2 * rng.standard_normal(size)).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(tiny.vocab_size, tiny.width, 3.0),
        "model.norm.weight": near_one(tiny.width),
    }
    if not tiny.tied:
        weights["lm_head.weight"] = matrix(tiny.vocab_size, tiny.width, 2.0)
    for layer in range(tiny.layers):
        at = f"model.layers.{layer}."
        linears = {
            "self_attn.q_proj": (queries, tiny.width, tiny.attention_bias),
            "self_attn.k_proj": (keys, tiny.width, tiny.attention_bias),
            "self_attn.v_proj": (keys, tiny.width, tiny.attention_bias),
            "self_attn.o_proj": (tiny.width, queries, tiny.attention_bias),
            "mlp.gate_proj": (tiny.ffn_width, tiny.width, tiny.mlp_bias),
            "mlp.up_proj": (tiny.ffn_width, tiny.width, tiny.mlp_bias),
            "mlp.down_proj": (tiny.width, tiny.ffn_width, tiny.mlp_bias),
        }  # fmt: skip
        for name, (rows, columns, bias) in linears.items():
            weights[f"{at}{name}.weight"] = matrix(rows, columns, 1.5)
            if bias:
                weights[f"{at}{name}.bias"] = (0.3 * rng.standard_normal(rows)).astype(np.float32)
        weights[at + "input_layernorm.weight"] = near_one(tiny.width)
        weights[at + "post_attention_layernorm.weight"] = near_one(tiny.width)
    return weights


def tiny_config(tiny: Tiny, architecture: str = "LlamaForCausalLM") -> dict[str, Any]:
    """config.json."""
    return {
        "architectures": [architecture],
        "model_type": "mistral" if architecture.startswith("Mistral") else "llama",
        "num_hidden_layers": tiny.layers, "hidden_size": tiny.width, "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads, "head_dim": tiny.head_dim, "intermediate_size": tiny.ffn_width,
        "vocab_size": tiny.vocab_size, "max_position_embeddings": tiny.context_length, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "rope_theta": tiny.rope_theta,
        "rope_scaling": None if tiny.rope_scaling is None else dict(tiny.rope_scaling),
        "tie_word_embeddings": tiny.tied, "attention_bias": tiny.attention_bias, "mlp_bias": tiny.mlp_bias,
        "bos_token_id": 0, "eos_token_id": 2, "torch_dtype": "float32",
    }  # fmt: skip


@functools.cache
def _tokenizer_json() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    digits, bytes_ = (
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])  # as SmolLM's
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TINY.vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT.splitlines(keepends=True), trainer)
    return str(tokenizer.to_str())


def tiny_tokenizer() -> dict[str, Any]:
    """tokenizer.json of all tiny models: byte-level BPE with 307 tokens, trained here."""
    definition: dict[str, Any] = json.loads(_tokenizer_json())
    assert len(definition["model"]["vocab"]) == TINY.vocab_size
    return definition


def write_tokenizer(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json with the chat template, generation_config.json with two
    stop ids.
    """
    (folder / "tokenizer.json").write_text(_tokenizer_json(), "utf-8")
    bos, _, eos = SPECIAL_TOKENS
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 0, "eos_token_id": [2, 0]}), "utf-8"
    )


def write_folder(
    folder: Path,
    tiny: Tiny = TINY,
    dtype: str = "F32",
    shards: int = 1,
    architecture: str = "LlamaForCausalLM",
) -> Path:
    """Write a Hugging Face folder; `dtype` is "F32", "F16" or "BF16". Returns `folder`."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    kind = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[dtype]
    weights = {name: torch.from_numpy(values).to(kind) for name, values in tiny_weights(tiny).items()}
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
    else:
        names = sorted(weights)
        files = {f"model-{i + 1:05d}-of-{shards:05d}.safetensors": names[i::shards] for i in range(shards)}
        for file, part in files.items():
            save_file({name: weights[name] for name in part}, folder / file)
        index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    (folder / "config.json").write_text(json.dumps(tiny_config(tiny, architecture)), "utf-8")
    write_tokenizer(folder)
    return folder


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_HF_NAMES = {gguf_name: name for name, gguf_name in _GGUF_NAMES.items()}


def _gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{_GGUF_NAMES[part]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


def _hf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{_HF_NAMES[part]}.{kind}"
    return f"{_HF_NAMES[stem]}.{kind}"


def _interleaved(values: Floats, heads: int) -> Floats:
    """Interleave both halves of each head's rows, the order of queries and keys in Llama's GGUF files."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _halves(values: Floats, heads: int) -> Floats:
    """The inverse of `_interleaved`."""
    return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _rotary_heads(name: str, tiny: Tiny) -> int:
    """The number of heads whose rows are reordered in a tensor (Hugging Face's name); 0 for other tensors."""
    return {"q_proj": tiny.heads, "k_proj": tiny.kv_heads}.get(name.split(".")[-2], 0)


def write_gguf(
    path: Path,
    tiny: Tiny = TINY,
    type_name: str = "Q4_1",
    types: Mapping[str, str] | None = None,
    scales: Mapping[str, float] | None = None,
    **metadata: Any,
) -> Path:
    """Write a GGUF file with matrices of `type_name`, or of `types[part]` for a part such as "token_embd" or
    "ffn_down"; `scales[part]` is written beside them. Norms and biases are F32, as in real files. `metadata`
    has further keys with "__" for ".", such as `llama__expert_count=8`; None leaves a standard key out.
    Returns `path`.
    """
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (
        _gguf_metadata(tiny) | {key.replace("__", "."): value for key, value in metadata.items()}
    ).items():
        _add_key(writer, key, value)
    weights = {
        name: (_interleaved(w, heads) if (heads := _rotary_heads(name, tiny)) else w)
        for name, w in tiny_weights(tiny).items()
    }
    for name, values in weights.items():
        gguf_name = _gguf_name(name)
        if values.ndim == 1:
            writer.add_tensor(gguf_name, values)
            continue
        part = gguf_name.split(".")[-2]
        kind = (types or {}).get(part, type_name)
        if scales and part in scales:
            number = np.array([scales[part]], np.float32)
            writer.add_tensor(gguf_name.removesuffix("weight") + "scale", number)
        writer.add_tensor(gguf_name, quantise(values, kind), raw_dtype=gguf.GGMLQuantizationType[kind])
    if tiny.rope_scaling and tiny.rope_scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(tiny))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_key(writer: Any, key: str, value: Any) -> None:
    """Add a value; an array of NumPy becomes one of 64-bit numbers."""
    if isinstance(value, np.ndarray):
        from gguf import GGUFValueType

        writer.add_key_value(key, value.tolist(), GGUFValueType.ARRAY, GGUFValueType.UINT64)
        return
    add = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    if value is not None and key != "general.architecture":
        add[type(value)](key, value)


def _gguf_metadata(tiny: Tiny) -> dict[str, Any]:
    definition = tiny_tokenizer()
    tokens = sorted(definition["model"]["vocab"], key=definition["model"]["vocab"].get)
    scaling = tiny.rope_scaling or {}
    linear = scaling.get("rope_type") == "linear"
    return {
        "general.name": "Tiny", "general.alignment": 32, "llama.block_count": tiny.layers,
        "llama.context_length": tiny.context_length, "llama.embedding_length": tiny.width,
        "llama.feed_forward_length": tiny.ffn_width, "llama.attention.head_count": tiny.heads,
        "llama.attention.head_count_kv": tiny.kv_heads, "llama.attention.key_length": tiny.head_dim,
        "llama.attention.value_length": tiny.head_dim, "llama.rope.dimension_count": tiny.head_dim,
        "llama.rope.freq_base": tiny.rope_theta, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": tiny.vocab_size, "llama.rope.scaling.type": "linear" if linear else None,
        "llama.rope.scaling.factor": float(scaling["factor"]) if linear else None,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIAL_TOKENS else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in definition["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": CHAT_TEMPLATE,
    }  # fmt: skip


def _llama3_factors(tiny: Tiny) -> Floats:
    """The converter's tensor of divisors, from Llama 3.1's three cases."""
    s = tiny.rope_scaling
    assert s is not None
    old, factors = s["original_max_position_embeddings"], []
    for frequency in 1.0 / tiny.rope_theta ** (np.arange(0, tiny.head_dim, 2) / tiny.head_dim):
        wavelength = 2 * np.pi / frequency
        if wavelength < old / s["high_freq_factor"]:
            factors.append(1.0)
        elif wavelength > old / s["low_freq_factor"]:
            factors.append(s["factor"])
        else:
            smooth = (old / wavelength - s["low_freq_factor"]) / (
                s["high_freq_factor"] - s["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return np.array(factors, np.float32)


def read_gguf_weights(path: Path, tiny: Tiny) -> dict[str, Floats]:
    """Read a file of `write_gguf` with the `gguf` package: dequantised, with Hugging Face's names and row
    order.
    """
    import gguf

    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        name = _hf_name(tensor.name)
        values = dequantise(tensor.data, tensor.tensor_type.name).reshape(
            [int(n) for n in tensor.shape[::-1]]
        )
        heads = _rotary_heads(name, tiny)
        weights[name] = np.array(_halves(values, heads) if heads else values, np.float32)
    return weights
