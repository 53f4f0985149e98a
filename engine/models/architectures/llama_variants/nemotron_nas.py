"""Llama Nemotron Super and Ultra (arXiv 2505.00949) and DeciLM: Llama whose layers differ in key/value heads
and in the width of the feed-forward part, and may lack either half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

_MOST, _WIDEST = 1 << 14, 1 << 22


def from_hf(keys: Keys) -> ModelConfig:
    """`DeciLMForCausalLM`."""
    blocks = keys.raw("block_configs")
    counts = keys.integers("num_key_value_heads_per_layer", 1, _MOST)
    heads = keys.integer("num_attention_heads", 1, _MOST)
    if blocks is None:
        width = keys.integer("intermediate_size", 1, _WIDEST)
        widths: Sequence[int] = [width] * len(counts)
    else:
        counts, widths = _blocks(blocks, heads, keys.integer("hidden_size", 1, 1 << 20))
    keys = keys.replaced("num_key_value_heads", max(counts, default=0) or None)
    shape = hf_decoder(
        keys.replaced("intermediate_size", max(widths, default=0) or 1),
        bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False), rms_norm_eps=1e-5,
    )  # fmt: skip
    return _config(shape, counts, widths)


def _blocks(blocks: Any, heads: int, width: int) -> tuple[tuple[int, ...], list[int]]:
    """The key/value heads and the features inside the feed-forward part of each layer, 0 where there is no
    such part.
    """
    parts = [
        (block.get("attention"), block.get("ffn")) if isinstance(block, Mapping) else (None, None)
        for block in (blocks if isinstance(blocks, list) else [None])
    ]
    counts, widths = [], []
    for attention, feed in parts:
        if not isinstance(attention, Mapping) or not isinstance(feed, Mapping):
            raise BadCheckpoint(
                _(
                    "config.json: block_configs is not a list of objects with attention and ffn; the file is "
                    "damaged."
                )
            )
        if attention.get("replace_with_linear") or feed.get("replace_with_linear"):
            raise UnsupportedModel(
                _(
                    "The model has a single matrix in place of some of its parts (replace_with_linear), "
                    "which is not supported. Choose another model."
                )
            )
        own = Keys(attention, "config.json: block_configs").integer("n_heads_in_group", 0, heads, 0)
        multiplier = Keys(feed, "config.json: block_configs").number("ffn_mult", 0.0, 1e3, 0.0)
        counts.append(0 if attention.get("no_op") or not own else heads // own)
        inner = 0 if feed.get("no_op") else int(2 * multiplier * width / 3)
        widths.append((inner + 255) // 256 * 256)
    return tuple(counts), widths


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`deci`, with lists of heads, of key/value heads and of feed-forward lengths."""
    layers = keys.integer("block_count", 1, 1 << 12)

    def each(name: str, most: int) -> tuple[int, ...]:
        found = keys.raw(name)
        return keys.integers(name, 0, most) if isinstance(found, list) else (
            (keys.integer(name, 1, most),) * layers
        )  # fmt: skip

    heads, counts = each("attention.head_count", _MOST), each("attention.head_count_kv", _MOST)
    widths = each("feed_forward_length", _WIDEST)
    if any(head and not count for head, count in zip(heads, counts, strict=False)):
        raise UnsupportedModel(
            _(
                "The model has a single matrix in place of some of its parts (replace_with_linear), "
                "which is not supported. Choose another model."
            )
        )
    if len({head for head in heads if head}) != 1:
        raise BadCheckpoint(
            _("The GGUF metadata does not give one number of attention heads; the file is damaged.")
        )
    for name, values in (
        ("attention.head_count", heads), ("attention.head_count_kv", counts), ("feed_forward_length", widths),
    ):  # fmt: skip
        keys = keys.replaced(name, max(values) or 1)
    return _config(gguf_decoder(keys, tensors, "deci", interleaved=True), counts, widths)


def _config(shape: dict[str, Any], counts: Sequence[int], widths: Sequence[int]) -> ModelConfig:
    layers = shape["layers"]
    if len(counts) != layers or len(widths) != layers or not any(counts):
        raise BadCheckpoint(
            _(
                "The model has {layers} layers but states the heads of {heads} and the feed-forward parts of "
                "{widths}; the file is damaged.",
                layers=layers,
                heads=len(counts),
                widths=len(widths),
            )
        )
    differ = len({count for count in counts if count}) > 1
    own = tuple((count or shape["kv_heads"], shape["head_dim"]) for count in counts)
    return ModelConfig(
        **shape,
        mlp_layers=frozenset(layer for layer, count in enumerate(counts) if not count),
        bare_layers=frozenset(layer for layer, width in enumerate(widths) if not width),
        layer_heads=own if differ else (),
        ffn_widths=tuple(width or shape["ffn_width"] for width in widths),
    )


NEMOTRON_NAS = Architecture(
    ("deci",), ("DeciLMForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
