"""Gemma 3n, text only: layers over several versions of each row (AltUp), a low-rank path beside attention
(LAuReL), gates of which only the largest count in the first layers, a second embedding for every layer, and
last layers that share the keys and values of earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma4 import GGUF_NAMES as GGUF_4
from engine.models.architectures.dense.gemma4 import HF_NAMES as HF_4
from engine.models.architectures.dense.gemma4 import (
    PREFIXES,
    SHARED,
    gguf_each_layer,
    gguf_local_rope,
    gguf_shared,
    hf_windows_of,
)
from engine.models.config import ModelConfig
from engine.models.config.gemma import AltUp, AltUpNames, PerLayer
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_shape,
    gguf_windows,
    hf_activation,
    hf_shape,
)
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_gguf, rope_from_hf
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF_4,
    altup=AltUpNames(
        "altup.modality_router", "altup.router_norm", "altup.prediction_coefs", "altup.correction_coefs",
        "altup.correct_output_scale", "laurel.linear_left", "laurel.linear_right", "laurel.post_laurel_norm",
    ),
    altup_spread="model.altup_projections.{}", altup_gather="model.altup_unembed_projections.{}",
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF_4,
    altup=AltUpNames(
        "altup_router", "altup_router_norm", "altup_predict_coef", "altup_correct_coef",
        "altup_correct_scale.weight", "laurel_l", "laurel_r", "laurel_post_norm",
    ),
    altup_spread="altup_proj", altup_gather="altup_unembd_proj",
)  # fmt: skip
_DEFAULTS = {
    "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "sliding_window": 512,
    "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "altup_active_idx": 0, "altup_correct_scale": True,
    "altup_num_inputs": 4, "num_kv_shared_layers": 15, "laurel_rank": 64,
}  # fmt: skip
"""The defaults of transformers' class, for keys that config.json leaves out."""
_MOST_INPUTS = 8
_SPARSE_LAYERS, _SPARSITY = 10, 0.95
"""The first layers of the published models, and the share of gates that do not count in them."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Gemma3nForCausalLM`, and the text model of `Gemma3nForConditionalGeneration`."""
    keys = keys.inner("text_config").over(_DEFAULTS)
    layers = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    widths = gguf_each_layer(keys, "intermediate_size", layers)
    shape = hf_shape(keys.replaced("intermediate_size", widths[0]))
    bias = keys.flag("attention_bias", False)
    width = keys.integer("hidden_size_per_layer_input", 1, 1 << 20)
    return ModelConfig(
        **shape,
        **SHARED | {"activation": hf_activation(keys, "hidden_activation", "gelu_pytorch_tanh")},
        embed_scale=shape["width"] ** 0.5,
        attention_bias=bias,
        output_bias=bias,
        windows=hf_windows_of(keys, layers, 5, last_is_full=False),
        shared_kv=keys.integer("num_kv_shared_layers", 0, layers - 1),
        ffn_widths=widths,
        rope=rope_from_hf(keys, shape["head_dim"], base=1e6, layer_type="full_attention"),
        rope_local=rope_from_hf(_local(keys), shape["head_dim"], base=1e4, layer_type="sliding_attention"),
        logit_cap=keys.optional("final_logit_softcapping", 0.0, 1e6),
        per_layer=PerLayer(width, keys.integer("vocab_size_per_layer_input", 1, 1 << 24)),
        altup=_altup(keys, layers),
    )


def _local(keys: Keys) -> Keys:
    """The keys with the rope of the layers with a window alone, under the names of one table."""
    if keys.table("rope_parameters") is not None:
        return keys
    base = keys.number("rope_local_base_freq", 1.0, 1e12, 1e4)
    return keys.without("rope_scaling").replaced("rope_theta", base)


def _altup(keys: Keys, layers: int) -> AltUp:
    inputs = keys.integer("altup_num_inputs", 1, _MOST_INPUTS)
    pattern = keys.numbers("activation_sparsity_pattern", 0.0, 1.0)
    if keys.raw("activation_sparsity_pattern") is None:
        sparse = _SPARSE_LAYERS if layers > _SPARSE_LAYERS else 0
        pattern = (_SPARSITY,) * sparse + (0.0,) * (layers - sparse)
    if len(pattern) != layers or max(pattern) == 1.0:
        raise BadCheckpoint(
            _(
                "config.json: activation_sparsity_pattern is not a list of {layers} shares below "
                "1; the file is damaged.",
                layers=layers,
            )
        )
    return AltUp(
        inputs,
        keys.integer("altup_active_idx", 0, inputs - 1),
        keys.flag("altup_correct_scale"),
        keys.integer("laurel_rank", 1, 1 << 14),
        tuple(NormalDist().inv_cdf(share) if share else None for share in pattern),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gemma3n`."""
    keys.integer("embedding_length_per_layer_input", 1, 1 << 20)  # none of its layers is without
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    widths = gguf_each_layer(keys, "feed_forward_length", layers)
    shape = gguf_shape(
        keys.replaced("feed_forward_length", widths[0]), tensors, "gemma3n",
        handled=("final_logit_softcapping",),
    )  # fmt: skip
    inputs = keys.integer("altup.num_inputs", 1, _MOST_INPUTS, 4)
    left = tensors.get("blk.0.laurel_l.weight")
    return ModelConfig(
        **shape,
        **gguf_shared(keys, tensors, shape)
        | {"logit_cap": keys.number("final_logit_softcapping", 0.0, 1e6, 30.0)},
        windows=gguf_windows(keys, layers, keys.integer("attention.sliding_window", 1, MAX_CONTEXT), 5),
        ffn_widths=widths,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False),
        rope_local=gguf_local_rope(keys, shape["head_dim"]),
        altup=AltUp(
            inputs,
            keys.integer("altup.active_idx", 0, inputs - 1, 0),
            True,
            left.shape[0] if left is not None and len(left.shape) == 2 else 1,
            _deviations(keys, layers),
        ),
    )


def _deviations(keys: Keys, layers: int) -> tuple[float | None, ...]:
    """`activation_sparsity_scale`, where layers that are not sparse have minus infinity."""
    found = keys.numbers("activation_sparsity_scale", -float("inf"), 1e3)
    if not found:
        sparse = _SPARSE_LAYERS if layers > _SPARSE_LAYERS else 0
        return (NormalDist().inv_cdf(_SPARSITY),) * sparse + (None,) * (layers - sparse)
    if len(found) < layers:
        raise BadCheckpoint(
            _(
                "activation_sparsity_scale has {found} numbers for {layers} layers; the file is damaged.",
                found=len(found),
                layers=layers,
            )
        )
    return tuple(value if value > -1e3 else None for value in found[:layers])


GEMMA_3N = Architecture(
    ("gemma3n",), ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"), from_hf, from_gguf, HF_NAMES,
    GGUF_NAMES, prefixes=PREFIXES,
)  # fmt: skip
