"""Chat templates: a conversation to the text and the token ids the model was trained on.

Renders Jinja as `transformers` does (its documentation, "Chat templates"): same block trimming, same globals, same way to
continue the last message. Control tokens come only from the template: what people write stays text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Self

from engine.core import Message
from engine.errors import BadTemplate
from engine.text.folder_tokenizer import special_tokens
from engine.text.sandbox import BoundedEnvironment, TemplateOverLimit
from engine.text.template_source import folder_template, gguf_template
from engine.text.tokenizer import Tokenizer

_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_PRIVATE_USE = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFD))
_FALLBACK_END = "<|im_end|>"


class ChatTemplate:
    """A compiled template. `is_fallback` says that the model has none and ChatML stands in.

    `stop_strings` end a turn where the model has no token for it (the fallback on a model without ChatML tokens).
    `special_tokens` are more variables for the template, such as {"unk_token": "<unk>"}. Raises `BadTemplate`.
    """

    def __init__(
        self, source: str, bos_token: str | None, eos_token: str | None, *, special_tokens: Mapping[str, str] | None = None,
        is_fallback: bool = False, stop_strings: tuple[str, ...] = (),
    ) -> None:
        named = {**(special_tokens or {}), "bos_token": bos_token, "eos_token": eos_token}
        self.source = source
        self.is_fallback = is_fallback
        self.stop_strings = stop_strings
        self._variables = {name: text for name, text in named.items() if text is not None}
        self._environment = BoundedEnvironment()
        self._template = self._environment.compile_bounded(source)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """The template in a GGUF file's metadata, or the fallback."""
        return cls._load(gguf_template(metadata), {}, tokenizer)

    @classmethod
    def from_folder(cls, path: Path, tokenizer: Tokenizer) -> Self:
        """The template of a Hugging Face folder, or the fallback."""
        return cls._load(folder_template(path), special_tokens(path), tokenizer)

    @classmethod
    def from_source(cls, source: str, tokenizer: Tokenizer, path: Path | None = None) -> Self:
        """A template of the user's own; `path` is the Hugging Face folder whose special tokens it can name."""
        return cls._load(source, special_tokens(path) if path is not None else {}, tokenizer)

    @classmethod
    def _load(cls, source: str | None, named: Mapping[str, str], tokenizer: Tokenizer) -> Self:
        bos, eos = (None if i is None else tokenizer.piece(i) for i in (tokenizer.bos_token_id, tokenizer.eos_token_id))
        if source is not None:
            return cls(source, bos, eos, special_tokens=named)
        ends = () if tokenizer.special_pattern.fullmatch(_FALLBACK_END) else (_FALLBACK_END,)
        return cls(fallback_source(), bos if tokenizer.add_bos else None, eos, special_tokens=named, is_fallback=True, stop_strings=ends)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, continue_last: bool = False) -> str:
        """The prompt's text. `continue_last` leaves the last message open and adds no generation prompt.

        A template that refuses a system message gets its text at the head of the first user message instead.
        Raises `BadTemplate` with the template's own words or the line that failed.
        """
        if not messages:
            raise BadTemplate("There is no message to render; write one first.")
        try:
            return self._render(messages, add_generation_prompt, continue_last)
        except BadTemplate as error:
            folded = fold_system(messages)
            if folded is None or isinstance(error, TemplateOverLimit):
                raise
            return self._render(folded, add_generation_prompt, continue_last)

    def _render(self, messages: Sequence[Message], add_generation_prompt: bool, continue_last: bool) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        if continue_last:
            turns[-1]["content"] += _CONTINUE_TAG
        text = self._environment.render_bounded(
            self._template, sum(len(message.content) for message in messages), messages=turns, tools=None, documents=None,
            add_generation_prompt=add_generation_prompt and not continue_last, **self._variables,
        )
        return _open_end(text, messages[-1].content) if continue_last else text


def _open_end(text: str, content: str) -> str:
    """`text` up to the end of the last message, which the tag marks; `transformers` cuts at the same place."""
    at = text.rfind(_CONTINUE_TAG.strip())
    if at < 0 or content.strip() not in text:
        raise BadTemplate("The chat template leaves out part of the last message, so it cannot be continued; start a new reply instead.")
    return text[:at] if text[at : at + len(_CONTINUE_TAG)] == _CONTINUE_TAG else text[:at].rstrip()


def fold_system(messages: Sequence[Message]) -> list[Message] | None:
    """The messages with all system texts put before the first user message; None when there are none or no user message."""
    system = [message.content for message in messages if message.role == "system"]
    rest = [message for message in messages if message.role != "system"]
    first = next((i for i, message in enumerate(rest) if message.role == "user"), None)
    if not system or first is None:
        return None
    rest[first] = Message("user", "\n\n".join([*system, rest[first].content]))
    return rest


def fallback_source() -> str:
    """ChatML, for models that bring no template."""
    return resources.files("resources").joinpath("templates", "chatml.jinja").read_text(encoding="utf-8")


def encode_chat(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], *, add_generation_prompt: bool = True,
    continue_last: bool = False,
) -> tuple[str, list[int]]:
    """The prompt's text and token ids. No BOS is added beyond the one the template writes.

    Texts of control tokens inside messages stay text: while the template runs, a private-use character stands for each.
    """
    guard = _ContentGuard(tokenizer, [message.content for message in messages] + [message.role for message in messages] + [template.source])
    guarded = [Message(guard.whole(message.role), guard.edges(guard.whole(message.content))) for message in messages]
    text = template.render(guarded, add_generation_prompt=add_generation_prompt, continue_last=continue_last)
    return text.translate(guard.literal), tokenizer.encode_parts(text, guard.literal)


class _ContentGuard:
    """Swaps pieces of messages for private-use characters that occur nowhere else; `literal` maps them back."""

    def __init__(self, tokenizer: Tokenizer, texts: Iterable[str]) -> None:
        used = {char for text in texts for char in text}
        self._free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        self._pattern = tokenizer.special_pattern
        self._starts, self._ends = tokenizer.special_edges()
        self._longest = max(map(len, self._starts), default=0)
        self._mark_of: dict[str, str] = {}
        self.literal: dict[int, str] = {}

    def _mark(self, piece: str) -> str:
        if not piece:
            return ""
        if piece not in self._mark_of:
            self._mark_of[piece] = mark = next(self._free)
            self.literal[ord(mark)] = piece
        return self._mark_of[piece]

    def whole(self, text: str) -> str:
        """`text` with each control token's text swapped."""
        return self._pattern.sub(lambda match: self._mark(match[0]), text)

    def edges(self, text: str) -> str:
        """`text` with a beginning or end swapped that could join its neighbours to the text of a control token."""
        core = text.strip()  # templates often trim what they are given
        if not core:
            return text
        before, after = text[: text.index(core)], text[text.index(core) + len(core) :]
        longest = min(self._longest, len(core))
        head = next((n for n in range(longest, 0, -1) if core[:n] in self._ends), 0)
        tail = next((n for n in range(min(longest, len(core) - head), 0, -1) if core[-n:] in self._starts), 0)
        middle = core[head : len(core) - tail]
        return before + self._mark(core[:head]) + middle + self._mark(core[len(core) - tail :]) + after
