"""Gemma 4's assistants: small decoders that draft for a Gemma 4 model, and can do nothing without it.

Their layers have queries alone and read the main model's keys and values. They are no row of
`ARCHITECTURES`: `engine.models.drafting.assistant` loads them beside a main model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.architecture import Architecture
from engine.models.architectures.dense import gemma4
from engine.models.architectures.drafters.names import ASSISTANT_CLASSES, ASSISTANT_GGUF
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_architecture
from engine.models.headers.keys import Keys
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.words import _

_MOST_WIDTH = 1 << 20


@dataclass(frozen=True, slots=True)
class AssistantConfig(ModelConfig):
    """The shape of an assistant. Its layers have no keys and values of their own."""

    main_width: int = 0
    """The features of the main model's hidden states."""
    centroids: int = 0
    """How many clusters the vocabulary is divided into, one as large as the other; 0: it is not."""
    used_centroids: int = 0
    """How many of them can be drafted from at a time."""
    borrowed: tuple[int, ...] = ()
    """For each layer, the number of the layer that it reads among those of the main model's cache."""

    def kv_layer(self, layer: int) -> int:
        """No layer of its own: -1."""
        return -1

    def cache_layer(self, layer: int) -> int:
        """The number of the layer that it reads in the main model's cache."""
        return self.borrowed[layer] if self.borrowed else layer

    @property
    def uncached_layers(self) -> frozenset[int]:
        """All layers."""
        return frozenset(range(self.layers))


def _assistant(config: ModelConfig, **more: Any) -> AssistantConfig:
    """The config of the decoder's layers and `more`. Raises `UnsupportedModel` for other kinds of layers."""
    if config.per_layer is not None or config.experts is not None or not all(_both_kinds(config)):
        raise UnsupportedModel(
            _(
                "The assistant has layers of another kind than Gemma 4's assistants. A later version of "
                "Inglenook may run it."
            )
        )
    shape = {field.name: getattr(config, field.name) for field in fields(config)}
    # A token with a window also sees the one that stands `window` places before the last that was read.
    windows = tuple(window and window + 1 for window in config.windows)
    changed = {"windows": windows, "keys_as_values": frozenset(), "logit_cap": 0.0}
    return AssistantConfig(**shape | changed, **more)


def _both_kinds(config: ModelConfig) -> tuple[bool, bool]:
    return any(config.windows), not all(config.windows)


def from_hf(keys: Keys) -> AssistantConfig:
    """`Gemma4AssistantForCausalLM` and `Gemma4UnifiedAssistantForCausalLM`. All of their layers share keys
    and values, which `num_kv_shared_layers` says or, as 0, leaves out.
    """
    unified = hf_architecture(keys.source) == ASSISTANT_CLASSES[1]
    width = keys.integer("backbone_hidden_size", 1, _MOST_WIDTH, 3840 if unified else 1536)
    tied, ordered = keys.flag("tie_word_embeddings", True), keys.flag("use_ordered_embeddings", False)
    text = keys.inner("text_config").replaced("num_kv_shared_layers", 0).replaced("tie_word_embeddings", tied)
    config = gemma4.from_hf(text.without("text_config"))
    centroids = keys.integer("num_centroids", 1, config.vocab_size, 2048) if ordered else 0
    used = keys.integer("centroid_intermediate_top_k", 1, centroids, min(32, centroids)) if ordered else 0
    if ordered and config.vocab_size % centroids:
        raise BadCheckpoint(
            _(
                "config.json: {count} tokens cannot be divided into {centroids} clusters of one size; the "
                "file is damaged.",
                count=config.vocab_size,
                centroids=centroids,
            )
        )
    return _assistant(config, main_width=width, centroids=centroids, used_centroids=used)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> AssistantConfig:
    """`gemma4-assistant`, as llama.cpp's converter writes it, which leaves the clusters out."""
    config = gemma4.from_gguf(keys.replaced("attention.shared_kv_layers", 0), tensors)
    return _assistant(config, main_width=keys.integer("embedding_length_out", 1, _MOST_WIDTH))


ASSISTANT = Architecture(
    ASSISTANT_GGUF, ASSISTANT_CLASSES, from_hf, from_gguf, gemma4.HF_NAMES, gemma4.GGUF_NAMES,
)  # fmt: skip


def read_assistant_config(checkpoint: Checkpoint) -> AssistantConfig:
    """The checked configuration of an assistant. Raises `BadCheckpoint` and `UnsupportedModel`."""
    if checkpoint.format == "gguf":
        where, name = _("The GGUF metadata"), checkpoint.metadata["general.architecture"]
        return from_gguf(Keys(checkpoint.metadata, where, f"{name}."), checkpoint.tensors)
    return from_hf(Keys(checkpoint.metadata["config"], "config.json"))
