"""SmolLM3: Llama whose every fourth layer has no rotary positions."""

from __future__ import annotations

from collections.abc import Mapping

from engine.backends.base import RawTensor
from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape, layer_kinds
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

_STEP = 4


def from_hf(keys: Keys) -> ModelConfig:
    """`SmolLM3ForCausalLM`; `no_rope_layers` has 1 for layers that do turn."""
    shape = hf_shape(keys, num_key_value_heads=4, tie_word_embeddings=True, max_position_embeddings=32768)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    layers, bias = shape["layers"], keys.flag("attention_bias", False)
    kinds, window = layer_kinds(keys, layers), keys.integer("sliding_window", 0, 1 << 24, 0)
    slides = keys.flag("use_sliding_window", False) and window and kinds is not None
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"], base=2e6),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=keys.flag("mlp_bias", False),
        unturned=_unturned(keys, layers),
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds or ()) if slides else (),
    )


def _unturned(keys: Keys, layers: int) -> frozenset[int]:
    turned = keys.raw("no_rope_layers")
    if turned is None:
        return every(layers, keys.integer("no_rope_layer_interval", 1, 1 << 12, _STEP))
    if not isinstance(turned, list) or len(turned) != layers or any(value not in (0, 1) for value in turned):
        raise BadCheckpoint(
            f"config.json: no_rope_layers is no list of {layers} zeros and ones; the file is damaged."
        )
    return frozenset(layer for layer, value in enumerate(turned) if not value)


def every(layers: int, step: int) -> frozenset[int]:
    """Each `step`-th layer, the first of them being layer step - 1."""
    return frozenset(range(step - 1, layers, step))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`smollm3`."""
    shape = gguf_shape(keys, tensors, "smollm3")
    rope = rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True)
    return ModelConfig(**shape, rope=rope, unturned=every(shape["layers"], _STEP))


SMOLLM3 = Architecture(("smollm3",), ("SmolLM3ForCausalLM",), from_hf, from_gguf, HF, GGUF, turned_rows=True)
