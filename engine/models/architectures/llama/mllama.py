"""Llama 3.2 Vision: Llama 3 with further layers that look at pictures alone. Without a picture they do
nothing, and texts are read without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, gguf_vocab, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

VISION_PREFIXES, VISION_CLASS = ("vision_model.", "model.vision_model."), "class_embedding"
"""What the names of the encoder's tensors begin with, and one of them."""
GGUF_CLASS = "v.class_embd"
"""The full name of that one in GGUF files."""
_FEWEST = 3
_STEP = 5
EXTRA_ROWS = 8
"""Tokens that stand for pictures have rows of the embedding after those of the vocabulary."""
_SIZES: Mapping[str, int] = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32,
    "vocab_size": 128256,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`MllamaForCausalLM`, and the text model of `MllamaForConditionalGeneration`."""
    keys = keys.inner("text_config").over(_SIZES)
    keys = keys.replaced("tie_word_embeddings", False)  # transformers never ties its tables
    kv_heads: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 8}
    shape = hf_decoder(
        keys, bias=False, base=500000.0, rms_norm_eps=1e-5, max_position_embeddings=131072, **kv_heads
    )
    layers = shape["layers"]
    pictures = keys.integers("cross_attention_layers", 0, layers - 1)
    if keys.raw("cross_attention_layers") is None:
        pictures = tuple(range(_FEWEST, layers, _STEP))
    return ModelConfig(
        **shape, mlp_layers=frozenset(pictures), bare_layers=frozenset(pictures), extra_embeddings=EXTRA_ROWS
    )


def _completed(config: ModelConfig, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """With the layers that look at pictures, where the folder has an encoder for these."""
    if not any(prefix + VISION_CLASS in tensors for prefix in VISION_PREFIXES):
        return config
    return replace(config, picture_layers=config.mlp_layers)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mllama` in the files of Ollama's converter. The head has a row for each token of texts."""
    head = tensors.get("output.weight")
    rows = gguf_vocab(tensors)
    texts = min(rows, head.shape[0]) if head is not None and head.shape else rows
    shape = gguf_decoder(keys, tensors, "mllama", interleaved=True, vocab_size=texts)
    pictures = frozenset(keys.integers("attention.cross_attention_layers", 0, shape["layers"] - 1))
    return ModelConfig(
        **shape, mlp_layers=pictures, bare_layers=pictures, extra_embeddings=rows - texts,
        picture_layers=pictures if GGUF_CLASS in tensors else frozenset(),
    )  # fmt: skip


LLAMA_3_2_VISION = Architecture(
    ("mllama",), ("MllamaForCausalLM", "MllamaForConditionalGeneration"), from_hf, from_gguf, HF, GGUF,
    prefixes=("", "language_model.", "-model.language_model."), interleaved_rows=True, completed=_completed,
)  # fmt: skip
