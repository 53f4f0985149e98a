"""GGUF files that hold no model that writes text from left to right: a sentence that says what each is."""

from __future__ import annotations

from collections.abc import Mapping

from engine.words import N_, translate

_DIFFUSION = N_(
    "{path} is a diffusion language model ({name}): it fills in a text in any order, which is not supported. "
    "Choose a model that writes from left to right."
)
_BOTH = N_(
    "{path} is an encoder-decoder model ({name}), such as T5, which is not supported. Choose a decoder model."
)
_PICTURES = N_(
    "{path} holds only the part of a model that takes pictures or sounds (mmproj), no language model. Choose "
    "the model's other GGUF file."
)
_SOUND = N_(
    "{path} makes sound of the codes of another model ({name}); it does not write text. Choose a language "
    "model."
)
_ENCODER = N_(
    "{path} is an encoder ({name}) that embeds texts and cannot write any; this one is not supported. Choose "
    "another embedding model."
)
_ADAPTER = N_(
    "{path} holds an adapter (LoRA), no whole model; load the model that it belongs to, and choose this file "
    "as its adapter."
)
_NO_MODEL = N_(
    "{path} holds no model, but data of the kind {name} that belongs to one. Choose the model's own GGUF "
    "file."
)
_IMAGES = N_("{path} makes pictures or films ({name}); it does not write text. Choose a language model.")
_UNREAD = N_(
    "{path} names the architecture {name}, for which no program reads GGUF files. Choose the model's folder "
    "with safetensors files."
)
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("llada", "llada-moe", "dream", "rnd1", "diffusion-gemma"), _DIFFUSION),
    "t5": _BOTH, "t5encoder": _ENCODER, "neo-bert": _ENCODER, "clip": _PICTURES, "wavtokenizer-dec": _SOUND,
    "gptj": _UNREAD,
    **dict.fromkeys(("imatrix", "controlvector"), _NO_MODEL),
    **dict.fromkeys(
        (
            "flux", "sd1", "sd3", "sdxl", "aura", "hidream", "cosmos", "ltxv", "hyvid", "wan", "lumina2",
            "qwen_image", "z_image",
        ), _IMAGES,
    ),
}  # fmt: skip
_TYPES: Mapping[str, str] = {
    "adapter": _ADAPTER, "imatrix": _NO_MODEL, "vocab": _NO_MODEL, "mmproj": _PICTURES,
}  # fmt: skip
"""By `general.type`."""


def of_another_type(type: object, path: str) -> str | None:
    """The sentence for a GGUF file of this `general.type`; None where it may be a model."""
    words = _TYPES.get(type) if isinstance(type, str) else None
    return None if words is None else translate(words, path=path, name=type)


def what_it_is(name: str, path: str) -> str | None:
    """The sentence for a GGUF file of this architecture; None where it may be a language model."""
    words = _KINDS.get(name)
    return None if words is None else translate(words, path=path, name=name)
