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
_UNREAD = N_(
    "{path} names the architecture {name}, for which no program reads GGUF files. Choose the model's folder "
    "with safetensors files."
)
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("llada", "llada-moe", "dream", "rnd1", "diffusion-gemma"), _DIFFUSION),
    "t5": _BOTH, "t5encoder": _ENCODER, "neo-bert": _ENCODER, "clip": _PICTURES, "wavtokenizer-dec": _SOUND,
    "gptj": _UNREAD,
}  # fmt: skip


def what_it_is(name: str, path: str) -> str | None:
    """The sentence for a GGUF file of this architecture; None where it may be a language model."""
    words = _KINDS.get(name)
    return None if words is None else translate(words, path=path, name=name)
