"""Writes models of newer kinds in their true shapes, with random weights, as GGUF files: recurrent layers,
shared keys and values beside embeddings of layers, and experts.

python -m tests.tools.shapes FOLDER [NAME ...]      writes NAME-Q4_K_M.gguf; llama.cpp quantises

Sizes are those of the makers' config.json; a vocabulary has one text for each id, which llama.cpp requires.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny import TINY, _add_key, _gguf_metadata

Tensors = Iterator[tuple[str, tuple[int, ...]]]
KINDS = {"Q4_K_M": 15, "Q8_0": 7}
"""llama.cpp's numbers of file types."""


def qwen_3_5(width: int, ffn_width: int) -> tuple[str, dict[str, Any], Tensors]:
    """Qwen 3.5: 24 layers, every fourth with attention, and delta nets of 16 heads of 128."""
    inner, layers, vocabulary = 16 * 128, 24, 248_320
    keys = {
        "block_count": layers, "context_length": 32768, "embedding_length": width,
        "feed_forward_length": ffn_width, "attention.head_count": 8, "attention.head_count_kv": 2,
        "attention.key_length": 256, "attention.value_length": 256, "rope.dimension_count": 64,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7, "ssm.conv_kernel": 4,
        "rope.dimension_sections": [11, 11, 10, 0], "ssm.state_size": 128, "ssm.group_count": 16,
        "ssm.inner_size": inner, "ssm.time_step_rank": 16, "full_attention_interval": 4,
    }  # fmt: skip

    def tensors() -> Tensors:
        yield "token_embd.weight", (vocabulary, width)
        yield "output_norm.weight", (width,)
        for layer in range(layers):
            at = f"blk.{layer}."
            yield at + "attn_norm.weight", (width,)
            yield at + "post_attention_norm.weight", (width,)
            if (layer + 1) % 4:
                yield at + "attn_qkv.weight", (3 * inner, width)
                yield at + "attn_gate.weight", (inner, width)
                yield at + "ssm_alpha.weight", (16, width)
                yield at + "ssm_beta.weight", (16, width)
                yield at + "ssm_conv1d.weight", (3 * inner, 4)
                yield at + "ssm_a", (16,)
                yield at + "ssm_dt.bias", (16,)
                yield at + "ssm_norm.weight", (128,)
                yield at + "ssm_out.weight", (width, inner)
            else:
                yield at + "attn_q.weight", (2 * 8 * 256, width)
                yield at + "attn_k.weight", (2 * 256, width)
                yield at + "attn_v.weight", (2 * 256, width)
                yield at + "attn_output.weight", (width, 8 * 256)
                yield at + "attn_q_norm.weight", (256,)
                yield at + "attn_k_norm.weight", (256,)
            yield from _feed_forward(at, width, ffn_width)

    return "qwen35", keys, tensors()


def lfm2() -> tuple[str, dict[str, Any], Tensors]:
    """LFM2-1.2B: 16 layers, six with attention."""
    width, ffn_width, layers, vocabulary, attention = 2048, 8192, 16, 65536, (2, 5, 8, 10, 12, 14)
    keys = {
        "block_count": layers, "context_length": 128_000, "embedding_length": width,
        "feed_forward_length": ffn_width, "attention.head_count": 32, "rope.dimension_count": 64,
        "attention.head_count_kv": [8 if layer in attention else 0 for layer in range(layers)],
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e6, "shortconv.l_cache": 3,
    }  # fmt: skip

    def tensors() -> Tensors:
        yield "token_embd.weight", (vocabulary, width)
        yield "token_embd_norm.weight", (width,)
        for layer in range(layers):
            at = f"blk.{layer}."
            yield at + "attn_norm.weight", (width,)
            yield at + "ffn_norm.weight", (width,)
            if layer in attention:
                yield at + "attn_q.weight", (width, width)
                yield at + "attn_k.weight", (512, width)
                yield at + "attn_v.weight", (512, width)
                yield at + "attn_output.weight", (width, width)
                yield at + "attn_q_norm.weight", (64,)
                yield at + "attn_k_norm.weight", (64,)
            else:
                yield at + "shortconv.in_proj.weight", (3 * width, width)
                yield at + "shortconv.conv.weight", (width, 3)
                yield at + "shortconv.out_proj.weight", (width, width)
            yield from _feed_forward(at, width, ffn_width)

    return "lfm2", keys, tensors()


def gemma_4() -> tuple[str, dict[str, Any], Tensors]:
    """Gemma 4 E2B: 35 layers, every fifth without a window and with heads of 512, the last 20 without keys
    and values of their own, and a second embedding of 256 for each layer.
    """
    width, layers, shared, vocabulary, extra = 1536, 35, 20, 262_144, 256
    slides = [(layer + 1) % 5 != 0 for layer in range(layers)]
    widths = [6144 if layer < layers - shared else 12_288 for layer in range(layers)]
    keys = {
        "block_count": layers, "context_length": 131_072, "embedding_length": width,
        "feed_forward_length": widths, "attention.head_count": 8, "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": 512,
        "attention.value_length": 512, "rope.dimension_count": 512, "attention.sliding_window": 512,
        "attention.sliding_window_pattern": slides, "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": extra, "attention.key_length_swa": 256,
        "attention.value_length_swa": 256, "rope.dimension_count_swa": 256, "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4, "final_logit_softcapping": 30.0,
    }  # fmt: skip

    def tensors() -> Tensors:
        yield "token_embd.weight", (vocabulary, width)
        yield "per_layer_token_embd.weight", (vocabulary, layers * extra)
        yield "per_layer_model_proj.weight", (layers * extra, width)
        yield "per_layer_proj_norm.weight", (extra,)
        yield "output_norm.weight", (width,)
        yield "rope_freqs.weight", (256,)
        for layer in range(layers):
            at, head = f"blk.{layer}.", 256 if slides[layer] else 512
            for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"):
                yield at + norm + ".weight", (width,)
            yield at + "layer_output_scale.weight", (1,)
            yield at + "inp_gate.weight", (extra, width)
            yield at + "proj.weight", (width, extra)
            yield at + "attn_q.weight", (8 * head, width)
            yield at + "attn_q_norm.weight", (head,)
            yield at + "attn_output.weight", (width, 8 * head)
            if layer < layers - shared:
                yield at + "attn_k.weight", (head, width)
                yield at + "attn_k_norm.weight", (head,)
                yield at + "attn_v.weight", (head, width)
            yield from _feed_forward(at, width, widths[layer])

    return "gemma4", keys, tensors()


def qwen_3_mixture(layers: int) -> tuple[str, dict[str, Any], Tensors]:
    """Some of the 48 layers of Qwen3-30B-A3B: 128 experts, of which each token takes 8."""
    width, head, experts, ffn_width, vocabulary = 2048, 128, 128, 768, 151_936
    keys = {
        "block_count": layers, "context_length": 32_768, "embedding_length": width,
        "feed_forward_length": 6144, "attention.head_count": 32, "attention.head_count_kv": 4,
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": head,
        "attention.value_length": head, "rope.dimension_count": head, "rope.freq_base": 1e6,
        "expert_count": experts, "expert_used_count": 8, "expert_feed_forward_length": ffn_width,
    }  # fmt: skip

    def tensors() -> Tensors:
        yield "token_embd.weight", (vocabulary, width)
        yield "output.weight", (vocabulary, width)
        yield "output_norm.weight", (width,)
        for layer in range(layers):
            at = f"blk.{layer}."
            yield at + "attn_norm.weight", (width,)
            yield at + "ffn_norm.weight", (width,)
            yield at + "attn_q.weight", (32 * head, width)
            yield at + "attn_k.weight", (4 * head, width)
            yield at + "attn_v.weight", (4 * head, width)
            yield at + "attn_output.weight", (width, 32 * head)
            yield at + "attn_q_norm.weight", (head,)
            yield at + "attn_k_norm.weight", (head,)
            yield at + "ffn_gate_inp.weight", (experts, width)
            yield at + "ffn_gate_exps.weight", (experts, ffn_width, width)
            yield at + "ffn_up_exps.weight", (experts, ffn_width, width)
            yield at + "ffn_down_exps.weight", (experts, width, ffn_width)

    return "qwen3moe", keys, tensors()


def _feed_forward(at: str, width: int, ffn_width: int) -> Tensors:
    yield at + "ffn_gate.weight", (ffn_width, width)
    yield at + "ffn_up.weight", (ffn_width, width)
    yield at + "ffn_down.weight", (width, ffn_width)


SHAPES = {
    "qwen3.5-0.8b": lambda: qwen_3_5(1024, 3584),
    "qwen3.5-2b": lambda: qwen_3_5(2048, 6144),
    "lfm2-1.2b": lfm2,
    "gemma4-e2b": gemma_4,
    "qwen3-30b-a3b-6l": lambda: qwen_3_mixture(6),
}


def write_shape(folder: Path, name: str, kind: str = "Q4_K_M") -> Path:
    """The file of a shape as `kind` of `KINDS`, written once. Raises RuntimeError if llama.cpp refuses."""
    from tests.tools.oracle_quants import quantise

    path = folder / f"{name}-{kind}.gguf"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        whole, unfinished = path.with_suffix(".f16"), path.with_suffix(".part")
        _write_whole(whole, name)
        if not quantise(whole, unfinished, KINDS[kind]):
            raise RuntimeError(f"llama.cpp could not write {path.name}")
        whole.unlink()
        unfinished.rename(path)
    return path


def _write_whole(path: Path, name: str) -> None:
    """All matrices in F16, the rest in F32."""
    import gguf

    architecture, keys, tensors = SHAPES[name]()
    rng, found = np.random.default_rng(0), list(tensors)
    vocabulary = found[0][1][0]
    writer = gguf.GGUFWriter(path, architecture, use_temp_file=True)  # not all in memory at once
    for key, value in _gguf_metadata(TINY).items():
        if key == "tokenizer.ggml.tokens":
            value = [*value, *(f"<further {i}>" for i in range(len(value), vocabulary))]
        if key == "tokenizer.ggml.token_type":
            value = [*value, *[1] * (vocabulary - len(value))]
        if key.startswith("tokenizer."):
            _add_key(writer, key, value)
    for key, value in keys.items():
        _add_key(writer, f"{architecture}.{key}", value)
    for tensor, shape in found:
        if len(shape) == 1:
            low, high = (-8.0, -0.1) if tensor.endswith("ssm_a") else (0.9, 1.1)
            values = rng.uniform(low, high, shape).astype(np.float32)
        else:  # a few random rows again and again: speed does not depend on the numbers
            rows = rng.standard_normal((min(64, shape[0]), shape[1]), np.float32) * np.float32(0.02)
            values = np.resize(rows, shape)
        small = "conv" in tensor and "proj" not in tensor
        writer.add_tensor(tensor, values if len(shape) == 1 or small else values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    target, *names = sys.argv[1:] or ["."]
    for each in names or SHAPES:
        print(write_shape(Path(target), each))
