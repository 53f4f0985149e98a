"""The tokenizer and the chat template of a checkpoint, without its weights."""

from __future__ import annotations

from engine.platform.garbage import no_garbage_search
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights.checkpoint import Checkpoint


def open_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Raises `ModelNotFound`, `UnsupportedModel`, `BadCheckpoint` for a tokenizer that is missing, of an
    unknown kind or broken.
    """
    with no_garbage_search():
        if checkpoint.format == "gguf":
            return Tokenizer.from_gguf(dict(checkpoint.metadata))
        return Tokenizer.from_folder(checkpoint.path)


def open_text(checkpoint: Checkpoint, template: str = "") -> tuple[Tokenizer, ChatTemplate]:
    """Both; a `template` (Jinja source) takes the place of the model's.

    Raises what `open_tokenizer` raises, and `BadTemplate`.
    """
    tokenizer = open_tokenizer(checkpoint)
    made = _open_template(checkpoint, template, tokenizer)
    tokenizer.hear(made.thinking(tokenizer)[1])
    return tokenizer, made


def _open_template(checkpoint: Checkpoint, template: str, tokenizer: Tokenizer) -> ChatTemplate:
    if template.strip():
        return ChatTemplate.from_source(
            template, tokenizer, None if checkpoint.format == "gguf" else checkpoint.path
        )
    if checkpoint.format == "gguf":
        return ChatTemplate.from_gguf(dict(checkpoint.metadata), tokenizer)
    return ChatTemplate.from_folder(checkpoint.path, tokenizer)
