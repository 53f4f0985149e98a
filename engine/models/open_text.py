"""The tokenizer and the chat template of a checkpoint, without its weights."""

from __future__ import annotations

from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.weights.checkpoint import Checkpoint


def open_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Raises `ModelNotFound`, `UnsupportedModel`, `BadCheckpoint` for a tokenizer that is missing, of an unknown kind or broken."""
    if checkpoint.format == "gguf":
        return Tokenizer.from_gguf(dict(checkpoint.metadata))
    return Tokenizer.from_folder(checkpoint.path)


def open_text(checkpoint: Checkpoint, template: str = "") -> tuple[Tokenizer, ChatTemplate]:
    """Both; a `template` (Jinja source) takes the place of the model's. Raises what `open_tokenizer` raises, and `BadTemplate`."""
    tokenizer = open_tokenizer(checkpoint)
    if template.strip():
        return tokenizer, ChatTemplate.from_source(template, tokenizer, None if checkpoint.format == "gguf" else checkpoint.path)
    if checkpoint.format == "gguf":
        return tokenizer, ChatTemplate.from_gguf(dict(checkpoint.metadata), tokenizer)
    return tokenizer, ChatTemplate.from_folder(checkpoint.path, tokenizer)
