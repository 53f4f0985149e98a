"""Reads the headers of a model, config.json or GGUF metadata, into the fields of `ModelConfig`.

What nearly all architectures name alike is read here; `engine.models.architectures` reads the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import not_kinds, unlike_layers, unsupported_activation, unsupported_layer
from engine.models.headers.rope import extended_context, gguf_context, longer, rope_from_gguf, rope_from_hf
from engine.tensors import RawTensor
from engine.words import _

Value = TypeVar("Value")
MAX_CONTEXT = 1 << 24
MAX_VOCAB = 1 << 24
MAX_LAYERS = 1 << 12
_POSITIONS = 2048
"""`max_position_embeddings` of most classes of transformers."""
HF_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
"""Names in config.json -> `engine.backends.activations.ACTIVATIONS`."""


def hf_decoder(
    keys: Keys, *, bias: bool, mlp_bias: bool = False, activation: str = "silu", base: float = 10000.0,
    share: float | None = None, interleaved: bool = False, norm_eps: str = "rms_norm_eps",
    rotated: bool = True, even: bool = False, **defaults: Any,
) -> dict[str, Any]:  # fmt: skip
    """The fields that most folders have: `hf_shape`, activation, rope and biases.

    `bias` is that of queries, keys, values and the output projection. `activation`, `base` and `share` are
    the architecture's defaults, `even` is as in `rope_from_hf`; unless `rotated` there is no rope. Raises
    `BadCheckpoint` and `UnsupportedModel`.
    """
    keys = keys.over({"max_position_embeddings": defaults.get("max_position_embeddings", _POSITIONS)})
    shape = hf_shape(keys, norm_eps, **defaults)
    own: dict[str, Any] = {"base": base, "share": share, "interleaved": interleaved, "even": even}
    rope = rope_from_hf(keys, shape["head_dim"], **own) if rotated else None
    return shape | {
        "activation": hf_activation(keys, default=activation), "rope": rope,
        "attention_bias": bias, "output_bias": bias, "mlp_bias": mlp_bias,
    }  # fmt: skip


def gguf_decoder(
    keys: Keys, tensors: Mapping[str, RawTensor], architecture: str, *, interleaved: bool = False,
    layer_norm: bool = False, handled: tuple[str, ...] = (), vocab_size: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """The fields that most GGUF files have: `gguf_shape` and rope.

    Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    shape = gguf_shape(
        keys, tensors, architecture, layer_norm=layer_norm, handled=handled, vocab_size=vocab_size
    )
    rope = rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=interleaved)
    return shape | {"rope": rope}


def hf_shape(keys: Keys, norm_eps: str = "rms_norm_eps", **defaults: Any) -> dict[str, Any]:
    """The sizes that nearly every config.json names alike; `context_length` includes the scaling of rope.

    `defaults` are the architecture's values for absent keys, under config.json's names (`head_dim`,
    `num_key_value_heads`, `max_position_embeddings`, `tie_word_embeddings`, ...); `norm_eps` is the key of
    the norms' epsilon. Raises `BadCheckpoint`.
    """
    width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_attention_heads", 1, 1 << 14)
    context = keys.integer(
        "max_position_embeddings", 1, MAX_CONTEXT, defaults.get("max_position_embeddings", _POSITIONS)
    )
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
        "context_length": extended_context(keys, context),
        "norm_eps": keys.number(norm_eps, 0.0, 1.0, defaults.get(norm_eps, 1e-6)),
        "tied": keys.flag("tie_word_embeddings", defaults.get("tie_word_embeddings", False)),
    }


def hf_activation(keys: Keys, name: str = "hidden_act", default: str = "silu") -> str:
    """The activation that config.json names. Raises `UnsupportedModel` for an unknown one."""
    found = keys.text(name, default)
    if found not in HF_ACTIVATIONS:
        raise unsupported_activation(found, HF_ACTIVATIONS)
    return HF_ACTIVATIONS[found]


def refuse_other_than_silu(keys: Keys, name: str = "hidden_act") -> None:
    """Raises `UnsupportedModel` where layers that only ever have silu have another activation."""
    if hf_activation(keys, name) != "silu":
        raise UnsupportedModel(
            _(
                "The model sets {name} to {value!r}; only silu is supported. Choose another model.",
                name=name,
                value=keys.text(name),
            )
        )


_GGUF_ALTERING = (
    "expert_count", "expert_shared_count", "attention.scale", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.temperature_scale", "attn_logit_softcapping",
    "final_logit_softcapping", "logit_scale", "embedding_scale", "residual_scale",
)  # fmt: skip
"""Keys that change a decoder's arithmetic: absent, 0 or without effect, unless the architecture handles
them.
"""
_GGUF_FACTORS = "logit_scale", "embedding_scale", "residual_scale"
"""Those of them that 1 leaves without effect."""


def gguf_shape(
    keys: Keys,
    tensors: Mapping[str, RawTensor],
    architecture: str,
    *,
    layer_norm: bool = False,
    handled: tuple[str, ...] = (),
    vocab_size: int = 0,
) -> dict[str, Any]:
    """The sizes that nearly all GGUF metadata names alike.

    `keys` are those under the architecture's prefix; `handled` are the special keys that the architecture
    reads itself; `layer_norm` picks the key of the norms' epsilon; without a `vocab_size` it is that of the
    embedding. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    keys = _alike_in_all(keys)
    if not keys.has("feed_forward_length"):  # a mixture without dense layers needs none
        keys = keys.renamed(feed_forward_length="expert_feed_forward_length")
    width, heads = (
        keys.integer("embedding_length", 1, 1 << 20),
        keys.integer("attention.head_count", 1, 1 << 14),
    )
    head_dim = head_dimension(keys, "attention.key_length", width, heads)
    neutral = {**dict.fromkeys(_GGUF_FACTORS, 1.0), "attention.scale": head_dim**-0.5}
    for key in _GGUF_ALTERING:
        if key not in handled and keys.raw(key) and not _is_near(keys.raw(key), neutral.get(key)):
            raise UnsupportedModel(
                _(
                    "The model sets {architecture}.{key}, which is not supported yet. Choose another model.",
                    architecture=architecture,
                    key=key,
                )
            )
    value_dim = keys.integer("attention.value_length", 1, 1 << 16, head_dim)
    if value_dim != head_dim and "attention.value_length" not in handled:
        raise UnsupportedModel(
            _("The model's keys and values differ in length, which is not supported. Choose another model.")
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
        "vocab_size": vocab_size or gguf_vocab(tensors),
        "context_length": longer(keys, gguf_context(keys)),
        "norm_eps": keys.number(
            "attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon", 0.0, 1.0
        ),
        "tied": "output.weight" not in tensors,
    }


def _is_near(value: Any, expected: float | None) -> bool:
    """Whether a value is this number as float32; False without a number."""
    number = isinstance(value, int | float)
    return expected is not None and number and math.isclose(value, expected, rel_tol=1e-6)


def _alike_in_all(keys: Keys) -> Keys:
    """The same keys with one number in place of a list that has it for each layer, as some converters write
    sizes.
    """
    for name in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        sizes = keys.raw(name)
        whole = isinstance(sizes, list) and len(sizes) == keys.raw("block_count")
        if whole and sizes and all(size == sizes[0] for size in sizes):
            keys = keys.replaced(name, sizes[0])
    return keys


def hf_architecture(config: Mapping[str, Any]) -> str:
    """The class name in config.json. Raises `BadCheckpoint`."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise BadCheckpoint(
            _(
                "config.json: architectures is {names!r}, but a list with the model's class name "
                "was expected.",
                names=names,
            )
        )
    return names[0]


def hf_windows(keys: Keys, layers: int, name: str = "sliding_window") -> tuple[int, ...]:
    """One sliding window for every layer, read from the key `name` (null: none); () when there is none."""
    window = keys.integer(name, 0, MAX_CONTEXT, 0)
    return (window,) * layers if window else ()


def hf_sliding(keys: Keys, layers: int, default: int, step: int) -> tuple[int, ...]:
    """`sliding_window` (null: none) in the layers that `layer_types` names, or in all except every `step`-th;
    () when there is none. Raises `BadCheckpoint`, `UnsupportedModel`.
    """
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else default)
    kinds = layer_kinds(keys, layers)
    if not window:
        return ()
    if kinds is None:
        step = keys.integer("sliding_window_pattern", 0, MAX_LAYERS, step)
        return tuple(0 if step and (layer + 1) % step == 0 else window for layer in range(layers))
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def gguf_windows(
    keys: Keys, layers: int, window: int, step: int, *, full_first: bool = False
) -> tuple[int, ...]:
    """`window` in all layers except every `step`-th one, the first of which is the first layer or the last of
    `step`.

    `attention.sliding_window_pattern` overrides `step`: by another step, or by a flag for each layer.
    """
    if not window:
        return ()
    name = "attention.sliding_window_pattern"
    if isinstance(keys.raw(name), list):
        return tuple(window if slides else 0 for slides in keys.flags(name, layers))
    step = keys.integer(name, 0, MAX_LAYERS, step)
    ahead = 0 if full_first else 1
    return tuple(window if not step or (layer + ahead) % step else 0 for layer in range(layers))


def hf_layer_types(
    keys: Keys, layers: int, known: tuple[str, ...], name: str = "layer_types"
) -> tuple[str, ...] | None:
    """The list `name` of config.json, one of the `known` kinds for each layer; None if it is absent. As in
    transformers, it may have more, as of layers that predict further tokens.

    Raises `BadCheckpoint`, `UnsupportedModel`.
    """
    kinds = keys.raw(name)
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) < layers:
        raise not_kinds(name, layers)
    kinds = kinds[:layers]
    other = [kind for kind in kinds if kind not in known]
    if other:
        raise unsupported_layer(other[0])
    return tuple(kinds)


def shorter_values(value_dim: int, head_dim: int) -> dict[str, Any]:
    """The field `value_dim` of `ModelConfig`, from the lengths of values and of keys. Raises
    `UnsupportedModel`.
    """
    if not value_dim <= head_dim <= 2 * value_dim:
        raise UnsupportedModel(
            _("The model's keys and values differ in length, which is not supported. Choose another model.")
        )
    return {"value_dim": value_dim if value_dim < head_dim else 0}


def each_layer(keys: Keys, name: str, low: int, high: int, layers: int) -> tuple[int, ...]:
    """A number for each layer: a list, of which the rest is left out, or one number for all. Raises
    `BadCheckpoint`.
    """
    if not isinstance(keys.raw(name), list):
        return (keys.integer(name, low, high),) * layers
    return all_layers(keys.integers(name, low, high), name, layers)


def all_layers(found: tuple[Value, ...], name: str, layers: int) -> tuple[Value, ...]:
    """The first `layers` values that the key `name` has. Raises `BadCheckpoint` where there are fewer."""
    if len(found) < layers:
        raise unlike_layers(layers, name, len(found))
    return found[:layers]


def recurrent_by_heads(keys: Keys, name: str = "attention.head_count_kv") -> tuple[Keys, frozenset[int]]:
    """The layers whose entry in a list of heads is 0, and the keys with the number of the others in its
    place. Raises `BadCheckpoint` if the others differ.
    """
    counts = keys.raw(name)
    if not isinstance(counts, list):
        return keys, frozenset()
    counts = keys.integers(name, 0, 1 << 14)
    others = {count for count in counts if count}
    if len(others) > 1:
        raise BadCheckpoint(
            _(
                "The layers of the model have {others} to {others_2} key/value heads; one number "
                "was expected.",
                others=min(others),
                others_2=max(others),
            )
        )
    return (
        keys.replaced(name, next(iter(others), None)),
        frozenset(layer for layer, count in enumerate(counts) if not count),
    )


def gguf_layers_with(tensors: Mapping[str, RawTensor], name: str, layers: int) -> frozenset[int]:
    """The layers that have this matrix."""
    return frozenset(layer for layer in range(layers) if f"blk.{layer}.{name}.weight" in tensors)


def layer_kinds(keys: Keys, layers: int) -> tuple[str, ...] | None:
    """`layer_types` of config.json: "full_attention" or "sliding_attention" for each layer.

    Raises `BadCheckpoint`, `UnsupportedModel`.
    """
    return hf_layer_types(keys, layers, ("full_attention", "sliding_attention"))


def head_dimension(keys: Keys, name: str, width: int, heads: int, default: int | None = None) -> int:
    """The head dimension under `name`, else `default`, else width // heads. Raises `BadCheckpoint`."""
    return keys.integer(name, 2, 1 << 12, default or width // heads)


def gguf_vocab(tensors: Mapping[str, RawTensor]) -> int:
    """The size of the vocabulary, from the embedding table. Raises `BadCheckpoint`."""
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[0] > MAX_VOCAB:
        found = _("no tensor") if table is None else _("the shape {shape} for", shape=table.shape)
        raise BadCheckpoint(
            _(
                "The file has {found} token_embd.weight; a matrix with a row for each token was expected.",
                found=found,
            )
        )
    return table.shape[0]


def hf_name(keys: Keys) -> str:
    """The name of the repository that config.json was saved from, or ""."""
    # A path on the machine that saved the files means nothing to users.
    name = keys.text("_name_or_path", "").rstrip("/")
    return name.rsplit("/", 1)[-1] if name.count("/") == 1 and name[0] not in "./~" else ""
