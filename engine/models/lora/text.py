"""The tokenizer and the chat template of a LoRA adapter: PEFT's folders may have their own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import BadSetting, ModelNotFound
from engine.lazy_dataclass import dataclass
from engine.models.lora.checks import common_vocabulary
from engine.text.template.source import folder_template
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.text.tokenizer.vocabulary import unique
from engine.weights.lora_adapter import open_adapter
from engine.words import _

if TYPE_CHECKING:
    from engine.models.base import Model

_MOST_DIFFERENT = 0.01
"""Of two vocabularies of one model, this part may differ: adapters give unused tokens other names."""


@dataclass(frozen=True, slots=True)
class AdapterText:
    """What texts are made with while adapters are on: `vocabulary` is the size of the model's then."""

    tokenizer: Tokenizer
    template: ChatTemplate
    vocabulary: int


def adapter_text(
    model: Model, paths: tuple[str, ...], tokenizer: Tokenizer, template: ChatTemplate, *, fixed: bool
) -> AdapterText:
    """The tokenizer and the template of the last of the adapters `paths` that have any, and those of the
    model for what none has; a `fixed` template stays.

    Raises `BadSetting` for a tokenizer of another model, and what opening the files raises.
    """
    adapters = [open_adapter(path) for path in paths]
    own, shown = tokenizer, template
    for folder in (adapter.path for adapter in adapters if adapter.path.is_dir()):
        own = _tokenizer(folder, tokenizer) or own
        if not fixed and folder_template(folder) is not None:
            shown = ChatTemplate.from_folder(folder, own)
    if shown is not template or own is not tokenizer:
        own = copy.copy(own) if own is tokenizer else own
        own.hear(shown.thinking(own)[1])
    return AdapterText(own, shown, common_vocabulary(model, adapters))


def _tokenizer(folder: Path, base: Tokenizer) -> Tokenizer | None:
    """The tokenizer in an adapter's folder, which also stops where the model's does; None without one."""
    try:
        own = Tokenizer.from_folder(folder)
    except ModelNotFound:
        return None
    texts, theirs = own.texts, base.texts
    shared = texts.keys() & theirs.keys()
    different = [i for i in shared if texts[i] != theirs[i] and texts[i].replace("▁", " ") != theirs[i]]
    if len(different) > _MOST_DIFFERENT * len(shared):
        raise BadSetting(
            _(
                "The adapter {path} has the tokenizer of another model: token {token} is {text!r} there, and "
                "{text_2!r} in this model; choose an adapter that was made for it.",
                path=folder.name,
                token=min(different),
                text=texts[min(different)][:40],
                text_2=theirs[min(different)][:40],
            )
        )
    own.stop_token_ids = unique([*own.stop_token_ids, *base.stop_token_ids])
    return own
