"""Tells drafters, which can do nothing without a main model, from models of their own.

Their configurations are in `eagle3`, `dflash` and `gemma4_assistant`, which only a drafter's own loading
imports: every model's loading asks here first.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lazy_dataclass import dataclass
from engine.models.names import GGUF, HF, TensorNames
from engine.weights.checkpoint import Checkpoint

EAGLE3_GGUF = "eagle3"
"""general.architecture of EAGLE-3 drafters in GGUF files."""
CLASSES = (
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaEagle3ForCausalLM", "LlamaEagle3DraftModel",
    "Eagle3Speculator", "Eagle3DraftModel",
)  # fmt: skip
"""Names of drafters in config.json."""
DFLASH_GGUF, DFLASH_CLASSES = "dflash", ("DFlashDraftModel",)
"""The names of DFlash drafters in GGUF files and in config.json."""
ASSISTANT_GGUF = ("gemma4-assistant",)
ASSISTANT_CLASSES = ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM")
"""The names of Gemma 4's assistants in GGUF files and in config.json."""


@dataclass(frozen=True, slots=True)
class Eagle3Names:
    """The names in a file, without ".weight"; `decoder` has those of layers, tables and the last norm."""

    decoder: TensorNames
    fusion: str
    hidden_norm: str
    """After the beginning of the first layer's names."""
    joined_norm: str
    state_norm: str
    """Holds "{}" for the number of the state."""
    mapping: str = "d2t"
    """The full name of what leads from drafted tokens to those of the main model: these, or what is added to
    a token's number.
    """
    absolute: bool = False
    """Whether it is these."""


def names_of(checkpoint: Checkpoint) -> Eagle3Names:
    """The names in a checkpoint: those of a folder, with or without "model." before them, whose only layer
    may be the "midlayer", or those of a GGUF file.
    """
    tensors = checkpoint.tensors
    if checkpoint.format == "gguf":
        return Eagle3Names(GGUF, "fc", "attn_norm_2", "", "", absolute=True)
    at = "model." if "model.fc.weight" in tensors else ""
    decoder = HF if at else HF.under("-")
    if any(name.startswith(at + "midlayer.") for name in tensors):
        decoder = replace(decoder, layer=at + "midlayer.")
    return Eagle3Names(decoder, at + "fc", "hidden_norm", at + "input_norm", at + "fc_norm.{}")


def is_eagle3(checkpoint: Checkpoint) -> bool:
    """Whether a file or folder is an EAGLE-3 drafter, by what it says, or else by its tensors: the first ones
    name the class of any Llama.
    """
    if checkpoint.format == "gguf":
        return bool(checkpoint.metadata.get("general.architecture") == EAGLE3_GGUF)
    config, tensors = checkpoint.metadata["config"], checkpoint.tensors
    kind, classes = config.get("speculators_model_type"), config.get("architectures")
    if kind is not None:
        return bool(kind == "eagle3")
    if isinstance(classes, list) and bool(classes) and classes[0] in CLASSES:
        return True
    names = names_of(checkpoint)
    norm = names.decoder.at(0) + names.hidden_norm + ".weight"
    return names.fusion + ".weight" in tensors and norm in tensors


def is_dflash(checkpoint: Checkpoint) -> bool:
    """Whether a file or folder is a DFlash drafter."""
    if checkpoint.format == "gguf":
        return bool(checkpoint.metadata.get("general.architecture") == DFLASH_GGUF)
    return _class_of(checkpoint) in DFLASH_CLASSES


def dflash_names(checkpoint: Checkpoint) -> tuple[TensorNames, str]:
    """The names in a DFlash drafter, without ".weight": those of layers, tables and the last norm, and the
    context's norm.
    """
    if checkpoint.format == "gguf":
        return GGUF, "enc.output_norm"
    return HF.under("-"), "hidden_norm"


def is_drafter(checkpoint: Checkpoint) -> bool:
    """Whether a file or folder drafts for another model and can do nothing without it."""
    return is_assistant(checkpoint) or is_eagle3(checkpoint) or is_dflash(checkpoint)


def is_assistant(checkpoint: Checkpoint) -> bool:
    """Whether a file or folder is an assistant of Gemma 4."""
    if checkpoint.format == "gguf":
        return checkpoint.metadata.get("general.architecture") in ASSISTANT_GGUF
    return _class_of(checkpoint) in ASSISTANT_CLASSES


def _class_of(checkpoint: Checkpoint) -> str:
    """The class in a folder's config.json; "" if there is none."""
    names = None if checkpoint.format == "gguf" else checkpoint.metadata["config"].get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""
