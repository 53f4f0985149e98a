"""Dory: nGPT's layers on the unit sphere (arXiv 2410.01131), of which the middle ones run several times, with
gated attention, and windows in three of four layers.

A layer is here one part, attention or feed-forward, as config.json counts them. What transformers saves has
both parts under one number, the original folders have a number for each. With several runs, a cache of the
last run's keys and values alone ("last_loop") is refused: the earlier runs read in it what was there before
the pass, so that results depend on how a text is cut into passes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.hyper import Loops, Sphere, SphereNames
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, hf_decoder, hf_layer_types
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.whole import Stack
from engine.models.names import HF, TensorNames
from engine.tensors import RawTensor
from engine.words import _

_PAIRED = replace(HF, norm="", output_gate="self_attn.gate_proj")
HF_NAMES = replace(_PAIRED, odd=_PAIRED)
_SINGLE: dict[str, Any] = {
    "query": "mixer.q_proj", "key": "mixer.k_proj", "value": "mixer.v_proj", "output": "mixer.o_proj",
    "output_gate": "mixer.g_proj", "gate": "mixer.gate_proj", "up": "mixer.up_proj",
    "down": "mixer.down_proj", "odd": None,
    "sphere": SphereNames(
        "mixer.sqk", "mixer.s_gate", "mixer.suv_gate", "mixer.suv_up", "attn_alpha", "mlp_alpha"
    ),
}  # fmt: skip
_FULL, _SLIDING, _MLP = "full_attention", "sliding_attention", "mlp"
_STEP, _MOST_RUNS = 4, 64
_DEFAULTS = {
    "vocab_size": 131_072, "hidden_size": 2560, "intermediate_size": 7168, "num_attention_heads": 16,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
}  # fmt: skip
_BASES = {_SLIDING: 10_000.0, _FULL: 10_000_000.0}


def from_hf(keys: Keys) -> ModelConfig:
    """`DoryForCausalLM`."""
    keys = keys.without("rms_norm_eps").over(_DEFAULTS)
    if keys.raw("rope_parameters") is None:
        ropes = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in _BASES.items()}
        keys = keys.replaced("rope_parameters", ropes)
    kinds, loops = _layers(keys)
    if loops.times > 1:
        refuse_other(keys, "recurrent_kv_cache_mode", "per_loop")
    shape = hf_decoder(
        keys.replaced("num_hidden_layers", len(kinds)), bias=keys.flag("attention_bias", False),
        mlp_bias=keys.flag("mlp_bias", False), head_dim=256, max_position_embeddings=8192,
    )  # fmt: skip
    unit = keys.number("initializer_range", 1e-9, 1e3, 0.0177)
    rate = keys.number("ngpt_alpha_init", 0.0, 1e3, 0.05)
    window = keys.integer("sliding_window", 1, MAX_CONTEXT, 1024)
    tables = {
        kind: rope_from_hf(keys, shape["head_dim"], base=base, layer_type=kind)
        for kind, base in _BASES.items() if kind in kinds
    }  # fmt: skip
    return ModelConfig(
        **shape | {"rope": tables.get(_FULL, tables.get(_SLIDING))},
        rope_local=tables.get(_SLIDING), placement="both", output_gate="row", norm_weights=False,
        windows=tuple(window if kind == _SLIDING else 0 for kind in kinds) if _SLIDING in kinds else (),
        one_part=True, mlp_layers=frozenset(at for at, kind in enumerate(kinds) if kind == _MLP),
        cycles=loops, sphere=Sphere(unit, rate),
    )  # fmt: skip


def _layers(keys: Keys) -> tuple[tuple[str, ...], Loops]:
    """The kind of each part, in turns attention and "mlp", and how often it runs. Numbers in config.json are
    those of parts where its list of kinds has "mlp", else those of pairs.
    """
    listed = keys.raw("layer_types")
    each = 1 if isinstance(listed, list) and _MLP in listed else 2
    count = each * keys.integer("num_hidden_layers", 1, MAX_LAYERS // each, 36)
    found = hf_layer_types(keys, count // each, (_FULL, _SLIDING, _MLP)) or tuple(
        _SLIDING if (at + 1) % _STEP else _FULL for at in range(count // each)
    )
    kinds = found if each == 1 else tuple(part for kind in found for part in (kind, _MLP))
    before, after = (each * keys.integer(f"n_{name}_layers", 0, count, 8) for name in ("input", "output"))
    middle = each * keys.integer("n_recurrent_layers", 0, count, (count - before - after) // each)
    turns = all((kind == _MLP) == bool(at % 2) for at, kind in enumerate(kinds))
    if not turns or any(part % 2 for part in (before, middle, after)) or before + middle + after != count:
        raise BadCheckpoint(
            _(
                "config.json: of {count} layers, {before} stand before the loop, {middle} in it and {after} "
                "after it; pairs of an attention and a feed-forward layer that add up were expected. The "
                "file is damaged.",
                count=count, before=before, middle=middle, after=after,
            )
        )  # fmt: skip
    return kinds, Loops(keys.integer("n_recurrent_loops", 1, _MOST_RUNS, 2), True, before, after)


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Those that the file has: transformers' own, those that it saves, or the authors'."""
    if "backbone.embeddings.weight" in tensors:
        names = replace(names, embed="backbone.embeddings", layer="backbone.layers.{}.")
    if any(".mixer." in name for name in tensors):
        return replace(names, **_SINGLE)
    if any(".self_attn.g_proj." in name for name in tensors):
        return replace(names, output_gate="self_attn.g_proj")
    return names


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.residual.unit_sphere import sphere_blocks

    return sphere_blocks(builder)


DORY = Architecture((), ("DoryForCausalLM",), from_hf, None, HF_NAMES, None, adapt=adapted, layers=_stack)
