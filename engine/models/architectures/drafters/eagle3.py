"""EAGLE-3 drafters (arXiv 2503.01840): a layer or a few that draft for one model, and can do nothing without
it.

They read hidden states from within the main model. They are no row of `ARCHITECTURES`:
`engine.models.drafting.eagle3` loads them beside a main model. Sources of the layouts: the configurations and
checkpoints of SafeAILab's EAGLE, of SpecForge, and of `speculators`, which vLLM reads; and llama.cpp's
`eagle3` for GGUF files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.architectures.drafters.names import EAGLE3_GGUF
from engine.models.architectures.llama import llama, qwen
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_LAYERS, MAX_VOCAB, gguf_decoder
from engine.models.headers.keys import Keys
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.words import _

NAME = "EAGLE-3"
"""What is shown as the architecture."""
_DECODERS: Mapping[str, tuple[str, Callable[[Keys], ModelConfig]]] = {
    "llama": ("LlamaForCausalLM", llama.from_hf), "qwen3": ("Qwen3ForCausalLM", qwen.from_hf_3),
}  # fmt: skip
"""By `model_type`, the decoder whose layers are used, and how its config.json is read."""
_MOST_WIDTH = 1 << 20


@dataclass(frozen=True, slots=True)
class Eagle3Config(ModelConfig):
    """The shape of a drafter; `vocab_size` is that of the main model."""

    main_width: int = 0
    """The features of the main model's hidden states."""
    draft_vocab_size: int = 0
    """The number of tokens that can be drafted."""
    layers_before: tuple[int, ...] = ()
    """The number of the main model's layers before each hidden state that is read; (): `states_of` decides.
    """
    normed_residual: bool = False
    """Whether the first layer adds to the normed state instead of the state."""
    normed_output: bool = False
    """Whether the next guess is made from the state after the last norm instead of that before it."""
    norms: str = ""
    """The main model's hidden states are normed "apart", "together" or, as "", not at all."""

    def states_of(self, layers: int) -> tuple[int, ...]:
        """`layers_before` for a main model of this many layers; the usual ones are near both ends and in the
        middle.
        """
        return self.layers_before or (2, layers // 2, layers - 3)


def read_eagle3_config(checkpoint: Checkpoint) -> Eagle3Config:
    """The checked configuration of a drafter. Raises `BadCheckpoint` and `UnsupportedModel`."""
    if checkpoint.format == "gguf":
        keys = Keys(checkpoint.metadata, _("The GGUF metadata"), f"{EAGLE3_GGUF}.")
        return from_gguf(keys, checkpoint.tensors)
    return from_hf(Keys(checkpoint.metadata["config"], "config.json"))


def from_hf(keys: Keys) -> Eagle3Config:
    """config.json: a decoder's with more keys, or one with the decoder's as `transformer_layer_config`."""
    layer = keys.table("transformer_layer_config") or keys
    kind = layer.text("model_type", "llama")
    if kind not in _DECODERS:
        raise UnsupportedModel(
            _(
                "The EAGLE-3 drafter has layers of the kind {kind!r}, but only {known} can be run. A later "
                "version of Inglenook may run it.",
                kind=kind,
                known=", ".join(_DECODERS),
            )
        )
    name, read = _DECODERS[kind]
    config = read(layer.replaced("architectures", [name]))
    shape = {field.name: getattr(config, field.name) for field in fields(config)}
    return Eagle3Config(
        **shape | {"architecture": NAME, "tied": False},
        main_width=keys.integer("target_hidden_size", 1, _MOST_WIDTH, config.width),
        draft_vocab_size=keys.integer("draft_vocab_size", 1, MAX_VOCAB, config.vocab_size),
        layers_before=_layers_before(keys),
        normed_residual=keys.flag("norm_before_residual", False),
        normed_output=keys.flag("norm_output", False),
        norms=_norms(keys),
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> Eagle3Config:
    """`eagle3`, whose first files name `target_layers` otherwise. The main model's vocabulary is that of the
    tokenizer, which the converter copies.
    """
    tokens = keys.source.get("tokenizer.ggml.tokens")
    count = keys.integer("vocab_size", 1, MAX_VOCAB, len(tokens) if isinstance(tokens, list) else None)
    shape = gguf_decoder(keys, tensors, EAGLE3_GGUF, interleaved=True, vocab_size=count)
    keys, mapping = keys.renamed(target_layers="extract_layers"), tensors.get("d2t")
    return Eagle3Config(
        **shape | {"architecture": NAME, "tied": False},
        main_width=keys.integer("target_hidden_size", 1, _MOST_WIDTH, shape["width"]),
        draft_vocab_size=count if mapping is None else mapping.shape[0],
        layers_before=keys.integers("target_layers", 0, MAX_LAYERS),
        normed_residual=keys.flag("norm_before_residual", False),
    )


def _layers_before(keys: Keys) -> tuple[int, ...]:
    """Apart, the numbers count the layers before a state; in `eagle_config`, they are those of the layers
    that make it.
    """
    name = "eagle_aux_hidden_state_layer_ids"
    inner = keys.table("eagle_config")
    makers = () if inner is None else inner.integers(name, 0, MAX_LAYERS - 1)
    return tuple(layer + 1 for layer in makers) or keys.integers(name, 0, MAX_LAYERS)


def _norms(keys: Keys) -> str:
    together, apart = keys.flag("norm_before_fc", False), keys.flag("fc_norm", False)
    if together and apart:
        raise BadCheckpoint(
            _(
                "config.json sets both norm_before_fc and fc_norm, of which a drafter has one at most; the "
                "file is damaged."
            )
        )
    return "together" if together else "apart" if apart else ""
