"""Kimi K3: Kimi Linear whose layers attend over sums of earlier ones, with experts on a projection, gates of
latent attention and soft caps of gates. Folders are left out, as is vision.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.recurrent.kimi_linear import GGUF_NAMES as KIMI_GGUF
from engine.models.architectures.recurrent.kimi_linear import adapted as kimi_adapted
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.recurrent import SeparateDelta
from engine.models.headers.decoder import MAX_LAYERS, gguf_decoder, recurrent_by_heads
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent
from engine.models.layers.whole import Stack
from engine.models.names import NarrowNames, TensorNames
from engine.tensors import RawTensor
from engine.words import _

assert KIMI_GGUF.recurrent is not None
GGUF_NAMES = replace(
    KIMI_GGUF, output_gate="attn_gate",
    narrow=NarrowNames("ffn_routed_down", "ffn_routed_up", last="ffn_routed_norm"),
    recurrent=replace(KIMI_GGUF.recurrent, gate="ssm_g", gate_up="", rate_dims=1),
)  # fmt: skip
_MOST, _WIDEST = 1 << 14, 1 << 20


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`kimi-k3`, with a list of key/value heads, 0 where there is delta attention."""
    keys, recurrent = recurrent_by_heads(keys)
    if not recurrent:
        raise BadCheckpoint(
            _("The GGUF metadata does not say which layers have linear attention; the file is damaged.")
        )
    dim, taps = keys.integer("kda.head_dim", 1, _MOST), keys.integer("ssm.conv_kernel", 1, 64)
    bound = -keys.number("kda.gate_lower_bound", -1e6, 0.0, 0.0)
    keys, kind = gguf_latent(keys)
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "kimi-k3", handled=GGUF_EXPERT_KEYS)
    layers, heads, eps = shape["layers"], shape["heads"], shape["norm_eps"]
    cap = max(0.0, keys.number("activation.situ_linear_beta", -1e6, 1e6))
    caps = keys.number("activation.situ_beta", 1e-3, 1e6), cap
    delta = SeparateDelta(heads, heads, dim, dim, taps, eps, "sigmoid", decays="key", rank=dim, bound=bound)
    narrow = keys.integer("expert_latent_length", 0, _WIDEST, 0)
    return ModelConfig(
        **shape | cache_shape(kind) | {"rope": None, "latent": replace(kind, norm_eps=eps)},
        attention_scale=kind.query_dim**-0.5, activation="situ", mlp_limits=(caps,) * layers,
        expert_limits=(caps,) * layers, recurrent=delta, recurrent_layers=recurrent,
        output_gate="row" if any(name.endswith(".attn_gate.weight") for name in tensors) else "",
        experts=gguf_experts(keys, shape, normalise=False, scores="sigmoid", narrow=narrow),
        residual_block=keys.integer("attn_res.block_size", 1, MAX_LAYERS),
    )  # fmt: skip


def _adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The names and shapes that a file has."""
    names, own = kimi_adapted(names, tensors), names.narrow
    if own is not None and not any(name.endswith(f".{own.last}.weight") for name in tensors):
        names = replace(names, narrow=replace(own, last=""))
    return names


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.residual.attended_sums import attended_sums

    return attended_sums(builder)


KIMI_K3 = Architecture(
    ("kimi-k3",), (), None, from_gguf, GGUF_NAMES, GGUF_NAMES, adapt=_adapted, layers=_stack
)
