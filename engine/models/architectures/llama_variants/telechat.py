"""TeleChat and TeleChat 2: Llama with one matrix for the key and the value of each head in turn, and biases
of the last matrices.

Source: `modeling_telechat2.py` of TeleChat 2's folders.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import HF

_AT = "self_attention."
HF_NAMES = replace(
    HF, embed="transformer.word_embeddings", norm="transformer.ln_f", layer="transformer.h.{}.",
    query=_AT + "query", key_value=_AT + "key_value", output=_AT + "dense", grouped=True,
)  # fmt: skip
_DEFAULTS = {
    "vocab_size": 160_256, "hidden_size": 4096, "num_hidden_layers": 30, "num_attention_heads": 32,
    "intermediate_size": 12_288, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
_ONLY = {"embed_layernorm": False, "logn": False, "apply_residual_connection_post_layernorm": False}
_BASE, _TRAINED = 10000.0, 8192


def from_hf(keys: Keys) -> ModelConfig:
    """`TeleChat2ForCausalLM`, before it `TelechatForCausalLM`."""
    for name, value in _ONLY.items():
        refuse_other(keys, name, value)
    keys = keys.renamed(
        num_hidden_layers="n_layer", num_attention_heads="n_head", intermediate_size="ffn_hidden_size",
        rms_norm_eps="layer_norm_epsilon",
    ).over(_DEFAULTS)  # fmt: skip
    trained = keys.integer("training_seqlen", 1, MAX_CONTEXT, _TRAINED)
    base = _base(keys, trained)
    shape = hf_decoder(keys.replaced("rope_theta", base), bias=False, max_position_embeddings=trained)
    return ModelConfig(**shape | {"output_bias": True, "mlp_bias": None})


def _base(keys: Keys, trained: int) -> float:
    """That of rope for texts of up to the trained length, beyond which it would change with the text's."""
    own = keys.number("rope_theta", 1.0, 1e9, _BASE)
    shorter = keys.integer("base_seqlen", 1, MAX_CONTEXT, trained)
    factor = max(1, 2 ** math.ceil(math.log2(trained / shorter) + 1) - 1)
    heads = keys.integer("num_attention_heads", 1, 1 << 14)
    dim = keys.integer("hidden_size", 1, 1 << 20) // heads
    return float(own * factor ** (dim / max(1, dim - 2)))


TELE_CHAT = Architecture(
    (), ("TeleChat2ForCausalLM", "TelechatForCausalLM", "TeleChatForCausalLM"), from_hf, None, HF_NAMES, None
)
