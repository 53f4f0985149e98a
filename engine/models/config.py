"""What a model's headers say about its shape, read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from engine.backends.base import AttentionShape, RawTensor
from engine.backends.cache_types import bytes_per_position, cache_type
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.keys import Keys
from engine.models.rope import RopeConfig, rope_from_gguf, rope_from_hf

_MAX_CONTEXT = 1 << 24
_MAX_VOCAB = 1 << 24
_GGUF_ALTERING = (
    "expert_count", "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias", "attention.temperature_scale",
    "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "embedding_scale", "residual_scale",
)  # fmt: skip
"""Keys that change the arithmetic of a decoder in ways not handled here; absent or 0 in every plain file."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape. `name` is for people and may be empty; `tied` means that the embedding table is also the head.

    `attention_bias` and `mlp_bias`: True required, False none, None wherever the file has one (GGUF says no more).
    """

    architecture: str
    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    vocab_size: int
    context_length: int
    rms_eps: float
    rope: RopeConfig
    tied: bool
    attention_bias: bool | None = None
    mlp_bias: bool | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise BadCheckpoint(f"The model has {self.heads} heads and {self.kv_heads} key/value heads; the first must be a multiple.")

    @property
    def attention_shape(self) -> AttentionShape:
        """Of every layer."""
        return AttentionShape(self.heads, self.kv_heads, self.head_dim, self.head_dim**-0.5)

    def kv_bytes_per_token(self, dtype: str = "fp16") -> int:
        """Bytes of one position in all layers of a cache of this type; see `engine.backends.cache_types.cache_type`."""
        return self.layers * bytes_per_position(cache_type(dtype), self.kv_heads, self.head_dim)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tensors: Mapping[str, RawTensor]) -> Self:
        """From the metadata and tensor table of a GGUF file. Raises `BadCheckpoint` and `UnsupportedModel`."""
        where = "The GGUF metadata"
        general = Keys(metadata, where)
        architecture = general.text("general.architecture")
        keys = Keys(metadata, where, architecture + ".")
        for key in _GGUF_ALTERING:
            if keys.raw(key):
                raise UnsupportedModel(f"The model sets {architecture}.{key}, which is not supported yet. Choose another model.")
        width, heads = keys.integer("embedding_length", 1, 1 << 20), keys.integer("attention.head_count", 1, 1 << 14)
        head_dim = _head_dim(keys, "attention.key_length", width, heads)
        if keys.integer("attention.value_length", 1, 1 << 16, head_dim) != head_dim:
            raise UnsupportedModel("The model's keys and values differ in length, which is not supported. Choose another model.")
        context = keys.integer("context_length", 1, _MAX_CONTEXT)
        return cls(
            architecture=architecture,
            name="",
            layers=keys.integer("block_count", 1, 1 << 12),
            width=width,
            heads=heads,
            kv_heads=keys.integer("attention.head_count_kv", 1, 1 << 14, heads),
            head_dim=head_dim,
            ffn_width=keys.integer("feed_forward_length", 1, 1 << 22),
            vocab_size=_gguf_vocab(tensors),
            # Up to the window every token sees all others, so within it the model is exact.
            context_length=min(context, keys.integer("attention.sliding_window", 0, _MAX_CONTEXT, 0) or context),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
            rope=rope_from_gguf(keys, head_dim, tensors.get("rope_freqs.weight")),
            tied="output.weight" not in tensors,
        )

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> Self:
        """From the dict of a config.json of the Llama family. Raises `BadCheckpoint` and `UnsupportedModel`."""
        keys = Keys(config, "config.json")
        architecture = hf_architecture(config)
        if keys.raw("quantization_config") is not None:
            raise UnsupportedModel("The folder's weights are quantised in a way that cannot be read yet; choose a GGUF file of this model.")
        activation = keys.text("hidden_act", "silu")
        if activation not in ("silu", "swish"):
            raise UnsupportedModel(f"The model's activation is {activation!r}; only silu is supported. Choose another model.")
        width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_attention_heads", 1, 1 << 14)
        head_dim = _head_dim(keys, "head_dim", width, heads)
        context = keys.integer("max_position_embeddings", 1, _MAX_CONTEXT, 2048)
        mistral = architecture == "MistralForCausalLM"
        # Mistral's own default is a window of 4096 where the key is absent; null means none.
        window = keys.integer("sliding_window", 1, _MAX_CONTEXT, context if "sliding_window" in config else 4096) if mistral else context
        return cls(
            architecture=architecture,
            name=_hf_name(keys),
            layers=keys.integer("num_hidden_layers", 1, 1 << 12),
            width=width,
            heads=heads,
            kv_heads=keys.integer("num_key_value_heads", 1, 1 << 14, 8 if mistral and "num_key_value_heads" not in config else heads),
            head_dim=head_dim,
            ffn_width=keys.integer("intermediate_size", 1, 1 << 22),
            vocab_size=keys.integer("vocab_size", 1, _MAX_VOCAB),
            context_length=min(context, window),
            rms_eps=keys.number("rms_norm_eps", 0.0, 1.0, 1e-6),
            rope=rope_from_hf(keys, head_dim),
            tied=keys.flag("tie_word_embeddings", False),
            attention_bias=not mistral and keys.flag("attention_bias", False),
            mlp_bias=not mistral and keys.flag("mlp_bias", False),
        )


def hf_architecture(config: Mapping[str, Any]) -> str:
    """The class name in config.json. Raises `BadCheckpoint`."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise BadCheckpoint(f"config.json: architectures is {names!r}, but a list with the model's class name was expected.")
    return names[0]


def _hf_name(keys: Keys) -> str:
    # A path of the machine that saved the files tells people nothing.
    name = keys.text("_name_or_path", "").rstrip("/")
    return name.rsplit("/", 1)[-1] if name.count("/") == 1 and name[0] not in "./~" else ""


def _head_dim(keys: Keys, name: str, width: int, heads: int) -> int:
    if keys.raw(name) is None and width % heads:
        raise BadCheckpoint(f"The model's width {width} is not a multiple of its {heads} heads; the file is damaged.")
    return keys.integer(name, 2, 1 << 12, width // heads)


def _gguf_vocab(tensors: Mapping[str, RawTensor]) -> int:
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[0] > _MAX_VOCAB:
        found = "no tensor" if table is None else f"the shape {table.shape} for"
        raise BadCheckpoint(f"The file has {found} token_embd.weight; a matrix with a row for each token was expected.")
    return table.shape[0]
