"""IQuest-Coder Loop: a decoder like Llama's whose layers all run twice. The second run looks at the keys of
the first, and at its own in a window.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.hyper import Loops
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.layers.whole import Stack
from engine.models.names import HF

HF_NAMES = replace(HF, loop_gate="model.gate_projections.{}")
_RUNS = 2


def from_hf(keys: Keys) -> ModelConfig:
    """`IQuestLoopCoderForCausalLM`; other numbers of runs than two are refused."""
    refuse_other(keys, "loop_num", _RUNS)
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False), base=500_000.0,
        max_position_embeddings=131_072,
    )  # fmt: skip
    window = keys.integer("loop_window_size", 1, MAX_CONTEXT, 64)
    return ModelConfig(**shape, cycles=Loops(_RUNS, False, window=window))


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.attention.second_run import twice

    return twice(builder)


IQUEST_LOOP = Architecture(
    (), ("IQuestLoopCoderForCausalLM",), from_hf, None, HF_NAMES, None, layers=_stack
)  # fmt: skip
