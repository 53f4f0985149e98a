"""DFlash drafters (arXiv 2602.06036): a few layers that draft a block of tokens for one model in one pass,
and can do nothing without it.

They are no row of `ARCHITECTURES`: `engine.models.drafting.dflash` loads them beside a main model. Sources
of the layouts: the configurations and checkpoints of z-lab, its `dflash/model.py`, and llama.cpp's `dflash`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.architectures.drafters.names import DFLASH_GGUF
from engine.models.architectures.llama import qwen
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    MAX_VOCAB,
    gguf_decoder,
    gguf_windows,
    hf_layer_types,
)
from engine.models.headers.keys import Keys
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.words import _

NAME = "DFlash"
"""What is shown as the architecture."""
_KINDS = "full_attention", "sliding_attention"
_MOST_BLOCK = 256
_SCALES = "embedding_scale", "logit_scale", "final_logit_softcapping"
_LATER = "d2t", "attn_sinks", "markov_w1", "selector_hidden", "layer_fusion", "hc_head_fn"
"""Tensors of more than these layers: fewer tokens, sinks, DSpark, DFly, DFlash 2 and DeepSeek V4 drafters."""


@dataclass(frozen=True, slots=True)
class DFlashConfig(ModelConfig):
    """The shape of a drafter, whose features are as many as the main model's."""

    block: int = 16
    """The tokens of a block: the last known one, and those that are drafted."""
    mask: int = 0
    """The token that stands for those that are drafted."""
    layers_before: tuple[int, ...] = ()
    """The number of the main model's layers before each hidden state that is read."""
    causal: tuple[bool, ...] = ()
    """Of each layer, whether a token of a block sees the earlier ones alone."""
    input_scale: float = 1.0
    """Multiplies the embeddings, which are as the main model's table has them."""
    output_scale: float = 1.0
    """Multiplies the logits, before their soft cap."""
    output_cap: float = 0.0


def read_dflash_config(checkpoint: Checkpoint) -> DFlashConfig:
    """The checked configuration of a drafter. Raises `BadCheckpoint` and `UnsupportedModel`."""
    if checkpoint.format == "gguf":
        keys = Keys(checkpoint.metadata, _("The GGUF metadata"), f"{DFLASH_GGUF}.")
        return from_gguf(keys, checkpoint.tensors)
    return from_hf(Keys(checkpoint.metadata["config"], "config.json"))


def from_hf(keys: Keys) -> DFlashConfig:
    """config.json of a `DFlashDraftModel`: Qwen 3's keys, and others in `dflash_config` or beside them."""
    own = keys.inner("dflash_config")
    config = qwen.from_hf_3(
        keys.replaced("architectures", ["Qwen3ForCausalLM"]).replaced("layer_types", None)
    )
    shape = {field.name: getattr(config, field.name) for field in fields(config)}
    layers = config.layers
    kinds = hf_layer_types(keys, layers, _KINDS) or _KINDS[:1] * layers
    slides = [kind == _KINDS[1] for kind in kinds]
    window = keys.integer("sliding_window", 1, MAX_CONTEXT) if any(slides) else 0
    causal = None if keys.raw("is_causal") is None else keys.flag("is_causal")
    return DFlashConfig(
        **shape | _layers(tuple(window if each else 0 for each in slides), causal),
        block=own.integer("block_size", 2, _MOST_BLOCK, 16),
        mask=own.integer("mask_token_id", 0, config.vocab_size - 1),
        layers_before=tuple(layer + 1 for layer in _read_layers(own, "target_layer_ids", MAX_LAYERS - 1)),
        input_scale=own.number("input_embedding_scale", -1e6, 1e6, 1.0),
        output_scale=own.number("output_multiplier", -1e6, 1e6, 1.0),
        output_cap=own.optional("final_logit_softcapping", 0.0, 1e6),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> DFlashConfig:
    """`dflash`, whose `target_layers` count the layers before a state. The tokenizer is the main model's."""
    for name in _LATER:
        if any(name in tensor for tensor in tensors):
            raise UnsupportedModel(
                _(
                    "It is a DFlash drafter of a later kind, with the tensor {name}. A later version of "
                    "Inglenook may run it.",
                    name=name,
                )
            )
    tokens = keys.source.get("tokenizer.ggml.tokens")
    count = keys.integer("vocab_size", 1, MAX_VOCAB, len(tokens) if isinstance(tokens, list) else None)
    shape = gguf_decoder(keys, tensors, DFLASH_GGUF, handled=_SCALES, vocab_size=count)
    layers, window = shape["layers"], keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    whole = Keys(keys.source, _("The GGUF metadata"))
    return DFlashConfig(
        **shape | _layers(gguf_windows(keys, layers, window, 0) or (0,) * layers, None),
        qk_norm="head",
        block=keys.integer("block_size", 2, _MOST_BLOCK, 16),
        mask=whole.integer("tokenizer.ggml.mask_token_id", 0, count - 1),
        layers_before=_read_layers(keys, "target_layers", MAX_LAYERS),
        input_scale=keys.number("embedding_scale", -1e6, 1e6, 1.0),
        output_scale=keys.number("logit_scale", -1e6, 1e6, 1.0),
        output_cap=keys.optional("final_logit_softcapping", 0.0, 1e6),
    )


def _layers(windows: tuple[int, ...], causal: bool | None) -> dict[str, Any]:
    """The fields that a Qwen 3 has not or has otherwise; `causal` None: layers with a window are."""
    return {
        "architecture": NAME,
        "tied": False,
        "windows": windows if any(windows) else (),
        "causal": tuple(window > 0 if causal is None else causal for window in windows),
    }


def _read_layers(keys: Keys, name: str, most: int) -> tuple[int, ...]:
    found = keys.integers(name, 0, most)
    if not found:
        raise BadCheckpoint(
            _(
                "The header does not say which layers of the main model a DFlash drafter reads ({name}); the "
                "file is incomplete. Download it again.",
                name=name,
            )
        )
    return found
