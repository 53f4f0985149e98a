"""PLaMo 2: layers of Mamba, whose heads decay alone, between those with attention, which has a window; four
norms, and a norm of every head's queries and keys.

Sources: the authors' `modeling_plamo.py` and its port to MLX, and llama.cpp's converter, which leaves out the
windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.dense.plamo3 import GGUF_NAMES as GGUF_3
from engine.models.architectures.dense.plamo3 import HF_NAMES as HF_3
from engine.models.architectures.dense.plamo3 import NORM_OFFSET, layers_between_norms
from engine.models.config import ModelConfig
from engine.models.config.recurrent import SelectiveScan
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, gguf_decoder, hf_shape, recurrent_by_heads
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.headers.rope import rope_from_hf
from engine.models.names import SCAN_GGUF, RecurrentNames
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF_3, query_norm="mixer.q_weight", key_norm="mixer.k_weight",
    recurrent=RecurrentNames(
        "mixer.in_proj", "mixer.out_proj", "mixer.conv1d", rate="mixer.A_log", shift="mixer.dt_bias",
        skip="mixer.D", mixed="mixer.bcdt_proj", step="mixer.dt_proj", step_norm="mixer.dt_norm_weight",
        key_norm="mixer.B_norm_weight", query_norm="mixer.C_norm_weight",
    ),
)  # fmt: skip
GGUF_NAMES = replace(GGUF_3, recurrent=SCAN_GGUF)
_MOST, _CHANNELS, _LEAST_RANK, _MOST_TAPS = 1 << 14, 1 << 20, 64, 64
_DEFAULTS = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "intermediate_size": 13_312, "vocab_size": 32_000, "max_position_embeddings": 2048,
}  # fmt: skip
_QK_EPS = 1e-6


def from_hf(keys: Keys) -> ModelConfig:
    """`Plamo2ForCausalLM`."""
    keys = keys.renamed(head_dim="hidden_size_per_head").over(_DEFAULTS)
    refuse_other(keys, "linear_type", "normal")
    shape: dict[str, Any] = hf_shape(keys, tie_word_embeddings=True)
    heads, layers = keys.integer("mamba_num_heads", 1, _MOST, 64), shape["layers"]
    scan = _scan(
        shape, heads, heads * shape["head_dim"], keys.integer("mamba_d_state", 1, _MOST, 64),
        keys.integer("mamba_d_conv", 1, _MOST_TAPS, 4),
    )  # fmt: skip
    recurrent = _recurrent(keys, layers)
    # A token reads this many before it.
    window, whole = (
        keys.integer("attention_window_size", 1, MAX_CONTEXT, 2048) + 1,
        keys.integers("full_attention_idx", 0, layers - 1),
    )
    return ModelConfig(
        **shape, qk_norm="each", qk_norm_eps=_QK_EPS, placement="both", norm_offset=NORM_OFFSET,
        attention_bias=False, output_bias=False, mlp_bias=False, rope=rope_from_hf(keys, shape["head_dim"]),
        windows=tuple(0 if layer in recurrent or layer in whole else window for layer in range(layers)),
        recurrent=scan if recurrent else None, recurrent_layers=recurrent,
    )  # fmt: skip


def _recurrent(keys: Keys, layers: int) -> frozenset[int]:
    """The layers of Mamba: all except one in each step, or where a step is not half full except the last."""
    step = keys.integer("mamba_step", 2, 2 * MAX_LAYERS, 2)
    if not keys.flag("mamba_enabled", True):
        return frozenset()
    if layers <= step // 2:
        return frozenset(range(layers - 1))
    return frozenset(layer for layer in range(layers) if layer % step != step // 2)


def _scan(shape: dict[str, Any], heads: int, channels: int, state: int, taps: int) -> SelectiveScan:
    rank = max(_LEAST_RANK, shape["width"] // 16)
    return SelectiveScan(channels, state, taps, rank, "weights", shape["norm_eps"], heads)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`plamo2`, with lists of heads, 0 where a layer has none."""
    keys, recurrent = recurrent_by_heads(keys)
    keys, _unused = recurrent_by_heads(keys, "attention.head_count")
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "plamo2")
    heads, channels = (
        keys.integer("ssm.time_step_rank", 1, _MOST), keys.integer("ssm.inner_size", 1, _CHANNELS)
    )  # fmt: skip
    if channels % heads:
        raise BadCheckpoint(
            _(
                "The model's Mamba layers have {channels} channels and {heads} heads; the first must be a "
                "multiple.",
                channels=channels,
                heads=heads,
            )
        )
    scan = _scan(
        shape, heads, channels, keys.integer("ssm.state_size", 1, _MOST),
        keys.integer("ssm.conv_kernel", 1, _MOST_TAPS),
    )  # fmt: skip
    return ModelConfig(**shape, qk_norm="each", placement="both", recurrent=scan, recurrent_layers=recurrent)


PLAMO_2 = Architecture(
    ("plamo2",), ("Plamo2ForCausalLM", "PLaMo2ForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    layers=layers_between_norms,
)  # fmt: skip
