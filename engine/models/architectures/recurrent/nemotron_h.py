"""Nemotron-H, Nemotron Nano 2 (arXiv 2504.03624) and Nemotron 3: layers of one part each, Mamba-2, attention
without rope, or the square of relu, in Nemotron 3 of experts without gates, which may work on a projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.recurrent.granite_hybrid import gguf_mamba, least_step
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.recurrent import Mamba
from engine.models.headers.decoder import (
    gguf_decoder,
    hf_activation,
    hf_layer_types,
    hf_shape,
    refuse_other_than_silu,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import GGUF, HF, MAMBA_GGUF, NarrowNames, TensorNames, mamba_names
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, embed="backbone.embeddings", norm="backbone.norm_f", layer="backbone.layers.{}.",
    attention_norm="norm", mlp_norm="norm", query="mixer.q_proj", key="mixer.k_proj", value="mixer.v_proj",
    output="mixer.o_proj", gate="", up="mixer.up_proj", down="mixer.down_proj", router="mixer.gate",
    expert_up="mixer.experts.{}.up_proj", expert_down="mixer.experts.{}.down_proj",
    correction="mixer.gate.e_score_correction_bias", shared_up="mixer.shared_experts.up_proj",
    shared_down="mixer.shared_experts.down_proj",
    narrow=NarrowNames("mixer.fc1_latent_proj", "mixer.fc2_latent_proj"), recurrent=mamba_names("mixer"),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF, mlp_norm="attn_norm", narrow=NarrowNames("ffn_latent_down", "ffn_latent_up"), recurrent=MAMBA_GGUF,
)  # fmt: skip
_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_KINDS = {"linear_attention": "mamba", "full_attention": "attention"}
_MOST = 1 << 14
_WIDEST = 1 << 22


def from_hf(keys: Keys) -> ModelConfig:
    """`NemotronHForCausalLM`."""
    keys = keys.over({"layer_norm_epsilon": 1e-5, "num_key_value_heads": 8, "intermediate_size": 21504})
    keys = keys.replaced("tie_word_embeddings", False)  # transformers never ties its tables
    kinds = _kinds(keys)
    refuse_other_than_silu(keys, "mamba_hidden_act")
    shape = hf_shape(
        keys.replaced("num_hidden_layers", len(kinds)), "layer_norm_epsilon", head_dim=128,
        max_position_embeddings=4096,
    )  # fmt: skip
    groups = keys.integer("n_groups", 1, _MOST, 8)
    return _config(
        shape | {"activation": hf_activation(keys, "mlp_hidden_act", "relu2")},
        Mamba(
            keys.integer("mamba_num_heads", 1, _MOST, 128),
            keys.integer("mamba_head_dim", 1, _MOST, 64),
            groups,
            keys.integer("ssm_state_size", 1, _MOST, 128),
            keys.integer("conv_kernel", 1, 64, 4),
            norm_groups=groups,
            least_step=max(least_step(keys), keys.number("time_step_min", 0.0, 1.0, 1e-3)),
        ),
        kinds,
        mlp_bias=keys.flag("mlp_bias", False),
        experts=_experts(keys, [layer for layer, kind in enumerate(kinds) if kind == "moe"]),
    )


def _experts(keys: Keys, layers: list[int]) -> Experts | None:
    keys = keys.over({"n_routed_experts": 8, "num_experts_per_tok": 2})
    return hf_experts(
        keys,
        layers,
        count="n_routed_experts",
        used="num_experts_per_tok",
        width=keys.integer("moe_intermediate_size", 1, _WIDEST, 7688),
        normalise=keys.flag("norm_topk_prob", True),
        scores="sigmoid",
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
        corrected=True,
        shared_width=keys.integer("moe_shared_expert_intermediate_size", 1, _WIDEST, 7688),
        narrow=0 if keys.raw("moe_latent_size") is None else keys.integer("moe_latent_size", 1, _WIDEST),
        **hf_groups(keys),
    )


def _kinds(keys: Keys) -> tuple[str, ...]:
    """Of each layer "mamba", "attention", "mlp" or "moe": a letter each in `hybrid_override_pattern`."""
    pattern = keys.raw("hybrid_override_pattern")
    if pattern is None:
        named = (
            keys
            if keys.raw("layer_types") is not None
            else keys.replaced("layer_types", keys.raw("layers_block_type"))
        )
        listed = named.raw("layer_types")
        count = len(listed) if isinstance(listed, list) else 0
        kinds = hf_layer_types(named, count, (*_KINDS, *_PATTERN.values())) or ()
        kinds = tuple(_KINDS.get(kind, kind) for kind in kinds)
    else:
        kinds = tuple(_PATTERN.get(letter, letter) for letter in keys.text("hybrid_override_pattern"))
    if not kinds or any(kind not in ("mamba", "attention", "mlp", "moe") for kind in kinds):
        raise BadCheckpoint(
            _(
                "config.json does not say for each layer whether it is Mamba, attention or feed-forward; "
                "the file is damaged."
            )
        )
    return kinds


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`nemotron_h` and `nemotron_h_moe`, with lists of key/value heads and of feed-forward lengths, 0 where a
    layer has none.
    """
    heads = keys.integers("attention.head_count_kv", 0, _MOST)
    widths = keys.integers("feed_forward_length", 0, _WIDEST)
    if len(heads) != len(widths) or not any(heads) or not any(widths):
        raise BadCheckpoint(
            _(
                "The GGUF metadata does not say for each layer whether it is Mamba, attention or "
                "feed-forward; the file is damaged."
            )
        )
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = len(heads) - keys.integer("nextn_predict_layers", 0, len(heads) - 1, 0)
    heads, widths = heads[:layers], widths[:layers]
    keys = keys.replaced("attention.head_count_kv", max(heads)).replaced("feed_forward_length", max(widths))
    # The epsilon of its RMS norms has the key of layer norms.
    plain = keys.raw("attention.layer_norm_rms_epsilon") is None
    architecture = keys.source["general.architecture"]
    shape = gguf_decoder(
        keys.replaced("block_count", layers), tensors, architecture, layer_norm=plain,
        handled=GGUF_EXPERT_KEYS,
    )  # fmt: skip
    chosen = [layer for layer in range(layers) if f"blk.{layer}.ffn_gate_inp.weight" in tensors]
    kinds = tuple(
        "attention" if head else "moe" if layer in chosen else "mlp" if width else "mamba"
        for layer, (head, width) in enumerate(zip(heads, widths, strict=True))
    )
    experts = None
    if chosen:
        experts = gguf_experts(
            keys, shape, normalise=False, scores="sigmoid", layers=frozenset(chosen),
            narrow=keys.renamed(moe_latent_size="expert_latent_length").integer(
                "moe_latent_size", 0, _WIDEST, 0
            ),
        )  # fmt: skip
    return _config(shape | {"activation": "relu2"}, gguf_mamba(keys), kinds, mlp_bias=None, experts=experts)


def _config(
    shape: dict[str, object], mamba: Mamba, kinds: tuple[str, ...], *, mlp_bias: bool | None,
    experts: Experts | None,
) -> ModelConfig:  # fmt: skip
    def those(kind: str) -> frozenset[int]:
        return frozenset(layer for layer, own in enumerate(kinds) if own == kind)

    more: dict[str, object] = {
        "rope": RopeConfig(10000.0, 2, False, (1.0,)),  # for no layer
        "nope_layers": frozenset(range(len(kinds))),
        "gated": False, "one_part": True, "mlp_bias": mlp_bias, "recurrent": mamba,
        "recurrent_layers": those("mamba"), "mlp_layers": those("mlp") | those("moe"), "experts": experts,
    }  # fmt: skip
    return ModelConfig(**(shape | more))  # type: ignore[arg-type]


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Experts are in stacks in transformers' memory."""
    at = "mixer.experts."
    if not any(name.endswith(f".{at}up_proj") for name in tensors):
        return names
    return replace(names, expert_up=at + "up_proj", expert_down=at + "down_proj", stack_ends=("", "_bias"))


NEMOTRON_H = Architecture(
    ("nemotron_h", "nemotron_h_moe"), ("NemotronHForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    prefixes=("", "-model."), adapt=_adapt,
)  # fmt: skip
