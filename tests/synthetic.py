"""Large models whose weights repeat, written fast: for measurements of loading, not of answers.

write_synthetic(folder, "q4_k", 600)   about 600 MB of a Llama's shape; see `KINDS`; returns what to open
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tiny import Tiny, tiny_config, write_gguf, write_tokenizer
from tests.tiny_quants import quantise

Bytes = npt.NDArray[np.uint8]
_WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4}
_SHAPE = Tiny(
    layers=1,
    width=2048,
    heads=16,
    kv_heads=4,
    head_dim=128,
    ffn_width=5632,
    vocab_size=32000,
    context_length=4096,
)
_GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
    "num_local_experts": 4, "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "vocab_size": 32000, "sliding_window": 128, "eos_token_id": 2,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
_GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "n_embd": 1280, "n_head": 20, "n_positions": 1024,
    "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "eos_token_id": 2,
    "model_type": "gpt2",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A tensor to write: its type in the header, its shape, and the bytes that it repeats."""

    type: str
    shape: tuple[int, ...]
    content: Bytes | None = None


_PATTERN = 65521


def _pattern(kind: str) -> Bytes:
    """Bytes of small numbers of a type. Their count is prime: rows of a matrix differ."""
    values = np.random.default_rng(3).standard_normal(_PATTERN, np.float32) * np.float32(0.02)
    if kind == "F32":
        return values.view(np.uint8)
    if kind == "F16":
        return values.astype(np.float16).view(np.uint8)
    if kind == "BF16":
        return np.ascontiguousarray(values.view(np.uint16)[1::2]).view(np.uint8)
    return np.random.default_rng(4).integers(0, 96, _PATTERN).astype(np.uint8)


def write_safetensors(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write one file with these tensors."""
    header: dict[str, Any] = {}
    at = 0
    for name, entry in entries.items():
        size = _WIDTHS[entry.type] * int(np.prod(entry.shape))
        header[name] = {"dtype": entry.type, "shape": entry.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in entries.items():
            start, end = header[name]["data_offsets"]
            pattern = (_pattern(entry.type) if entry.content is None else entry.content).tobytes()
            whole, rest = divmod(end - start, len(pattern))
            for _ in range(whole):
                file.write(pattern)
            file.write(pattern[:rest])


def write_sharded(folder: Path, config: Mapping[str, Any], entries: Mapping[str, Entry], shards: int) -> Path:
    """A folder of `shards` files with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(entries)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {
            name: entries[name]
            for name in names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        }
        write_safetensors(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), "utf-8")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    write_tokenizer(folder)
    return folder


def llama_entries(tiny: Tiny, kind: str) -> dict[str, Entry]:
    """The tensors of a Llama; `kind` is a plain type, "fp8" or "gptq"."""
    plain = kind if kind in _WIDTHS else "BF16"
    width, queries, keys, inner = (
        tiny.width,
        tiny.heads * tiny.head_dim,
        tiny.kv_heads * tiny.head_dim,
        tiny.ffn_width,
    )
    entries = {
        name: Entry(plain, (tiny.vocab_size, width))
        for name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    entries["model.norm.weight"] = Entry(plain, (width,))
    shapes = {
        "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner),
    }  # fmt: skip
    for layer in range(tiny.layers):
        at = f"model.layers.{layer}."
        for name, (rows, columns) in shapes.items():
            entries |= _matrix(at + name, rows, columns, kind)
        for name in ("input_layernorm", "post_attention_layernorm"):
            entries[f"{at}{name}.weight"] = Entry(plain, (width,))
    return entries


def _matrix(name: str, rows: int, columns: int, kind: str) -> dict[str, Entry]:
    if kind == "fp8":
        scale = np.full(1, 0.01, np.float32).view(np.uint8)
        shape = (-(-rows // 128), -(-columns // 128))
        return {
            f"{name}.weight": Entry("F8_E4M3", (rows, columns)),
            f"{name}.weight_scale_inv": Entry("F32", shape, scale),
        }
    if kind == "gptq":
        groups = np.repeat(np.arange(columns // 128, dtype=np.int32), 128).view(np.uint8)
        return {
            f"{name}.qweight": Entry("I32", (columns // 8, rows)),
            f"{name}.qzeros": Entry("I32", (columns // 128, rows // 8)),
            f"{name}.scales": Entry("F16", (columns // 128, rows)),
            f"{name}.g_idx": Entry("I32", (columns,), groups),
        }  # fmt: skip
    return {f"{name}.weight": Entry(kind, (rows, columns))}


def gpt_oss_entries(layers: int) -> dict[str, Entry]:
    """GPT-OSS in BF16: fused, alternating, transposed stacks of experts."""
    width, inner, experts, kind = 2880, 2880, 4, "BF16"
    entries = {
        "model.embed_tokens.weight": (32000, width),
        "lm_head.weight": (32000, width),
        "model.norm.weight": (width,),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}."
        entries |= {
            at + "self_attn.q_proj.weight": (2048, width), at + "self_attn.q_proj.bias": (2048,),
            at + "self_attn.k_proj.weight": (512, width), at + "self_attn.k_proj.bias": (512,),
            at + "self_attn.v_proj.weight": (512, width), at + "self_attn.v_proj.bias": (512,),
            at + "self_attn.o_proj.weight": (width, 2048), at + "self_attn.o_proj.bias": (width,),
            at + "self_attn.sinks": (32,), at + "mlp.router.weight": (experts, width),
            at + "mlp.router.bias": (experts,), at + "mlp.experts.gate_up_proj": (experts, width, 2 * inner),
            at + "mlp.experts.gate_up_proj_bias": (experts, 2 * inner),
            at + "mlp.experts.down_proj": (experts, inner, width),
            at + "mlp.experts.down_proj_bias": (experts, width), at + "input_layernorm.weight": (width,),
            at + "post_attention_layernorm.weight": (width,),
        }  # fmt: skip
    return {name: Entry(kind, shape) for name, shape in entries.items()}


def gpt2_entries(layers: int) -> dict[str, Entry]:
    """The tensors of GPT-2 large, with transposed matrices."""
    width = 1280
    entries: dict[str, tuple[int, ...]] = {"wte.weight": (50257, width), "wpe.weight": (1024, width)}
    entries |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    for layer in range(layers):
        at = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            entries |= {f"{at}{norm}.weight": (width,), f"{at}{norm}.bias": (width,)}
        linears = {"attn.c_attn": 3 * width, "attn.c_proj": width, "mlp.c_fc": 4 * width}
        entries |= {f"{at}{name}.weight": (width, rows) for name, rows in linears.items()} | {
            at + "mlp.c_proj.weight": (4 * width, width)
        }
        entries |= {f"{at}{name}.bias": (rows,) for name, rows in linears.items()} | {
            at + "mlp.c_proj.bias": (width,)
        }
    return {"transformer." + name: Entry("F32", shape) for name, shape in entries.items()}


def write_large_gguf(
    path: Path, tiny: Tiny, kind: str, experts: int = 0, *, whole_vocabulary: bool = False
) -> Path:
    """Like `write_gguf`, but matrices repeat one row. `experts` adds a stack of them to each layer;
    `whole_vocabulary` adds a text for each row of the embedding, which llama.cpp requires.
    """
    import gguf

    small = write_gguf(
        path.with_suffix(".small"),
        tiny.but(layers=0, width=256, heads=2, kv_heads=1, ffn_width=256, vocab_size=307),
        "F32",
    )
    reader = gguf.GGUFReader(small)
    writer = gguf.GGUFWriter(path, "llama")
    sizes = {
        "llama.block_count": tiny.layers, "llama.embedding_length": tiny.width,
        "llama.feed_forward_length": tiny.ffn_width, "llama.attention.head_count": tiny.heads,
        "llama.attention.head_count_kv": tiny.kv_heads, "llama.vocab_size": tiny.vocab_size,
        "llama.context_length": tiny.context_length, "llama.attention.key_length": tiny.head_dim,
        "llama.attention.value_length": tiny.head_dim, "llama.rope.dimension_count": tiny.head_dim,
    } | ({"llama.expert_count": experts, "llama.expert_used_count": 2} if experts else {})  # fmt: skip
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture" and key not in sizes:
            value, sub = field.contents(), field.types[-1] if len(field.types) > 1 else None
            if whole_vocabulary and key == "tokenizer.ggml.tokens":
                value = [*value, *(f"<further {i}>" for i in range(len(value), tiny.vocab_size))]
            if whole_vocabulary and key == "tokenizer.ggml.token_type":
                value = [*value, *[1] * (tiny.vocab_size - len(value))]
            writer.add_key_value(key, value, field.types[0], sub_type=sub)
    for key, size in sizes.items():
        writer.add_uint32(key, size)
    del reader
    small.unlink()
    quantised = gguf.GGMLQuantizationType[kind.upper()]

    def matrix(name: str, *shape: int) -> None:
        *outer, rows, columns = shape
        values = np.random.default_rng(columns).standard_normal((16, columns), np.float32) * np.float32(0.02)
        data = np.asarray(quantise(values, kind.upper()))
        data = data.view(np.uint8).reshape(16, -1)
        whole = np.broadcast_to(data[:1].reshape(1, -1), (int(np.prod(outer or [1])) * rows, data.shape[1]))
        writer.add_tensor(name, np.ascontiguousarray(whole).reshape(*outer, rows, -1), raw_dtype=quantised)

    def vector(name: str) -> None:
        writer.add_tensor(name, np.ones(tiny.width, np.float32))

    queries, keys = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    matrix("token_embd.weight", tiny.vocab_size, tiny.width)
    matrix("output.weight", tiny.vocab_size, tiny.width)
    vector("output_norm.weight")
    for layer in range(tiny.layers):
        at, outer = f"blk.{layer}.", (experts,) if experts else ()
        matrix(at + "attn_q.weight", queries, tiny.width)
        matrix(at + "attn_k.weight", keys, tiny.width)
        matrix(at + "attn_v.weight", keys, tiny.width)
        matrix(at + "attn_output.weight", tiny.width, queries)
        names = (
            ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
            if experts
            else ("ffn_gate", "ffn_up", "ffn_down")
        )
        matrix(f"{at}{names[0]}.weight", *outer, tiny.ffn_width, tiny.width)
        matrix(f"{at}{names[1]}.weight", *outer, tiny.ffn_width, tiny.width)
        matrix(f"{at}{names[2]}.weight", *outer, tiny.width, tiny.ffn_width)
        if experts:
            writer.add_tensor(at + "ffn_gate_inp.weight", np.zeros((experts, tiny.width), np.float32))
        vector(at + "attn_norm.weight")
        vector(at + "ffn_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _layers(megabytes: int, fixed: float, each: float) -> int:
    return max(1, round((megabytes * 1e6 - fixed) / each))


def _llama(bits: float, megabytes: int, experts: int = 0, embedding_bits: float = 0.0) -> Tiny:
    """A Llama with as many layers as fit the size."""
    s = _SHAPE.but(ffn_width=1024) if experts else _SHAPE
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    each = s.width * (2 * queries + 2 * keys + 3 * s.ffn_width * max(experts, 1)) * bits / 8
    return s.but(layers=_layers(megabytes, 2 * s.vocab_size * s.width * (embedding_bits or bits) / 8, each))


def _gguf(kind: str, bits: float, experts: int = 0) -> Callable[[Path, int], Path]:
    return lambda folder, size: write_large_gguf(
        folder / f"{kind}-{experts}.gguf", _llama(bits, size, experts), kind, experts
    )


def _folder(kind: str, bits: float, **settings: Any) -> Callable[[Path, int], Path]:
    def write(folder: Path, size: int) -> Path:
        tiny = _llama(bits, size, embedding_bits=max(bits, 16))
        return write_sharded(folder / kind, tiny_config(tiny) | settings, llama_entries(tiny, kind), 3)

    return write


def _gpt_oss(folder: Path, size: int) -> Path:
    layers = _layers(size, 2 * 32000 * 2880 * 2, 2 * 4 * 3 * 2880 * 2880)
    return write_sharded(
        folder / "gpt_oss", _GPT_OSS | {"num_hidden_layers": layers}, gpt_oss_entries(layers), 2
    )


def _gpt2(folder: Path, size: int) -> Path:
    layers = _layers(size, 4 * 50257 * 1280, 4 * 12 * 1280 * 1280)
    return write_sharded(folder / "gpt2", _GPT2 | {"n_layer": layers}, gpt2_entries(layers), 1)


_FP8 = {
    "quantization_config": {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "activation_scheme": "dynamic",
    }
}
_GPTQ = {
    "quantization_config": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "desc_act": False,
        "sym": True,
    }
}
KINDS: dict[str, Callable[[Path, int], Path]] = {
    "q4_k": _gguf("q4_k", 4.5), "q8_0": _gguf("q8_0", 8.5), "iq2_xxs": _gguf("iq2_xxs", 2.0625),
    "f32": _gguf("f32", 32), "experts": _gguf("q4_k", 4.5, 16), "BF16": _folder("BF16", 16),
    "fp8": _folder("fp8", 8, **_FP8), "gptq": _folder("gptq", 4.2, **_GPTQ), "gpt_oss": _gpt_oss,
    "gpt2": _gpt2,
}  # fmt: skip


def write_synthetic(folder: Path, kind: str, megabytes: int) -> Path:
    """Write a model of one of `KINDS` of about this size into a new folder in `folder`."""
    return KINDS[kind](folder, megabytes)
