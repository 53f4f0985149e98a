"""Inkling 2 and Inkling 2 Mini, text only: attention with a bias and a sink that each query makes, layers
that read a softmax over sums of earlier layers, and in the Mini layers that run several times.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.windowed_mixtures.inkling import HF_NAMES as HF_INKLING
from engine.models.architectures.windowed_mixtures.inkling import MADE_NAMES, sliding_layers, unpadded
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.relative import ClippedHeads
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, head_dimension, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.layers.whole import Stack
from engine.words import _

HF_NAMES = replace(HF_INKLING, embed_norm="model.embed_tokens.embed_norm", relative=("", ""), recurrent=None)
"""For adapters: transformers saves the original names, too."""
_MADE = replace(MADE_NAMES, expert_scales="", dense_scale="", gate_up="", recurrent=None)
_DEFAULTS = {
    "vocab_size": 201_024, "hidden_size": 4608, "num_hidden_layers": 48, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 1 << 20,
    "moe_intermediate_size": 2304, "n_routed_experts": 384, "swa_num_attention_heads": 48,
    "log_scaling_n_floor": 128_000, "unpadded_vocab_size": 200_058,
}  # fmt: skip
_LOOP_DEFAULTS = {
    **_DEFAULTS, "hidden_size": 2304, "num_hidden_layers": 24, "num_attention_heads": 24,
    "swa_num_attention_heads": 24, "log_scaling_n_floor": 8192, "moe_intermediate_size": 1152,
    "n_routed_experts": 128,
}  # fmt: skip
_LOOP_NAMES = {
    "loop_layer_index_start": "core_start", "loop_layer_index_end": "core_end",
    "loop_num_passes": "num_passes", "loop_gate_rank": "gate_rank",
}  # fmt: skip
"""Under `loop_config`, as the authors have them."""
_MOST, _MOST_HEADS, _MOST_TAPS, _MOST_PASSES = 1 << 14, 1 << 14, 64, 64


def from_hf(keys: Keys) -> ModelConfig:
    """`Inkling2ForCausalLM`, and the text model of `Inkling2ForConditionalGeneration`."""
    keys = keys.inner("text_config").over(_DEFAULTS)
    return _read(keys, {})


def from_hf_looped(keys: Keys) -> ModelConfig:
    """`Inkling2LoopForCausalLM`, and the text model of `Inkling2LoopForConditionalGeneration`."""
    keys = keys.inner("text_config")
    own = keys.table("loop_config")
    for name, there in _LOOP_NAMES.items() if own is not None else ():
        if own is not None and own.raw(there) is not None:
            keys = keys.replaced(name, own.raw(there))
    keys = keys.over(_LOOP_DEFAULTS)
    layers, block = keys.integer("num_hidden_layers", 1, MAX_LAYERS), _block(keys)
    first = keys.integer("loop_layer_index_start", 1, layers, 6)
    last = keys.integer("loop_layer_index_end", first, layers, 18)
    if first % block or last % block:
        raise BadCheckpoint(
            _(
                "config.json: the layers from {first} to {last} run several times; multiples of {block} were "
                "expected. Download it again.",
                first=first,
                last=last,
                block=block,
            )
        )
    passes = keys.integer("loop_num_passes", 1, _MOST_PASSES, 3) if last > first else 1
    loop = {"first": first, "last": last, "passes": passes}
    return _read(keys, {**loop, "gate_rank": keys.integer("loop_gate_rank", 1, 1 << 16, 64)})


def _block(keys: Keys) -> int:
    return keys.integer("n_layers_per_attn_res_block", 1, MAX_LAYERS, 6)


def _read(keys: Keys, loop: dict[str, int]) -> ModelConfig:
    keys = keys.renamed(
        conv_kernel_size="sconv_kernel_size", max_position_embeddings="model_max_length",
        route_scale="routed_scaling_factor", n_routed_experts="num_local_experts",
    )  # fmt: skip
    keys = keys.replaced("intermediate_size", keys.integer("moe_intermediate_size", 1, 1 << 22))
    shape: dict[str, Any] = hf_shape(keys) | {"tied": False}
    layers = shape["layers"]
    sliding = sliding_layers(keys, layers)
    order = _order(layers, loop)
    heads, kv_heads = (
        keys.integer(f"swa_num_{kind}_heads", 1, _MOST_HEADS, usual)
        for kind, usual in (("attention", None), ("key_value", 8))
    )
    own = kv_heads, head_dimension(keys, "swa_head_dim", shape["width"], heads, 128)
    whole = shape["kv_heads"], shape["head_dim"]
    window = keys.integer("sliding_window_size", 1, MAX_CONTEXT, 1024)
    runs = [sliding[layer] for layer in order]
    sizes = tuple(own if slides else whole for slides in runs)
    full = frozenset(run for run, slides in enumerate(runs) if not slides)
    kind = _attention(keys, order, runs, sizes, full, window, loop)
    return ModelConfig(
        **shape | {"layers": len(order)}, rope=None, embed_norm=True, recurrent=kind, beside_attention=True,
        recurrent_layers=frozenset(range(len(order))), layer_heads=sizes,
        layer_queries=tuple(heads if slides else shape["heads"] for slides in runs),
        windows=tuple(window if slides else 0 for slides in runs), experts=_experts(keys, len(order)),
        logit_cap=keys.number("final_logit_softcapping", 1e-3, 1e6, 30.0),
        silent_tokens=unpadded(keys, shape["vocab_size"]),
    )  # fmt: skip


def _order(layers: int, loop: dict[str, int]) -> tuple[int, ...]:
    """The layers as they run."""
    if not loop:
        return tuple(range(layers))
    first, last = loop["first"], loop["last"]
    return (*range(first), *[*range(first, last)] * loop["passes"], *range(last, layers))


def _attention(
    keys: Keys, order: tuple[int, ...], sliding: list[bool], sizes: tuple[tuple[int, int], ...],
    full: frozenset[int], window: int, loop: dict[str, int],
) -> ClippedHeads:  # fmt: skip
    extent = keys.integer("rel_extent", 1, MAX_CONTEXT, 1024)
    gate, up = (
        keys.number(f"mlp_{half}_softcap", 1e-3, 1e6, usual) for half, usual in (("gate", 4.0), ("up", 25.0))
    )
    return ClippedHeads(
        keys.integer("d_rel", 1, 1 << 10, 16), tuple(window if slides else extent for slides in sliding),
        tuple(groups * dim for groups, dim in sizes), keys.integer("conv_kernel_size", 1, _MOST_TAPS, 4),
        full, keys.integer("log_scaling_n_floor", 1, MAX_CONTEXT),
        keys.number("log_scaling_alpha", 0.0, 1e3, 0.1), order=order, dynamic=full,
        clip=keys.number("qk_l2_clip_threshold", 1e-3, 1e6, 512**0.5),
        profile_clip=keys.number("rel_l2_clip_threshold", 1e-3, 1e6, 8.0), block=_block(keys),
        caps=(gate, up), **loop,
    )  # fmt: skip


def _experts(keys: Keys, runs: int) -> Experts:
    refuse_other(keys, "scoring_func", "sigmoid")
    count = keys.integer("n_routed_experts", 1, _MOST)
    return Experts(
        count, keys.integer("num_experts_per_tok", 1, count, 8),
        keys.integer("moe_intermediate_size", 1, 1 << 22), True, frozenset(range(runs)),
        scores="sigmoid", corrected=True, scale=keys.number("route_scale", 1e-6, 1e6, 8.0),
    )  # fmt: skip


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.residual.block_attention import block_layers

    return block_layers(builder)


_PREFIXES = ("", "-model.language_model.")
INKLING_2 = Architecture(
    (), ("Inkling2ForCausalLM", "Inkling2ForConditionalGeneration"), from_hf, None, HF_NAMES, None,
    prefixes=_PREFIXES, adapt=lambda names, tensors: _MADE, layers=_stack,
)  # fmt: skip
INKLING_2_MINI = Architecture(
    (), ("Inkling2LoopForCausalLM", "Inkling2LoopForConditionalGeneration"), from_hf_looped, None, HF_NAMES,
    None, prefixes=_PREFIXES, adapt=lambda names, tensors: _MADE, layers=_stack,
)  # fmt: skip
