"""BERT (arXiv 1810.04805) and the encoders with its names: RoBERTa, XLM-RoBERTa, and Jina BERT v2 (arXiv
2310.19923), which has ALiBi to both sides instead of positions, and gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.layers.alibi import alibi_slopes
from engine.models.names import GGUF, TensorNames
from engine.tensors import RawTensor
from engine.words import _

ENCODER: Mapping[str, Any] = {"bidirectional": True, "headless": True, "norm": "layer", "mlp_bias": None}
_BERT: Mapping[str, Any] = {
    **ENCODER, "placement": "after_sum", "norm_bias": True, "embed_norm": True, "final_norm": False,
    "activation": "gelu", "rope": None,
}  # fmt: skip
AFTER_SUM = replace(
    GGUF, attention_post="attn_output_norm", mlp_post="layer_output_norm", token_types="token_types",
    attention_again="attn_norm_2",
)  # fmt: skip
"""The names in the GGUF files of encoders whose norms stand behind the sums."""
_NAMES = TensorNames(
    embed="embeddings.word_embeddings", norm="", head="cls.predictions.decoder", layer="encoder.layer.{}.",
    attention_norm="", query="attention.self.query", key="attention.self.key", value="attention.self.value",
    output="attention.output.dense", mlp_norm="", gate="", up="intermediate.dense", down="output.dense",
    attention_post="attention.output.LayerNorm", mlp_post="output.LayerNorm",
    positions="embeddings.position_embeddings", embed_norm="embeddings.LayerNorm",
    token_types="embeddings.token_type_embeddings",
)  # fmt: skip
_JINA = replace(
    _NAMES, gate_up="mlp.gated_layers", down="mlp.wo", mlp_post="mlp.layernorm", up="",
    query_norm="attention.self.layer_norm_q", key_norm="attention.self.layer_norm_k",
)  # fmt: skip
_JINA_LATER = replace(
    _JINA, gate_up="mlp.up_gated_layer", gate_last=True, down="mlp.down_layer",
    attention_again="layer_norm_1", mlp_post="layer_norm_2",
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`BertModel` and `BertForMaskedLM`."""
    return _from_hf(keys, offset=0)


def from_hf_roberta(keys: Keys) -> ModelConfig:
    """`RobertaModel` and `XLMRobertaModel`: the table of positions begins with rows that are not used."""
    if keys.raw("lora_adaptations"):
        raise UnsupportedModel(
            _(
                "This model has an adapter for each task inside its weights, which is not supported. Choose "
                "another model."
            )
        )
    return _from_hf(keys, offset=keys.integer("pad_token_id", 0, 1 << 24, 1) + 1)


def _from_hf(keys: Keys, offset: int) -> ModelConfig:
    shape = _hf_shape(keys, "absolute") | {"activation": hf_activation(keys, default="gelu")}
    length = shape["context_length"] - offset
    keys.over({"positions": length}).integer("positions", 1, 1 << 24)
    return ModelConfig(
        **shape | {"context_length": length}, learned_positions=length, learned_offset=offset, gated=False
    )


def _hf_shape(keys: Keys, positions: str) -> dict[str, Any]:
    found = keys.text("position_embedding_type", positions)
    if found != positions or keys.flag("is_decoder", False):
        raise UnsupportedModel(
            _(
                "The encoder has positions of the kind {found!r} or is used as a decoder; only encoders with "
                "the kind {positions!r} are supported. Choose another model.",
                found=found,
                positions=positions,
            )
        )
    shape = hf_shape(
        keys, "layer_norm_eps", layer_norm_eps=1e-12, max_position_embeddings=512, tie_word_embeddings=True
    )
    types = keys.integer("type_vocab_size", 0, 1 << 16, 2)
    return {**shape, **_BERT, "attention_bias": True, "output_bias": True, "token_types": types}


def from_hf_jina(keys: Keys) -> ModelConfig:
    """`JinaBertModel` and `JinaBertForMaskedLM`; norms of queries and keys are those of the later files."""
    kind = keys.text("feed_forward_type", "original")
    if kind not in ("geglu", "reglu"):
        raise UnsupportedModel(
            _(
                "The model's feed-forward part is of the kind {kind!r}; only geglu and reglu are supported. "
                "Choose another model.",
                kind=kind,
            )
        )
    shape = _hf_shape(keys, "alibi") | {"activation": "gelu" if kind == "geglu" else "relu"}
    later = "qk-post-norm" in str((keys.raw("auto_map") or {}).get("AutoModel", ""))
    norms: dict[str, Any] = {"qk_norm": "row", "qk_layer_norm": True, "normed_twice": True} if later else {}
    return ModelConfig(**shape, **norms, slopes=alibi_slopes(shape["heads"]))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`bert`, also in the files of RoBERTa and XLM-RoBERTa."""
    shape = _gguf_shape(keys, tensors, "bert")
    return ModelConfig(**shape, learned_positions=shape["context_length"], gated=False)


def _gguf_shape(keys: Keys, tensors: Mapping[str, RawTensor], name: str, *handled: str) -> dict[str, Any]:
    shape = gguf_shape(keys, tensors, name, layer_norm=True, handled=handled)
    return {**shape, **_BERT, "token_types": token_types(tensors)}


def token_types(tensors: Mapping[str, RawTensor]) -> int:
    """The rows of a GGUF file's table of token types; 0 if there is none."""
    table = tensors.get("token_types.weight")
    return table.shape[0] if table is not None else 0


def from_gguf_jina(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`jina-bert-v2`."""
    shape = _gguf_shape(keys, tensors, "jina-bert-v2", "attention.max_alibi_bias")
    most = keys.number("attention.max_alibi_bias", 0.0, 1e3, 8.0) or 8.0
    later = "blk.0.attn_q_norm.weight" in tensors
    return ModelConfig(
        **shape, slopes=alibi_slopes(shape["heads"], most), qk_norm="row" if later else "none",
        qk_layer_norm=later, normed_twice="blk.0.attn_norm_2.weight" in tensors,
    )  # fmt: skip


def _adapt_jina(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """GGUF files have the gate apart or together with what it multiplies."""
    first = names.layer.format(0)
    if names.query == GGUF.query:
        together = "blk.0.ffn_gate.weight" not in tensors
        return replace(names, gate_up="ffn_up") if together else names
    later = first + _JINA_LATER.gate_up + ".weight" in tensors
    if not later:
        return names
    prefix = names.embed.removesuffix(_JINA.embed)
    return _JINA_LATER.under(prefix)


_PREFIXES = ("", "bert.", "roberta.")
BERT = Architecture(
    ("bert",), ("BertModel", "BertForMaskedLM", "BertForPreTraining"), from_hf, from_gguf, _NAMES, AFTER_SUM,
    prefixes=_PREFIXES,
)  # fmt: skip
ROBERTA = Architecture(
    (), ("RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel", "XLMRobertaForMaskedLM", "CamembertModel"),
    from_hf_roberta, None, _NAMES, None, prefixes=_PREFIXES,
)  # fmt: skip
JINA_BERT_2 = Architecture(
    ("jina-bert-v2",), ("JinaBertModel", "JinaBertForMaskedLM"), from_hf_jina, from_gguf_jina, _JINA,
    AFTER_SUM, prefixes=_PREFIXES, adapt=_adapt_jina,
)  # fmt: skip
