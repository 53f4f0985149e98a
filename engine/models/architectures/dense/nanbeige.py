"""Nanbeige 4.2 and Ouro (arXiv 2510.25741): a decoder like Llama's whose layers all run several times, with
the last norm between two runs. Ouro also has norms after both halves of a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.hyper import Loops
from engine.models.headers.decoder import gguf_decoder, hf_decoder, hf_sliding
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

_MOST_RUNS = 64
_UNUSED = (
    "qk_layernorm", "enable_double_loop_split", "enable_hyper_connection", "enable_mhc",
    "enable_depth_attention",
)  # fmt: skip
OURO_NAMES = replace(
    HF, attention_post="input_layernorm_2", mlp_norm="post_attention_layernorm",
    mlp_post="post_attention_layernorm_2",
)  # fmt: skip


def _loops(times: int, normed: bool) -> Loops | None:
    return Loops(times, normed) if times > 1 else None


def from_hf(keys: Keys) -> ModelConfig:
    """`NanbeigeForCausalLM`; options that no published model has are refused."""
    for name in _UNUSED:
        refuse_other(keys, name, False)
    refuse_other(keys, "emb_neighbor_num", None)
    if weights := keys.numbers("loop_loss_weights", 0.0, 1e6):
        keys = keys.replaced("num_loops", len(weights) + 1)
    times = keys.integer("num_loops", 1, _MOST_RUNS, 1)
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    shape = hf_decoder(keys, bias=bias, mlp_bias=mlp_bias)
    return ModelConfig(**shape, cycles=_loops(times, not keys.flag("skip_loop_final_norm", False)))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`nanbeige`."""
    shape = gguf_decoder(keys, tensors, "nanbeige", interleaved=True)
    times = keys.integer("num_loops", 1, _MOST_RUNS, 1)
    return ModelConfig(**shape, cycles=_loops(times, not keys.flag("skip_loop_final_norm", False)))


def ouro_from_hf(keys: Keys) -> ModelConfig:
    """`OuroForCausalLM`. Its gate that ends the runs of a token early does nothing at the published threshold
    of 1; a lower one is refused.
    """
    refuse_other(keys, "early_exit_threshold", 1.0)
    refuse_other(keys, "early_exit_step", None)
    shape = hf_decoder(keys, bias=False)
    windows = hf_sliding(keys, shape["layers"], 0, 0) if keys.flag("use_sliding_window", False) else ()
    times = keys.integer("total_ut_steps", 1, _MOST_RUNS, 4)
    return ModelConfig(**shape, windows=windows, placement="both", cycles=_loops(times, True))


NANBEIGE = Architecture(
    ("nanbeige",), ("NanbeigeForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
OURO = Architecture((), ("OuroForCausalLM",), ouro_from_hf, None, OURO_NAMES, None)
