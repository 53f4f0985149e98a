"""Beam: sums that are scaled by their number of terms, gated attention, no rope but a scale of queries by
their position in layers without a window, and experts after dense first layers.

The i-th sum of a layer's half h and its input r is (sqrt(i - 1) r + h) / sqrt(i). So sqrt(i) times it is the
plain sum of all that was added, and its norm is that of the plain sum with an epsilon of i times the size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder, hf_layer_types, hf_sliding
from engine.models.headers.experts import hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_hf
from engine.models.names import MIXTURE

HF_NAMES = replace(
    MIXTURE, correction="mlp.gate.e_score_correction_bias", output_gate="self_attn.gate_proj",
    gate_bias="self_attn.gate_bias", attention_post="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm", mlp_post="post_feedforward_layernorm",
)  # fmt: skip
_FULL, _SLIDING = "full_attention", "sliding_attention"
_STEP, _DENSE = 6, 3
_SCALED = {"query_power": 0.1, "query_length": 2048, "query_offset": 1}
"""Queries of layers without rope are multiplied by (1 + (p + 1) / 2048)^0.1 at position p."""


def from_hf(keys: Keys) -> ModelConfig:
    """`BeamForCausalLM`."""
    keys = keys.over({
        "num_key_value_heads": 8, "num_experts_per_tok": 8, "num_experts": 256, "moe_intermediate_size": 2560,
        "rope_parameters": {_SLIDING: {"rope_type": "default", "rope_theta": 10_000.0}, _FULL: None},
    })  # fmt: skip
    bias = keys.flag("attention_bias", False)
    shape: dict[str, Any] = hf_decoder(keys, bias=bias, head_dim=128, max_position_embeddings=8192)
    layers, dim = shape["layers"], shape["head_dim"]
    windows = hf_sliding(keys, layers, 512, _STEP)
    if windows and keys.raw("layer_types") is None:
        windows = (*windows[:-1], 0)
    tables = keys.table("rope_parameters")
    ropes = {
        kind: rope_from_hf(keys, dim, layer_type=kind)
        for kind in (_FULL, _SLIDING)
        if tables is not None and tables.raw(kind) is not None
    }
    kinds = hf_layer_types(keys, layers, (_FULL, _SLIDING)) or tuple(
        _SLIDING if windows and window else _FULL for window in windows or (0,) * layers
    )
    main = ropes.get(_FULL, ropes.get(_SLIDING, shape["rope"]))
    mixed = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    experts = hf_experts(
        keys, [at for at in range(layers) if (mixed[at] == "sparse" if mixed else at >= _DENSE)],
        count="num_experts", used="num_experts_per_tok",
        width=keys.integer("moe_intermediate_size", 1, 1 << 22),
        normalise=keys.flag("norm_topk_prob", True), scores="sigmoid", corrected=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 2.5), **hf_groups(keys, 8, 4),
    )  # fmt: skip
    cap = 0.0 if keys.has("final_logit_softcapping") else 30.0
    return ModelConfig(
        **shape | {"rope": replace(main, **_SCALED)}, placement="both", qk_norm="head", windows=windows,
        rope_local=ropes[_SLIDING] if len(ropes) > 1 else None, output_gate="row", experts=experts,
        nope_layers=frozenset(at for at, kind in enumerate(kinds) if kind not in ropes), scaled_nope=True,
        eps_by_terms=True, logit_cap=keys.number("final_logit_softcapping", 0.0, 1e6, cap),
    )  # fmt: skip


BEAM = Architecture((), ("BeamForCausalLM",), from_hf, None, HF_NAMES, None)
