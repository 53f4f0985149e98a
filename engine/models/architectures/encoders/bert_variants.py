"""Encoders that are BERT but for a part, under other names: DistilBERT (arXiv 1910.01108), without
token types; ELECTRA (arXiv 2003.10555), whose embeddings are narrower; MPNet (arXiv 2004.09297), whose
attention adds a number by the distance of two tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.encoders.bert import BERT_NAMES, from_hf
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_VOCAB
from engine.models.headers.keys import Keys
from engine.models.layers.positions.distances import BUCKETS
from engine.models.names import TensorNames
from engine.tensors import RawTensor

_MP_NET_OFFSET = 2
"""Rows of MPNet's table of positions that are not used; its code does not read the number of padding."""
_DISTIL_NAMES = replace(
    BERT_NAMES, layer="transformer.layer.{}.", query="attention.q_lin", key="attention.k_lin",
    value="attention.v_lin", output="attention.out_lin", attention_post="sa_layer_norm", up="ffn.lin1",
    down="ffn.lin2", mlp_post="output_layer_norm", token_types="",
)  # fmt: skip
_MP_NET_NAMES = replace(
    BERT_NAMES, query="attention.attn.q", key="attention.attn.k", value="attention.attn.v",
    output="attention.attn.o", attention_post="attention.LayerNorm", token_types="",
    distances="encoder.relative_attention_bias",
)  # fmt: skip
_DISTIL_KEYS = {
    "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim", "hidden_act": "activation",
}  # fmt: skip

_ELECTRA = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}


def from_hf_distil(keys: Keys) -> ModelConfig:
    """`DistilBertModel` and `DistilBertForMaskedLM`; GGUF files are of BERT's architecture."""
    keys = keys.renamed(**_DISTIL_KEYS).replaced("layer_norm_eps", 1e-12)
    return from_hf(keys.replaced("type_vocab_size", 0))


def from_hf_electra(keys: Keys) -> ModelConfig:
    """`ElectraModel`, its discriminator, `ElectraForPreTraining`, and the decoder `ElectraForCausalLM`."""
    config = from_hf(keys.over(_ELECTRA), head="gelu")
    narrow = keys.integer("embedding_size", 1, 1 << 20, 128)
    return replace(config, embed_width=narrow, narrow_positions=True) if narrow != config.width else config


def from_hf_mp_net(keys: Keys) -> ModelConfig:
    """`MPNetModel` and `MPNetForMaskedLM`."""
    config = from_hf(keys.replaced("type_vocab_size", 0), offset=_MP_NET_OFFSET)
    rows = keys.integer("relative_attention_num_buckets", BUCKETS, MAX_VOCAB, BUCKETS)
    return replace(config, distance_buckets=rows)


def _adapt_electra(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The head of a decoder has no prefix."""
    at = "generator_predictions."
    return replace(names, head="generator_lm_head", project_out=at + "dense", head_norm=at + "LayerNorm")


DISTIL_BERT = Architecture(
    (), ("DistilBertModel", "DistilBertForMaskedLM"), from_hf_distil, None, _DISTIL_NAMES, None,
    prefixes=("", "distilbert."),
)  # fmt: skip
ELECTRA = Architecture(
    (), ("ElectraModel", "ElectraForPreTraining", "ElectraForMaskedLM", "ElectraForCausalLM"),
    from_hf_electra, None, replace(BERT_NAMES, project_in="embeddings_project"), None,
    prefixes=("", "electra."), adapt=_adapt_electra,
)  # fmt: skip
MP_NET = Architecture(
    (), ("MPNetModel", "MPNetForMaskedLM"), from_hf_mp_net, None, _MP_NET_NAMES, None,
    prefixes=("", "mpnet."),
)  # fmt: skip
