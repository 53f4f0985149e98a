"""xLSTM (arXiv 2405.04517, and its 7B model, arXiv 2503.13427): LSTMs with matrices as memory, then gated
feed-forward parts.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.recurrent import MatrixLstm
from engine.models.headers.decoder import hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import HF, RecurrentNames

_LAYER = "mlstm_layer"
NAMES = replace(
    HF, embed="backbone.embeddings", norm="backbone.out_norm", layer="backbone.blocks.{}.",
    attention_norm="norm_mlstm", mlp_norm="norm_ffn", gate="ffn.proj_up_gate", up="ffn.proj_up",
    down="ffn.proj_down",
    recurrent=RecurrentNames(
        "", f"{_LAYER}.out_proj", "", query=f"{_LAYER}.q", key=f"{_LAYER}.k", value=f"{_LAYER}.v",
        gate=f"{_LAYER}.ogate_preact", beta=f"{_LAYER}.igate_preact", decay=f"{_LAYER}.fgate_preact",
        norm=f"{_LAYER}.multihead_norm",
    ),
)  # fmt: skip
_CONTEXT = 8192
"""Of its training; config.json names none."""


def from_hf(keys: Keys) -> ModelConfig:
    """`xLSTMForCausalLM`."""
    keys = keys.over({"vocab_size": 50304}).renamed(
        hidden_size="embedding_dim", num_hidden_layers="num_blocks"
    )
    keys = keys.over({"hidden_size": 4096, "num_hidden_layers": 32})
    refuse_other(keys, "use_bias", False)
    refuse_other(keys, "weight_mode", "single")
    width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_heads", 1, 1 << 14, 8)
    key_dim, value_dim = (
        int(width * keys.number(f"{name}_dim_factor", 1e-3, 64.0, usual)) // heads
        for name, usual in (("qk", 0.5), ("v", 1.0))
    )
    multiple = keys.integer("ffn_round_up_to_multiple_of", 1, 1 << 16, 64)
    inner = int(width * keys.number("ffn_proj_factor", 1e-3, 64.0, 2.667) + multiple - 1)
    shape = hf_shape(
        keys.over({"max_position_embeddings": _CONTEXT, "norm_eps": 1e-6})
        .replaced("intermediate_size", inner // multiple * multiple)
        .replaced("num_attention_heads", heads).replaced("head_dim", 2).without("num_key_value_heads")
        .replaced("tie_word_embeddings", False),  # never, whatever a folder says
        "norm_eps",
    )  # fmt: skip
    kind = MatrixLstm(
        heads, key_dim, value_dim, shape["norm_eps"], keys.number("gate_soft_cap", 0.1, 20.0, 15.0)
    )
    return ModelConfig(
        **shape, rope=None, mlp_bias=False, recurrent=kind,
        recurrent_layers=frozenset(range(shape["layers"])),
        logit_cap=keys.number("output_logit_soft_cap", 0.1, 1e9, 30.0),
    )  # fmt: skip


X_LSTM = Architecture((), ("xLSTMForCausalLM",), from_hf, None, NAMES, None)
