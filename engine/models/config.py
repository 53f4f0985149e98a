"""A decoder's shape and its architecture's quirks, as its headers give them; how its files are read is in
the architecture's own module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.backends.base import AttentionShape, RawTensor
from engine.backends.kv_formats import bytes_per_position, cache_type
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.keys import Keys
from engine.models.rope import RopeConfig

MAX_CONTEXT = 1 << 24
MAX_VOCAB = 1 << 24
MAX_LAYERS = 1 << 12
HF_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
"""Names in config.json -> `engine.backends.base.ACTIVATIONS`."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `count` of them, `used` by each token, `width` features inside each; `normalise`
    as in `Routing`.

    `layers` are those that have experts; the others have a plain feed-forward part.
    """

    count: int
    used: int
    width: int
    normalise: bool
    layers: frozenset[int]

    def __post_init__(self) -> None:
        if self.used > self.count:
            raise BadCheckpoint(
                f"The model uses {self.used} experts for each token but has {self.count}; the file is "
                "damaged."
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape.

    `name` is for people and may be empty; `tied` means that the embedding table is also the head.

    Biases: True required, False none, None wherever the file has one (GGUF says no more). `attention_bias` is
    of query, key and value, `output_bias` of the way back.
    `norm` is "rms" or "layer"; `placement` says where norms stand: "before" each half of a block, "after" it
    (OLMo 2), "both" (Gemma 2), or "parallel": one norm for both halves, which are added to the same input
    (Cohere); "parallel2" has two.
    `query_key_norm`: "none", "head" (each head alone, one weight for all), "each" (each head with a weight of
    its own), "row" (all heads together); `query_key_rms` False makes it a layer norm.
    `windows` has a window for each layer (0: none), or is empty when no layer has one; `rope_local` turns
    layers with a window where the architecture has a table of its own for them; `unturned` are layers without
    rotary positions. Without `rope` there is a table of `learned_positions`.
    `embed_scale`, `residual_scale`, `logit_scale` multiply embeddings, each half's result and the logits;
    `attention_scale` 0 is 1 / sqrt(head_dim). `sinks`: attention sinks in every layer.
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
    norm_eps: float
    rope: RopeConfig | None
    tied: bool
    attention_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    head_bias: bool | None = False
    norm: str = "rms"
    norm_bias: bool | None = False
    norm_offset: float = 0.0
    placement: str = "before"
    query_key_norm: str = "none"
    query_key_rms: bool = True
    activation: str = "silu"
    gated: bool = True
    windows: tuple[int, ...] = ()
    rope_local: RopeConfig | None = None
    unturned: frozenset[int] = frozenset()
    learned_positions: int = 0
    attention_scale: float = 0.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    experts: Experts | None = None
    sinks: bool = False

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise BadCheckpoint(
                f"The model has {self.heads} heads and {self.kv_heads} key/value heads; the first must be a "
                "multiple."
            )
        if self.windows and len(self.windows) != self.layers:
            raise BadCheckpoint(
                f"The model has {self.layers} layers but names the kind of attention of {len(self.windows)}."
            )

    def shape(self, layer: int) -> AttentionShape:
        """The attention of one layer."""
        scale = self.attention_scale or self.head_dim**-0.5
        window = self.windows[layer] if self.windows else 0
        return AttentionShape(self.heads, self.kv_heads, self.head_dim, scale, window, self.attention_cap)

    @property
    def attention_shape(self) -> AttentionShape:
        """What all layers have in common: what a cache needs to know."""
        return AttentionShape(
            self.heads, self.kv_heads, self.head_dim, self.attention_scale or self.head_dim**-0.5
        )

    @property
    def advised_context(self) -> int:
        """The longest context that is as good as the model gets: up to where longrope and dynamic scaling
        begin.
        """
        length = self.rope.original_length if self.rope is not None else 0
        return min(length, self.context_length) if length else self.context_length

    def kv_bytes_per_token(self, dtype: str = "fp16") -> int:
        """Bytes of one position in all layers of a cache of this type; see
        `engine.backends.kv_formats.cache_type`.
        """
        return self.layers * bytes_per_position(cache_type(dtype), self.kv_heads, self.head_dim)


def hf_shape(keys: Keys, **defaults: Any) -> dict[str, Any]:
    """The fields of `ModelConfig` that config.json of nearly every architecture names alike, as keyword
    arguments.

    `defaults` are the architecture's own for absent keys, under config.json's names: `num_key_value_heads`,
    `head_dim`, `max_position_embeddings`, `tie_word_embeddings`, `rms_norm_eps`, and so on. Raises
    `BadCheckpoint`.
    """
    width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_attention_heads", 1, 1 << 14)
    return {
        "architecture": hf_architecture(keys.source),
        "name": hf_name(keys),
        "layers": keys.integer("num_hidden_layers", 1, MAX_LAYERS),
        "width": width,
        "heads": heads,
        "kv_heads": keys.integer(
            "num_key_value_heads", 1, 1 << 14, defaults.get("num_key_value_heads", heads)
        ),
        "head_dim": head_dimension(keys, "head_dim", width, heads, defaults.get("head_dim")),
        "ffn_width": keys.integer("intermediate_size", 1, 1 << 22),
        "vocab_size": keys.integer("vocab_size", 1, MAX_VOCAB),
        "context_length": keys.integer(
            "max_position_embeddings", 1, MAX_CONTEXT, defaults.get("max_position_embeddings", 2048)
        ),
        "norm_eps": keys.number("rms_norm_eps", 0.0, 1.0, defaults.get("rms_norm_eps", 1e-6)),
        "tied": keys.flag("tie_word_embeddings", defaults.get("tie_word_embeddings", False)),
    }


def hf_activation(keys: Keys, name: str = "hidden_act", default: str = "silu") -> str:
    """The activation config.json names. Raises `UnsupportedModel` for one that is not known."""
    found = keys.text(name, default)
    if found not in HF_ACTIVATIONS:
        known = ", ".join(HF_ACTIVATIONS)
        raise UnsupportedModel(
            f"The model's activation is {found!r}; only {known} are supported. Choose another model."
        )
    return HF_ACTIVATIONS[found]


_GGUF_ALTERING = (
    "expert_count", "expert_shared_count", "attention.scale", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.temperature_scale", "attn_logit_softcapping",
    "final_logit_softcapping", "logit_scale", "embedding_scale", "residual_scale",
)  # fmt: skip
"""Keys that change the arithmetic of a decoder; one that the architecture does not handle must be absent
or 0.
"""


def gguf_shape(
    keys: Keys,
    tensors: Mapping[str, RawTensor],
    architecture: str,
    *,
    layer_norm: bool = False,
    handled: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The fields of `ModelConfig` that the metadata of nearly every architecture names alike, as keyword
    arguments.

    `keys` are under the architecture's prefix; `handled` are the keys out of the ordinary that the
    architecture reads itself. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    for key in _GGUF_ALTERING:
        if key not in handled and keys.raw(key):
            raise UnsupportedModel(
                f"The model sets {architecture}.{key}, which is not supported yet. Choose another model."
            )
    width, heads = (
        keys.integer("embedding_length", 1, 1 << 20),
        keys.integer("attention.head_count", 1, 1 << 14),
    )
    head_dim = head_dimension(keys, "attention.key_length", width, heads)
    if keys.integer("attention.value_length", 1, 1 << 16, head_dim) != head_dim:
        raise UnsupportedModel(
            "The model's keys and values differ in length, which is not supported. Choose another model."
        )
    return {
        "architecture": architecture,
        "name": "",
        "layers": keys.integer("block_count", 1, MAX_LAYERS),
        "width": width,
        "heads": heads,
        "kv_heads": keys.integer("attention.head_count_kv", 1, 1 << 14, heads),
        "head_dim": head_dim,
        "ffn_width": keys.integer("feed_forward_length", 1, 1 << 22),
        "vocab_size": gguf_vocab(tensors),
        "context_length": keys.integer("context_length", 1, MAX_CONTEXT),
        "norm_eps": keys.number(
            "attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon", 0.0, 1.0
        ),
        "tied": "output.weight" not in tensors,
    }


def hf_architecture(config: Mapping[str, Any]) -> str:
    """The class name in config.json. Raises `BadCheckpoint`."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise BadCheckpoint(
            f"config.json: architectures is {names!r}, but a list with the model's class name was expected."
        )
    return names[0]


def sliding(keys: Keys, layers: int, name: str = "sliding_window", default: int = 0) -> tuple[int, ...]:
    """The same window for every layer, from one key (null: none); () when there is none."""
    window = keys.integer(name, 0, MAX_CONTEXT, 0 if keys.has(name) else default)
    return (window,) * layers if window else ()


def gguf_windows(keys: Keys, layers: int, window: int, step: int) -> tuple[int, ...]:
    """A window in all layers but each `step`-th, or as `attention.sliding_window_pattern` says: a step, or
    true for each such layer.
    """
    if not window:
        return ()
    pattern = keys.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        if len(pattern) < layers or any(type(slides) not in (bool, int) for slides in pattern):
            raise BadCheckpoint(
                f"attention.sliding_window_pattern is no list of {layers} flags; the file is damaged."
            )
        return tuple(window if slides else 0 for slides in pattern[:layers])
    step = keys.integer("attention.sliding_window_pattern", 0, MAX_LAYERS, step)
    return tuple(window if not step or (layer + 1) % step else 0 for layer in range(layers))


def layer_kinds(keys: Keys, layers: int) -> tuple[str, ...] | None:
    """`layer_types` of config.json: "full_attention" or "sliding_attention" for each layer.

    Raises `BadCheckpoint`, `UnsupportedModel`.
    """
    kinds = keys.raw("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise BadCheckpoint(
            f"config.json: layer_types is no list of {layers} kinds of attention; the file is damaged."
        )
    other = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]
    if other:
        raise UnsupportedModel(
            f"The model has layers of the kind {other[0]!r}, which are not supported. Choose another model."
        )
    return tuple(kinds)


def head_dimension(keys: Keys, name: str, width: int, heads: int, default: int | None = None) -> int:
    """The head dimension under `name`, else `default`, else width / heads. Raises `BadCheckpoint`."""
    if keys.raw(name) is None and default is None and width % heads:
        raise BadCheckpoint(
            f"The model's width {width} is not a multiple of its {heads} heads; the file is damaged."
        )
    return keys.integer(name, 2, 1 << 12, default or width // heads)


def gguf_vocab(tensors: Mapping[str, RawTensor]) -> int:
    """The vocabulary's size, from the embedding table. Raises `BadCheckpoint`."""
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[0] > MAX_VOCAB:
        found = "no tensor" if table is None else f"the shape {table.shape} for"
        raise BadCheckpoint(
            f"The file has {found} token_embd.weight; a matrix with a row for each token was expected."
        )
    return table.shape[0]


def hf_name(keys: Keys) -> str:
    """The repository's name that config.json was saved from, or ""."""
    # A path of the machine that saved the files tells people nothing.
    name = keys.text("_name_or_path", "").rstrip("/")
    return name.rsplit("/", 1)[-1] if name.count("/") == 1 and name[0] not in "./~" else ""
