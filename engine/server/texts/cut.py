"""Prompts that are cut at their beginning if they are too long, as KoboldCpp cuts them.

Source: KoboldCpp's API documentation (lite.koboldai.net/koboldcpp_api), `max_context_length`, `memory`.
"""

from __future__ import annotations

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that may lose its beginning, after a `memory` that stays; they and the reply take up to `most`
    tokens of the context (0: all of it).
    """

    memory: str
    text: str
    most: int = 0


def cut_ids(tokenizer: Tokenizer, prompt: Cut, context: int, reply: int) -> list[int]:
    """The ids of a prompt, which leave room for `reply` further tokens, up to half of the context: the text
    loses its beginning, a memory that is too long by itself its own; a BOS token stays.

    Raises `BadSetting` for an empty prompt.
    """
    context = min(prompt.most or context, context)
    room = context - min(reply, context // 2)
    ids = tokenizer.encode(prompt.memory + prompt.text, special=True, add_bos=tokenizer.add_bos)
    if not ids:
        raise BadSetting("The prompt is empty, but a model needs at least one token to continue.")
    if len(ids) <= room:
        return ids
    begin = tokenizer.encode("", special=True, add_bos=tokenizer.add_bos)
    memory, text = (tokenizer.encode(part, special=True) for part in (prompt.memory, prompt.text))
    memory = memory[max(0, len(memory) - (room - len(begin))) :]
    return [*begin, *memory, *text[max(0, len(text) - (room - len(begin) - len(memory))) :]]
