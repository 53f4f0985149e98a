"""PLaMo 2, from GGUF files: layers of Mamba, whose heads decay alone, between those with attention; four
norms, and a norm of every head's queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.plamo3 import GGUF_NAMES as GGUF_3
from engine.models.architectures.plamo3 import HF_NAMES as HF_3
from engine.models.config import ModelConfig
from engine.models.config.recurrent import SelectiveScan
from engine.models.headers.decoder import gguf_decoder, recurrent_by_heads
from engine.models.headers.keys import Keys
from engine.models.names import SCAN_GGUF, RecurrentNames
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(HF_3, recurrent=RecurrentNames("mixer.in_proj", "mixer.out_proj", "mixer.conv1d"))
"""For adapters, which are made for folders."""
GGUF_NAMES = replace(GGUF_3, recurrent=SCAN_GGUF)
_MOST, _CHANNELS, _LEAST_RANK = 1 << 14, 1 << 20, 64


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
    scan = SelectiveScan(
        channels, keys.integer("ssm.state_size", 1, _MOST), keys.integer("ssm.conv_kernel", 2, 64),
        max(_LEAST_RANK, shape["width"] // 16), "weights", shape["norm_eps"], heads,
    )  # fmt: skip
    return ModelConfig(**shape, qk_norm="each", placement="both", recurrent=scan, recurrent_layers=recurrent)


PLAMO_2 = Architecture(("plamo2",), (), None, from_gguf, HF_NAMES, GGUF_NAMES)
