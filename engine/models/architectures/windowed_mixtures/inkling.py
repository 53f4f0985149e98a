"""Inkling, text only: no rope, but a bias of scores that each query makes by distance; short convolutions of
keys, values and of what both halves of a layer add; windows in most layers, which have heads of their own;
and shared experts that are weighed together with the routed ones.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.relative import RelativeHeads
from engine.models.headers.decoder import MAX_CONTEXT, head_dimension, hf_activation, hf_layer_types, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.layers.whole import Stack
from engine.models.names import MIXTURE, RecurrentNames, TensorNames, with_shared
from engine.tensors import RawTensor

HF_NAMES = replace(
    with_shared(MIXTURE, "mlp.shared_experts"), correction="mlp.gate.e_score_correction_bias",
    expert_scales="mlp.gate.global_scale", dense_scale="mlp.global_scale",
    embed_norm="model.embed_tokens.embed_norm",
    relative=("self_attn.r_proj", "self_attn.rel_logits_proj.proj"),
    recurrent=RecurrentNames(
        "", "", "", convolutions=(
            "self_attn.k_sconv.conv1d", "self_attn.v_sconv.conv1d", "attn_sconv.conv1d", "mlp_sconv.conv1d",
        ), tap_dims=3,
    ),
)  # fmt: skip
_LLM = "model.llm."
MADE_NAMES = replace(
    HF_NAMES, embed=_LLM + "embed", norm=_LLM + "norm", head=_LLM + "unembed", layer=_LLM + "layers.{}.",
    embed_norm=_LLM + "embed_norm", attention_norm="attn_norm", mlp_norm="mlp_norm", query="attn.wq_du",
    key="attn.wk_dv", value="attn.wv_dv", output="attn.wo_ud", query_norm="attn.q_norm",
    key_norm="attn.k_norm", relative=("attn.wr_du", "attn.rel_logits_proj.proj"),
    gate_up="mlp.w13_dn", down="mlp.w2_md", expert_gate_up="mlp.experts.w13_weight",
    expert_down_stack="mlp.experts.w2_weight", stacks_alternate=True, correction="mlp.gate.bias",
    shared_gate_up="mlp.shared_experts.shared_w13_weight", shared_down="mlp.shared_experts.shared_w2_weight",
    recurrent=RecurrentNames(
        "", "", "", convolutions=("attn.k_sconv", "attn.v_sconv", "attn_sconv", "mlp_sconv"), tap_dims=3
    ),
)  # fmt: skip
"""Those of the original files."""
_FULL, _SLIDING = "hybrid", "hybrid_sliding"
_STEP = 6
_DEFAULTS = {
    "vocab_size": 201_024, "hidden_size": 6144, "num_hidden_layers": 66, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072,
    "intermediate_size": 24_576, "moe_intermediate_size": 3072,
}  # fmt: skip
_MOST, _MOST_HEADS, _MOST_TAPS = 1 << 14, 1 << 14, 64


def from_hf(keys: Keys) -> ModelConfig:
    """`InklingForCausalLM`, and the text model of `InklingForConditionalGeneration`."""
    keys = _usual(keys.inner("text_config"))
    refuse_other(keys, "shared_expert_sink", True)
    shape = hf_shape(keys)
    layers, sliding = shape["layers"], sliding_layers(keys, shape["layers"])
    window = keys.integer("sliding_window_size", 1, MAX_CONTEXT, 512)
    heads, kv_heads = (
        keys.integer(f"swa_num_{kind}_heads", 1, _MOST_HEADS, usual)
        for kind, usual in (("attention", 64), ("key_value", 16))
    )
    own = kv_heads, head_dimension(keys, "swa_head_dim", shape["width"], heads, 128)
    sizes = tuple(own if slides else (shape["kv_heads"], shape["head_dim"]) for slides in sliding)
    extent = keys.integer("rel_extent", 1, MAX_CONTEXT, 1024)
    floor = keys.integer("log_scaling_n_floor", 0, MAX_CONTEXT, 0)
    relative = RelativeHeads(
        keys.integer("d_rel", 1, 1 << 10, 16), tuple(window if slides else extent for slides in sliding),
        tuple(groups * dim for groups, dim in sizes), keys.integer("conv_kernel_size", 1, _MOST_TAPS, 4),
        frozenset(layer for layer in range(layers) if floor and not sliding[layer]), floor,
        keys.number("log_scaling_alpha", 0.0, 1e3, 0.1),
    )  # fmt: skip
    return ModelConfig(
        **shape | {"tied": False}, rope=None, embed_norm=True, activation=hf_activation(keys),
        windows=tuple(window if slides else 0 for slides in sliding), layer_heads=sizes,
        layer_queries=tuple(heads if slides else shape["heads"] for slides in sliding),
        logit_scale=1 / keys.number("logits_mup_width_multiplier", 1e-6, 1e6, 24.0),
        silent_tokens=unpadded(keys, shape["vocab_size"]),
        experts=_experts(keys, layers), recurrent=relative, recurrent_layers=frozenset(range(layers)),
        beside_attention=True,
    )  # fmt: skip


def _usual(keys: Keys) -> Keys:
    """The same keys under the names that transformers gives them. With the width of dense layers apart, the
    usual one is that of experts.
    """
    keys = keys.over(_DEFAULTS).renamed(
        conv_kernel_size="sconv_kernel_size", max_position_embeddings="model_max_length"
    )
    if keys.raw("dense_intermediate_size") is None:
        return keys
    return keys.renamed(moe_intermediate_size="intermediate_size").renamed(
        intermediate_size="dense_intermediate_size"
    )


def unpadded(keys: Keys, vocab_size: int) -> tuple[int, int]:
    """The rows that only fill up the vocabulary, as `ModelConfig.silent_tokens`."""
    rows = keys.integer("unpadded_vocab_size", 1, vocab_size, vocab_size)
    return (rows, vocab_size) if rows < vocab_size else (0, 0)


def sliding_layers(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Whether each layer has a window: as its kind says, or a list of those that do, or all except every
    sixth.
    """
    kinds = hf_layer_types(keys, layers, (_FULL, _SLIDING))
    if kinds is not None:
        return tuple(kind == _SLIDING for kind in kinds)
    if keys.raw("local_layer_ids") is not None:
        local = keys.integers("local_layer_ids", 0, layers - 1)
        return tuple(layer in local for layer in range(layers))
    return tuple((layer + 1) % _STEP != 0 for layer in range(layers))


def _experts(keys: Keys, layers: int) -> Experts | None:
    """The routed experts, and after them the shared ones; None where all layers are dense."""
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    first = keys.integer("dense_mlp_idx", 0, layers, 0)
    own = [layer for layer in range(layers) if (kinds[layer] == "sparse" if kinds else layer >= first)]
    if not own:
        return None
    shared = keys.integer("n_shared_experts", 1, _MOST, 2)
    routed = keys.integer("n_routed_experts", 1, _MOST, 256)
    used = keys.integer("num_experts_per_tok", 1, routed, 6)
    return Experts(
        routed + shared, used + shared, keys.integer("moe_intermediate_size", 1, 1 << 22), True,
        frozenset(own), scores="sigmoid", scale=keys.number("route_scale", 1e-6, 1e6, 8.0), corrected=True,
        always=shared,
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names where the file has them."""
    return MADE_NAMES if MADE_NAMES.embed + ".weight" in tensors else names


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.attention.relative import relative_blocks

    return relative_blocks(builder)


INKLING = Architecture(
    (), ("InklingForCausalLM", "InklingForConditionalGeneration"), from_hf, None, HF_NAMES, None,
    prefixes=("", "-model.language_model."), adapt=adapted, layers=_stack,
)  # fmt: skip
