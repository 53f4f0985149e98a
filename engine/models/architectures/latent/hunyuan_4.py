"""Hunyuan 4: hyper-connections around GLM-5's latent attention to chosen positions and its experts, with
attention sinks and a gate. Its rope is interleaved, as in vLLM and in its authors' conversion to GGUF;
transformers 5.24 rotates halves, which the published weights are not made for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import from_gguf as from_gguf_latent
from engine.models.architectures.latent.deepseek_sparse import GGUF_INDEXED, INDEXED, hf_sparse
from engine.models.config import ModelConfig
from engine.models.config.experts import Limits
from engine.models.config.hyper import HyperConnections
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, all_layers
from engine.models.headers.experts import gate_limits, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.headers.sparse import gguf_indexer
from engine.models.names import TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(
    INDEXED, output_gate="self_attn.gate_proj", sinks="self_attn.sinks", hyper_attention="attn_hc.",
    hyper_mlp="ffn_hc.", hyper_head="model.hc_head.hc_",
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF_INDEXED, output_gate="attn_gate", hyper_attention="hc_attn_{}.weight",
    hyper_mlp="hc_ffn_{}.weight", hyper_head="output_hc_{}.weight",
)  # fmt: skip
_DEFAULTS = {
    "n_routed_experts": 256, "moe_intermediate_size": 768, "routed_scaling_factor": 2.827,
}  # fmt: skip
MOST_STREAMS = 16


def from_hf(keys: Keys) -> ModelConfig:
    """`HYV4ForCausalLM`."""
    refuse_other(keys, "hidden_act", "silu")
    layers = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    if keys.raw("indexer_types") is None:
        kinds = ["full" if layer == 0 or layer % 4 == 1 else "shared" for layer in range(layers)]
        keys = keys.replaced("indexer_types", kinds)
    read = hf_sparse(
        keys.over(_DEFAULTS), ((512, 1536), (192, 64, 256)), list(range(1, layers)), hf_groups(keys), 16,
        sharing=True, rms_norm_eps=1e-5, max_position_embeddings=262_144,
    )  # fmt: skip
    read["indexer"] = replace(read["indexer"], rope_last=True, norm_eps=read["norm_eps"])
    limits = gate_limits("swiglu_limit", keys.number("swiglu_limit", -1e6, 1e6, 10.0))
    hyper = HyperConnections(
        keys.integer("hc_mult", 1, MOST_STREAMS, 4),
        keys.number("hc_magnitude", -1e6, 1e6, 2.0),
        keys.number("hc_eps", 0.0, 1.0, 1e-6),
    )
    return ModelConfig(**read, output_gate="row", sinks=True, hyper=hyper, expert_limits=(limits,) * layers)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`hy_v4`, whose layers all attend to all positions where the file has no indexers."""
    config = from_gguf_latent(keys, tensors, "hy_v4")
    layers, limits = config.layers, tuple[Limits | None, ...]()
    if keys.raw("swiglu_clamp_exp") is not None:
        found = all_layers(keys.numbers("swiglu_clamp_exp", 0.0, 1e6), "swiglu_clamp_exp", layers)
        limits = tuple(gate_limits("swiglu_clamp_exp", each) if each else None for each in found)
    config = replace(
        config, output_gate="row", sinks=True, expert_limits=limits,
        hyper=HyperConnections(
            keys.integer("hyper_connection.count", 1, MOST_STREAMS),
            keys.number("hyper_connection.magnitude", -1e6, 1e6),
            keys.number("hyper_connection.epsilon", 0.0, 1.0),
        ),
    )  # fmt: skip
    if not keys.integer("attention.indexer.top_k", 0, MAX_CONTEXT, 0):
        return config
    flags = keys.flags("attention.indexer.types", layers)
    full = [layer for layer in range(layers) if not flags or flags[layer]]
    indexer = gguf_indexer(keys, config, full)
    return replace(config, indexer=replace(indexer, rope_last=True, norm_eps=config.norm_eps))


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, or those that transformers gives them when it saves, where a folder has them."""
    if names is GGUF_NAMES:
        return names
    first, head = names.layer.format(0), names.hyper_head.removesuffix("hc_head.hc_")

    def found(at: str, usual: str, end: str, *others: str) -> str:
        return next((name for name in others if at + name + end in tensors), usual)

    prefixes = [
        found(first, usual, "fn", f"{name}.hc_", f"{name}.hc_pre.hc_", f"hc_pre.{name}.hc_")
        for usual, name in ((names.hyper_attention, "hc_attn_layer"), (names.hyper_mlp, "hc_mlp_layer"))
    ]
    last = ("hc_head.hc_head_", "hc_head.hc_pre.hc_head_", "hc_pre.hc_head.hc_head_")
    linear_gate = any(".mlp.linear_gate." in name for name in tensors)
    return replace(
        names, hyper_attention=prefixes[0], hyper_mlp=prefixes[1],
        hyper_head=head + found(head, "hc_head.hc_", "fn", *last),
        output_gate=found(first, names.output_gate, ".weight", "self_attn.linear_gate"),
        sinks=found(first, names.sinks, "", "self_attn.learnable_sink_param"),
        gate="mlp.linear_gate" if linear_gate else names.gate,
        shared_gate="mlp.shared_experts.linear_gate" if linear_gate else names.shared_gate,
    )  # fmt: skip


HUNYUAN_4 = Architecture(
    ("hy_v4",), ("HYV4ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
