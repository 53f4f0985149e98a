"""DFlash drafters (arXiv 2602.06036): a few layers that draft a block of tokens for one model in one pass,
and can do nothing without it.

They are no row of `ARCHITECTURES`: `engine.models.drafting.dflash` loads them beside a main model. Source of
the layout: the configurations and checkpoints of z-lab, and its `dflash/model.py`.
"""

from __future__ import annotations

from dataclasses import fields

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.architectures.llama import qwen
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, MAX_VOCAB, layer_kinds
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.weights.checkpoint import Checkpoint
from engine.words import _

NAME = "DFlash"
"""What is shown as the architecture."""
_KINDS = "full_attention", "sliding_attention"
_MOST_BLOCK = 256


@dataclass(frozen=True, slots=True)
class DFlashConfig(ModelConfig):
    """The shape of a drafter, whose features are as many as the main model's."""

    block: int = 16
    """The tokens of a block: the last known one, and those that are drafted."""
    mask: int = 0
    """The token that stands for those that are drafted."""
    layers_before: tuple[int, ...] = ()
    """The number of the main model's layers before each hidden state that is read."""
    causal: tuple[bool, ...] = ()
    """Of each layer, whether a token of a block sees the earlier ones alone."""
    input_scale: float = 1.0
    """Multiplies the embeddings, which are as the main model's table has them."""
    output_scale: float = 1.0
    """Multiplies the logits, before their soft cap."""
    output_cap: float = 0.0


def read_dflash_config(checkpoint: Checkpoint) -> DFlashConfig:
    """The checked configuration of a drafter. Raises `BadCheckpoint` and `UnsupportedModel`."""
    return from_hf(Keys(checkpoint.metadata["config"], "config.json"))


def from_hf(keys: Keys) -> DFlashConfig:
    """config.json of a `DFlashDraftModel`: Qwen 3's keys, and others in `dflash_config` or beside them."""
    own = keys.inner("dflash_config")
    config = qwen.from_hf_3(
        keys.replaced("architectures", ["Qwen3ForCausalLM"]).replaced("layer_types", None)
    )
    shape = {field.name: getattr(config, field.name) for field in fields(config)}
    layers = config.layers
    kinds = layer_kinds(keys, layers) or _KINDS[:1] * layers
    if other := [kind for kind in kinds if kind not in _KINDS]:
        raise unsupported("layer_types", other[0])
    slides = [kind == _KINDS[1] for kind in kinds]
    windows: tuple[int, ...] = ()
    if any(slides):
        window = keys.integer("sliding_window", 1, MAX_CONTEXT)
        windows = tuple(window if each else 0 for each in slides)
    causal = keys.raw("is_causal")
    made_by = own.integers("target_layer_ids", 0, MAX_LAYERS - 1)
    if not made_by:
        raise BadCheckpoint(
            _(
                "config.json does not say which layers of the main model a DFlash drafter reads "
                "(target_layer_ids); the file is incomplete. Download it again."
            )
        )
    return DFlashConfig(
        **shape | {"architecture": NAME, "tied": False, "windows": windows},
        block=own.integer("block_size", 2, _MOST_BLOCK, 16),
        mask=own.integer("mask_token_id", 0, MAX_VOCAB),
        layers_before=tuple(layer + 1 for layer in made_by),
        causal=tuple(slides) if causal is None else (keys.flag("is_causal"),) * layers,
        input_scale=own.number("input_embedding_scale", -1e6, 1e6, 1.0),
        output_scale=own.number("output_multiplier", -1e6, 1e6, 1.0),
        output_cap=own.optional("final_logit_softcapping", 0.0, 1e6),
    )
