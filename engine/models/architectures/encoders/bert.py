"""BERT (arXiv 1810.04805) and the encoders with its names: RoBERTa, XLM-RoBERTa, Jina BERT v2 (arXiv
2310.19923), which has ALiBi to both sides instead of positions, and gates, and Jina v3 (arXiv 2409.10173),
which has rope. BERT and RoBERTa that were trained as decoders write text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_shape, hf_activation, hf_architecture, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_gguf, rope_from_hf
from engine.models.layers.positions.alibi import alibi_slopes
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
"""The names in the GGUF files of encoders whose norms come after the sums."""
BERT_NAMES = TensorNames(
    embed="embeddings.word_embeddings", norm="", head="cls.predictions.decoder", layer="encoder.layer.{}.",
    attention_norm="", query="attention.self.query", key="attention.self.key", value="attention.self.value",
    output="attention.output.dense", mlp_norm="", gate="", up="intermediate.dense", down="output.dense",
    attention_post="attention.output.LayerNorm", mlp_post="output.LayerNorm",
    positions="embeddings.position_embeddings", embed_norm="embeddings.LayerNorm",
    token_types="embeddings.token_type_embeddings",
)  # fmt: skip
_JINA = replace(
    BERT_NAMES, gate_up="mlp.gated_layers", down="mlp.wo", mlp_post="mlp.layernorm", up="",
    query_norm="attention.self.layer_norm_q", key_norm="attention.self.layer_norm_k",
)  # fmt: skip
_JINA_LATER = replace(
    _JINA, gate_up="mlp.up_gated_layer", gate_last=True, down="mlp.down_layer",
    attention_again="layer_norm_1", mlp_post="layer_norm_2",
)  # fmt: skip

_JINA_3 = replace(
    BERT_NAMES, layer="encoder.layers.{}.", query="", key="", value="", query_key_value="mixer.Wqkv",
    output="mixer.out_proj", up="mlp.fc1", down="mlp.fc2", attention_post="norm1", mlp_post="norm2",
    embed_norm="emb_ln", positions="",
)  # fmt: skip
_JINA_3_BASE = 20_000.0
_DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "vocab_size": 30522,
}  # fmt: skip


def from_hf(keys: Keys, offset: int = 0, head: str = "") -> ModelConfig:
    """`BertModel` and `BertForMaskedLM`, and `BertLMHeadModel`, which is a decoder if config.json says so.
    `offset` rows of the table of positions are not used; `head` is the activation before a decoder's head,
    "": that of the layers.
    """
    shape = _hf_shape(keys.over(_DEFAULTS), "absolute") | {"activation": hf_activation(keys, default="gelu")}
    if keys.flag("is_decoder", False):
        shape |= {
            "bidirectional": False, "headless": False, "head_bias": True, "head_transform_bias": True,
            "head_activation": head or shape["activation"],
        }  # fmt: skip
    length = shape["context_length"] - offset
    keys.over({"positions": length}).integer("positions", 1, 1 << 24)
    return ModelConfig(
        **shape | {"context_length": length}, learned_positions=length, learned_offset=offset, gated=False
    )


def from_hf_roberta(keys: Keys) -> ModelConfig:
    """`RobertaModel`, `RobertaForCausalLM` and others: the table of positions begins with rows that are not
    used. Jina v3's authors call their class the same.
    """
    if keys.text("position_embedding_type", "absolute") == "rotary":
        return from_hf_jina_3(keys.renamed(rope_theta="rotary_emb_base"))
    if hf_architecture(keys.source).startswith("Roberta"):
        keys = keys.over({"vocab_size": 50265})
    return from_hf(keys, keys.integer("pad_token_id", 0, 1 << 24, 1) + 1, "gelu")


def from_hf_jina_3(keys: Keys) -> ModelConfig:
    """`JinaEmbeddingsV3Model`, without the adapters for tasks that its authors' files have inside."""
    shape = _hf_shape(keys, "rotary")
    unused = keys.integer("pad_token_id", 0, 1 << 24, 1) + 1  # as RoBERTa's positions, though there are none
    shape["context_length"] = max(1, shape["context_length"] - unused)
    return ModelConfig(
        **shape | {
            "activation": hf_activation(keys, default="gelu"), "gated": False,
            "rope": rope_from_hf(keys, shape["head_dim"], base=_JINA_3_BASE),
        }
    )  # fmt: skip


def _hf_shape(keys: Keys, positions: str) -> dict[str, Any]:
    found = keys.text("position_embedding_type", positions)
    written = hf_architecture(keys.source).endswith(("ForCausalLM", "LMHeadModel"))
    if found != positions or (keys.flag("is_decoder", False) and not written):
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


def from_gguf_jina_3(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`jina-bert-v3`, whose adapters for tasks are files of their own."""
    shape = _gguf_shape(keys, tensors, "jina-bert-v3")
    rope = rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False, base=_JINA_3_BASE)
    return ModelConfig(**shape | {"rope": rope}, gated=False)


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


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The head of a decoder has no prefix."""
    if "cls.predictions.transform.dense.weight" not in tensors:
        return names
    at = "cls.predictions.transform."
    return _with_head(names, tensors, "cls.predictions", at + "dense", at + "LayerNorm")


def _adapt_roberta(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Jina v3's authors call their class as RoBERTa's is called."""
    found = _JINA_3.under(names.embed.removesuffix(BERT_NAMES.embed))
    if found.layer.format(0) + found.query_key_value + ".weight" in tensors:
        return found
    return _with_head(names, tensors, "lm_head", "lm_head.dense", "lm_head.layer_norm")


def _with_head(
    names: TensorNames, tensors: Mapping[str, RawTensor], at: str, dense: str, norm: str
) -> TensorNames:
    """A tied head's bias stands beside the matrix that is left out, or under its own name."""
    head = at + ".decoder" if at + ".decoder.bias" in tensors else at
    return replace(names, head=head, project_out=dense, head_norm=norm)


_PREFIXES = ("", "bert.", "roberta.")
BERT = Architecture(
    ("bert",), ("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertLMHeadModel"), from_hf, from_gguf,
    BERT_NAMES, AFTER_SUM, prefixes=_PREFIXES, adapt=_adapt,
)  # fmt: skip
ROBERTA = Architecture(
    (),
    (
        "RobertaModel", "RobertaForMaskedLM", "RobertaForCausalLM", "XLMRobertaModel",
        "XLMRobertaForMaskedLM", "XLMRobertaForCausalLM", "CamembertModel", "CamembertForCausalLM",
        "Data2VecTextModel", "Data2VecTextForMaskedLM", "Data2VecTextForCausalLM",
    ), from_hf_roberta, None, BERT_NAMES, None, prefixes=(*_PREFIXES, "data2vec_text."), adapt=_adapt_roberta,
)  # fmt: skip
JINA_BERT_2 = Architecture(
    ("jina-bert-v2",), ("JinaBertModel", "JinaBertForMaskedLM"), from_hf_jina, from_gguf_jina, _JINA,
    AFTER_SUM, prefixes=_PREFIXES, adapt=_adapt_jina,
)  # fmt: skip
JINA_3 = Architecture(
    ("jina-bert-v3",), ("JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM"), from_hf_jina_3,
    from_gguf_jina_3, _JINA_3, AFTER_SUM, prefixes=_PREFIXES,
)  # fmt: skip
