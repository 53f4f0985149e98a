"""What prompts and replies are made with: the model's tokenizer and template, or those of its adapters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import ModelInfo
from engine.generator.prompt.pictures import PlacesPictures
from engine.generator.prompt.prompt import Prompts
from engine.lazy_dataclass import dataclass
from engine.text.template.reasoning import Tag
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.models.base import Model

Adapters = tuple[tuple[str, float], ...]
_MOST = 8
"""How many sets of adapters are remembered, the model alone included."""


@dataclass(frozen=True, slots=True)
class ChatText:
    """A tokenizer, a template, the prompts of both, the tags that the model may think in, and the size of the
    vocabulary.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    prompts: Prompts
    thinking: tuple[Tag, ...]
    vocabulary: int


def with_thinking(info: ModelInfo, template: ChatTemplate, tags: tuple[Tag, ...]) -> ModelInfo:
    """What is known of a model, with what its template says of thoughts between `tags`."""
    switch = template.switch
    return replace(
        info,
        thinking=tags,
        opens_thought=template.opens(tags),
        thinking_levels=tuple((level, template.opens(tags, level)) for level in switch.levels),
        thinking_default=switch.default,
    )


class ChatTexts:
    """The `ChatText` of each set of adapters. Used by one thread."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        context_length: int,
        pictures: PlacesPictures | None,
        *,
        fixed: bool,
    ) -> None:
        """`fixed`: the user chose the template, so that adapters do not change it."""
        self._model, self._context_length, self._fixed = model, context_length, fixed
        self._pictures = pictures
        self.own = self._made(tokenizer, template, model.own_vocabulary)
        self._found: dict[tuple[str, ...], ChatText] = {}

    def of(self, adapters: Adapters) -> ChatText:
        """The text of a model with these adapters. Raises as `adapter_text`."""
        paths = tuple(path for path, _strength in adapters)
        if not paths:
            return self.own
        from engine.models.lora.text import adapter_text

        if paths not in self._found:
            own = self.own
            found = adapter_text(self._model, paths, own.tokenizer, own.template, fixed=self._fixed)
            if len(self._found) >= _MOST:
                self._found.pop(next(iter(self._found)))
            same = found.tokenizer is own.tokenizer and found.vocabulary == own.vocabulary
            made = own if same else self._made(found.tokenizer, found.template, found.vocabulary)
            self._found[paths] = made
        return self._found[paths]

    def _made(self, tokenizer: Tokenizer, template: ChatTemplate, vocabulary: int) -> ChatText:
        thinking = template.thinking(tokenizer)[0]
        prompts = Prompts(tokenizer, template, self._context_length, self._pictures)
        return ChatText(tokenizer, template, prompts, thinking, vocabulary)
