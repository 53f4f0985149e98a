"""North Vision (Compass): Cohere 2 whose layers of each kind have a rope of their own or none, not
interleaved.
"""

from __future__ import annotations

from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.dense.cohere import HF_NAMES
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, hf_activation, hf_architecture, hf_shape, layer_kinds
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_hf
from engine.models.headers.rope_sections import usual_sections
from engine.models.layers.positions.rope import RopeConfig

_WHOLE = "CohereCompassForConditionalGeneration"
_KINDS = ("full_attention", "sliding_attention")
_DEFAULTS = {
    "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
    "num_attention_heads": 64,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`CohereCompassForCausalLM`, and the text model of `CohereCompassForConditionalGeneration`."""
    tied = keys.flag("tie_word_embeddings", hf_architecture(keys.source) != _WHOLE)  # the whole's word counts
    keys = keys.inner("text_config").over(_DEFAULTS)
    shape: dict[str, Any] = hf_shape(
        keys, "layer_norm_eps", layer_norm_eps=1e-5, max_position_embeddings=8192
    ) | {"tied": tied}
    layers, bias = shape["layers"], keys.flag("attention_bias", False)
    kinds = layer_kinds(keys, layers) or ("full_attention",) * layers
    window = keys.integer("sliding_window", 1, MAX_CONTEXT, 4096)
    ropes = {kind: _rope(keys, shape["head_dim"], kind) for kind in _KINDS if kind in kinds}
    found = [rope for rope in ropes.values() if rope is not None]
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=bias, output_bias=bias, mlp_bias=False,
        norm="layer", placement="parallel",
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        rope=_divided(found[0]) if found else None,
        rope_local=_divided(found[1]) if len(found) > 1 else None,
        nope_layers=frozenset(layer for layer, kind in enumerate(kinds) if ropes[kind] is None),
        logit_scale=keys.number("logit_scale", 1e-6, 1e6, 1.0),
    )  # fmt: skip


def _divided(rope: RopeConfig) -> RopeConfig | None:
    """The same with the family's sections of rotary positions."""
    return usual_sections(rope, (24, 20, 20), interleaved=True)


def _rope(keys: Keys, dim: int, kind: str) -> RopeConfig | None:
    """That of the layers of a kind; None where their entry of `rope_parameters` is null."""
    table = keys.table("rope_parameters")
    if table is not None and any(table.has(each) for each in _KINDS):
        own = table.table(kind)
        if own is None:
            return None
        keys = keys.replaced("rope_parameters", own.source)
    return rope_from_hf(keys, dim)


COHERE_COMPASS = Architecture(
    (), ("CohereCompassForCausalLM", _WHOLE), from_hf, None, HF_NAMES, None,
    prefixes=("", "-model.language_model.", "-"),
)  # fmt: skip
