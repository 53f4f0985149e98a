"""BERT, RoBERTa and ELECTRA that were trained as decoders."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import SMALL, Case

BERT: dict[str, Any] = {**SMALL, "is_decoder": True, "type_vocab_size": 2}
del BERT["num_key_value_heads"]
PADDED: dict[str, Any] = {**BERT, "pad_token_id": 1}

BERT_DECODER_CASES = (
    Case("BERT decoders", "norms after the sums, and a matrix before the head", "bert", BERT),
    Case(
        "BERT decoders", "", "bert", {**BERT, "hidden_act": "relu", "tie_word_embeddings": False},
        variant="another activation, untied",
    ),
    Case("BERT decoders", "", "roberta", PADDED, variant="RoBERTa"),
    Case(
        "BERT decoders", "", "data2vec-text", {**PADDED, "tie_word_embeddings": False}, variant="data2vec"
    ),
    Case("BERT decoders", "", "electra", {**BERT, "embedding_size": 24}, variant="ELECTRA"),
)  # fmt: skip
