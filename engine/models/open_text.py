"""Opens the tokenizer and the chat template of a checkpoint."""

from __future__ import annotations

from engine.platform.garbage import gc_paused
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights.checkpoint import Checkpoint


def open_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Raises `ModelNotFound`, `UnsupportedModel` or `BadCheckpoint`: missing, of an unknown kind, broken."""
    with gc_paused():
        if checkpoint.format == "gguf":
            return Tokenizer.from_gguf(dict(checkpoint.metadata))
        return Tokenizer.from_folder(checkpoint.path)


def open_text(checkpoint: Checkpoint, template: str = "") -> tuple[Tokenizer, ChatTemplate]:
    """Open both; a `template` (Jinja source) replaces the model's.

    Raises `BadTemplate` and what `open_tokenizer` raises.
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
