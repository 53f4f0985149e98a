"""SmolLM3: Llama without rope in every fourth layer (NoPE)."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder, layer_kinds
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

_STEP = 4


def from_hf(keys: Keys) -> ModelConfig:
    """`SmolLM3ForCausalLM`."""
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=keys.flag("mlp_bias", False), base=2e6,
        num_key_value_heads=4, tie_word_embeddings=True, max_position_embeddings=32768,
    )  # fmt: skip
    layers = shape["layers"]
    bare = nope_layers(keys, layers)
    return ModelConfig(**shape, nope_layers=bare, windows=_windows(keys, layers, bare))


def _windows(keys: Keys, layers: int, bare: frozenset[int]) -> tuple[int, ...]:
    """`sliding_window` in the layers that `layer_types` names, else in those without rope if
    `use_sliding_window` is set; transformers masks by `layer_types` whatever that flag says.
    """
    kinds, window = layer_kinds(keys, layers), keys.integer("sliding_window", 0, 1 << 24, 0)
    if not window or (kinds is None and not keys.flag("use_sliding_window", False)):
        return ()
    slide = bare if kinds is None else [at for at, kind in enumerate(kinds) if kind == "sliding_attention"]
    return tuple(window if layer in slide else 0 for layer in range(layers))


def nope_layers(keys: Keys, layers: int) -> frozenset[int]:
    """`no_rope_layers` of config.json is, despite its name, 1 for each layer that has rope. Raises
    `BadCheckpoint`.
    """
    roped = keys.raw("no_rope_layers")
    if roped is None:
        return _every(layers, keys.integer("no_rope_layer_interval", 1, 1 << 12, _STEP))
    if not isinstance(roped, list) or len(roped) != layers or any(value not in (0, 1) for value in roped):
        raise BadCheckpoint(
            _(
                "config.json: no_rope_layers is not a list of {layers} zeros and ones; the file is damaged.",
                layers=layers,
            )
        )
    return frozenset(layer for layer, value in enumerate(roped) if not value)


def _every(layers: int, step: int) -> frozenset[int]:
    """Every `step`-th layer, the first being layer step - 1."""
    return frozenset(range(step - 1, layers, step))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`smollm3`."""
    shape = gguf_decoder(keys, tensors, "smollm3", interleaved=True)
    return ModelConfig(**shape, nope_layers=_every(shape["layers"], _STEP))


SMOLLM3 = Architecture(
    ("smollm3",), ("SmolLM3ForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
