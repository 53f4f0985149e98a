"""Mistral Large 4: DeepSeek's latent attention to positions that an indexer chooses, with frequencies of rope
that are learned, layers without it, queries that are scaled by their positions, and layers that read the
latents of an earlier one; experts chosen by softmax. Vision is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import HF_NAMES as LATENT_NAMES
from engine.models.architectures.latent.deepseek import dense_first
from engine.models.architectures.llama_variants.smollm3 import nope_layers
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.indexer import IndexerNames
from engine.models.config.latent import LatentAttention
from engine.models.headers.decoder import MAX_LAYERS, hf_layer_types
from engine.models.headers.experts import hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, hf_latent_decoder
from engine.models.headers.rope import learned_rope
from engine.models.headers.sparse import hf_indexer
from engine.models.names import LATENT_HF, TensorNames, with_experts, with_shared
from engine.tensors import RawTensor
from engine.words import _

_SCALES = ("softmax_scaling.scale", "softmax_scaling.bias")
_AT, _ALPHA = "self_attn.", "rotary_emb.alpha"
HF_NAMES = replace(
    LATENT_NAMES, correction="", latent=replace(LATENT_HF, scales=(_AT + _SCALES[0], _AT + _SCALES[1])),
    indexer=IndexerNames(
        _AT + "indexer.wq_b", _AT + "indexer.wk", _AT + "indexer.k_norm", _AT + "indexer.weights_proj",
        input_norm=_AT + "indexer.q_input_norm",
        scales=(_AT + "indexer." + _SCALES[0], _AT + "indexer." + _SCALES[1]),
    ),
)  # fmt: skip
_OWN, _CHOOSER = "attention.", "attention.indexer."
PUBLISHED = replace(
    with_shared(with_experts(HF_NAMES, "experts", "w1", "w3", "w2"), "shared_experts"), layer="layers.{}.",
    embed="tok_embeddings", norm="norm", head="output", attention_norm="attention_norm", mlp_norm="ffn_norm",
    query=_OWN + "wq", output=_OWN + "wo", router="gate", gate="feed_forward.w1", up="feed_forward.w3",
    down="feed_forward.w2", shared_gate="shared_experts.w1", shared_up="shared_experts.w3",
    shared_down="shared_experts.w2",
    latent=replace(
        LATENT_HF, down=_OWN + "wkv_a_with_mqa", norm=_OWN + "kv_a_norm", up=_OWN + "wkv_b",
        scales=(_OWN + "ssmax_scaling.s", _OWN + "ssmax_scaling.b"),
    ),
    indexer=IndexerNames(
        _CHOOSER + "wq_b", _CHOOSER + "wk", _CHOOSER + "k_norm", _CHOOSER + "weights_proj",
        input_norm=_CHOOSER + "q_input_norm",
        scales=(_CHOOSER + "ssmax_scaling.s", _CHOOSER + "ssmax_scaling.b"),
    ),
)  # fmt: skip
_DEFAULTS = {
    "hidden_size": 6144, "intermediate_size": 24576, "moe_intermediate_size": 6144, "num_hidden_layers": 72,
    "num_attention_heads": 64, "vocab_size": 204_800, "n_routed_experts": 128, "num_experts_per_tok": 4,
}  # fmt: skip
_ROPE = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2048.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 512, "attention_factor": 1.0,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """The text model of `MistralLarge4ForConditionalGeneration`."""
    keys = keys.inner("text_config")
    if keys.raw("rope_parameters") is None and keys.raw("rope_scaling") is None:
        keys = keys.replaced("rope_parameters", _ROPE)
    if keys.raw("num_experts") is not None:
        keys = keys.replaced("n_routed_experts", keys.raw("num_experts"))
    keys = keys.over(_DEFAULTS).renamed(n_routed_experts="num_local_experts").replaced("q_lora_rank", None)
    shape = hf_latent_decoder(
        keys, (512, 1), (64, 64, 128), rms_norm_eps=1e-5, max_position_embeddings=1 << 20
    )
    layers, bare = shape["layers"], nope_layers(keys, shape["layers"])
    roped: LatentAttention = shape["latent"]
    roped = replace(
        roped, head_scales=True, norm_eps=shape["norm_eps"],
        score_scale=shape["attention_scale"] * roped.query_dim**0.5,
    )  # fmt: skip
    plain = replace(roped, nope_dim=roped.query_dim, rope_dim=0)
    latents = tuple(plain if layer in bare else roped for layer in range(layers))
    return ModelConfig(
        **shape | {
            "latent": roped, "layer_latents": latents, "nope_layers": bare,
            "layer_heads": tuple((1, int(cache_shape(latent)["head_dim"])) for latent in latents),
            "kv_sources": _sources(keys, layers, bare),
            "logit_cap": keys.number("final_logit_softcapping", 0.0, 1e6, 30.0),
            "indexer": hf_indexer(keys, shape, 32, sharing=True, interleaved=True),
        },
        experts=_experts(keys, layers),
    )  # fmt: skip


def _sources(keys: Keys, layers: int, bare: frozenset[int]) -> tuple[int, ...]:
    """The layers whose latents each layer reads."""
    if keys.raw("kv_source_layers") is None:
        return tuple(range(layers))
    found = keys.integers("kv_source_layers", 0, MAX_LAYERS)
    ok = len(found) == layers and all(
        source <= layer and found[source] == source and (source in bare) == (layer in bare)
        for layer, source in enumerate(found)
    )
    if not ok:
        raise BadCheckpoint(
            _(
                "config.json: kv_source_layers does not name for each of {layers} layers itself or an "
                "earlier layer of the same kind with keys of its own; the file is damaged.",
                layers=layers,
            )
        )
    return found


def _experts(keys: Keys, layers: int) -> Experts | None:
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    return hf_experts(
        keys,
        dense_first(keys, layers, 1)
        if kinds is None
        else [layer for layer, kind in enumerate(kinds) if kind == "sparse"],
        count="n_routed_experts", used="num_experts_per_tok", width=width, normalise=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10, 1), **hf_groups(keys),
    )  # fmt: skip


def completed(config: ModelConfig, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """With the learned frequencies of rope."""
    assert config.rope is not None
    names = (f"model.language_model.{_ALPHA}", f"model.{_ALPHA}", _ALPHA, "lerope.alpha")
    return replace(config, rope=learned_rope(config.rope, tensors, *names))


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where a file has them."""
    return PUBLISHED if PUBLISHED.embed + ".weight" in tensors else names


MISTRAL_LARGE_4 = Architecture(
    (), ("MistralLarge4ForConditionalGeneration",), from_hf, None, HF_NAMES, None,
    prefixes=("-model.language_model.", "", "-"), adapt=adapted, completed=completed,
)  # fmt: skip
