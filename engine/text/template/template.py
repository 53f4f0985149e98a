"""Chat templates: format a conversation as the text and token ids the model was trained on.

Renders Jinja as `transformers` does (its documentation, "Chat templates"): same block trimming, same
globals, same way to continue the last message. Control tokens come only from the template; what users
write stays text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from engine.core import Message
from engine.errors import BadTemplate
from engine.settings.thinking import AUTO
from engine.text.template.fallback import fallback_format, fallback_source, fallback_stops
from engine.text.template.reasoning import Tag, control_tags, opened_by, tags_in
from engine.text.template.sandbox import BoundedEnvironment, TemplateOverLimit
from engine.text.template.sandbox_limits import text_size
from engine.text.template.source import (
    folder_template,
    folder_tool_template,
    gguf_template,
    gguf_tool_template,
)
from engine.text.template.thinking import ThinkingSwitch, Way, find_switch
from engine.text.template.turns import (
    REASONING,
    Turn,
    as_turn,
    ask_with_system,
    attempts,
    carry_system,
    fold_system,
    in_parts,
    open_end,
    plain_schemas,
    tagged,
    thought_in_parts,
)
from engine.text.tokenizer.hf_folder import special_tokens
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

_PROBE, _PROBE_CALL = "qprobe", "call00001"


class ChatTemplate:
    """A compiled template. `is_fallback` says that the model has none and a generic format is used.

    `stop_strings` end a turn if the model has no token for that (the fallback on a model without known
    control tokens). `special_tokens` are further variables for the template, such as {"unk_token": "<unk>"}.
    `tool_source` is the template for chats with tools, "" if it is this one.
    Raises `BadTemplate`.
    """

    def __init__(
        self,
        source: str,
        bos_token: str | None,
        eos_token: str | None,
        *,
        special_tokens: Mapping[str, str] | None = None,
        is_fallback: bool = False,
        stop_strings: tuple[str, ...] = (),
        tool_source: str = "",
    ) -> None:
        named = {**(special_tokens or {}), "bos_token": bos_token, "eos_token": eos_token}
        self.source, self._tool_source = source, tool_source
        self.is_fallback = is_fallback
        self.stop_strings = stop_strings
        self._variables = {name: text for name, text in named.items() if text is not None}
        self._switch: ThinkingSwitch | None = None
        self._endless: TemplateOverLimit | None = None
        self._environment = BoundedEnvironment()
        self._template = self._environment.compile_bounded(source)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """The template in a GGUF file's metadata, or the fallback."""
        return cls._load(gguf_template(metadata), {}, tokenizer, gguf_tool_template(metadata))

    @classmethod
    def from_folder(cls, path: Path, tokenizer: Tokenizer) -> Self:
        """The template of a Hugging Face folder, or the fallback."""
        return cls._load(folder_template(path), special_tokens(path), tokenizer, folder_tool_template(path))

    @classmethod
    def from_source(cls, source: str, tokenizer: Tokenizer, path: Path | None = None) -> Self:
        """A template supplied by the user; `path` is the Hugging Face folder of its special tokens."""
        return cls._load(source, special_tokens(path) if path is not None else {}, tokenizer)

    @classmethod
    def _load(
        cls, source: str | None, named: Mapping[str, str], tokenizer: Tokenizer, tools: str | None = None
    ) -> Self:
        bos, eos = (
            None if i is None else tokenizer.piece(i)
            for i in (tokenizer.bos_token_id, tokenizer.eos_token_id)
        )
        if source is not None:
            return cls(source, bos, eos, special_tokens=named, tool_source=tools or "")
        name = fallback_format({tokenizer.piece(i) for i in tokenizer.special_ids})
        begin = bos if tokenizer.add_bos else None
        return cls(
            fallback_source(name),
            begin,
            eos,
            special_tokens=named,
            is_fallback=True,
            stop_strings=fallback_stops(name),
        )

    def thinking(self, tokenizer: Tokenizer) -> tuple[tuple[Tag, ...], tuple[Tag, ...]]:
        """All tags that a model with this template and vocabulary may think in, and its control tags."""
        tags = self.tags
        if tokenizer.channels is not None:
            own = tokenizer.channels.format.tags
            return (*own, *(tag for tag in tags if tag not in own)), ()
        return tags, control_tags(tags, tokenizer.special_pattern)

    @cached_property
    def shown(self) -> str:
        """The source, and what it makes of a short conversation at each level of thinking: some templates
        put their tags together from parts.
        """
        thought = {"role": "assistant", "content": "Hello", "reasoning_content": "Well"}
        asked = {"role": "user", "content": "Hello"}
        parts = [self.source]
        for way in (Way(), *self.switch.ways.values()):
            for turns in ([asked], [asked, thought]):
                try:
                    parts.append(self.trial(turns, way.variables))
                except TemplateOverLimit:  # the others would cost as much again
                    return "\n".join(parts)
                except BadTemplate:
                    continue
        return "\n".join(parts)

    @property
    def tags(self) -> tuple[Tag, ...]:
        """The tags that a model with this template may think in."""
        return tags_in(self.shown)

    @cached_property
    def repeats_thoughts(self) -> bool:
        """Whether prompts have the reasoning that messages carry apart from their text, if only that before a
        call whose result comes last, or only at some level of thinking.
        """
        if not any(name in self.source for name in REASONING):
            return False
        asked = {"role": "user", "content": "Hello"}
        thought = {"role": "assistant", "content": "Hello", "reasoning_content": _PROBE}
        result = {"role": "tool", "name": "f", "tool_call_id": _PROBE_CALL, "content": "1"}
        chats: list[list[dict[str, Any]]] = [[asked, thought]]
        for arguments in ({"a": "b"}, '{"a": "b"}'):
            call = {"id": _PROBE_CALL, "type": "function", "function": {"name": "f", "arguments": arguments}}
            chats.append([asked, {**thought, "content": "", "tool_calls": [call]}, result])
        for way in (Way(), *self.switch.ways.values()):
            for turns in chats:
                try:
                    if _PROBE in self.trial(turns, way.variables):
                        return True
                except TemplateOverLimit:  # the others would cost as much again
                    return False
                except BadTemplate:
                    continue
        return False

    @property
    def switch(self) -> ThinkingSwitch:
        """How the template is told how much the model thinks. Found out when it is first needed."""
        if self._switch is None:
            tree = self._environment.parse(self.source)
            self._switch = find_switch(tree, self.trial)
        return self._switch

    def opens(self, tags: Sequence[Tag], thinking: str = AUTO) -> str:
        """The closing tag of the thought that a prompt leaves open, in which a reply then begins; or "".

        `thinking` is as in `ThinkingSettings`.
        """
        way = Way() if thinking == AUTO else self.switch.way(thinking)
        try:
            prompt = self.trial(way.messages([Message("user", "Hello")]), way.variables)
            return opened_by(prompt, tags)
        except BadTemplate:  # it requires other messages; a real conversation shows whether it works
            return ""

    @cached_property
    def twin(self) -> ChatTemplate:
        """The same template for another thread: of one, a rendering waits for the one before."""
        other = self._over(self.source)
        other._tool_source = self._tool_source
        return other

    @cached_property
    def for_tools(self) -> ChatTemplate:
        """The template for chats with tools: the model's own for that, or else this one. Raises
        `BadTemplate`.
        """
        return self._over(self._tool_source) if self._tool_source else self

    def _over(self, source: str) -> ChatTemplate:
        """This template with another source, for another thread."""
        other = copy(self)
        for name, value in vars(ChatTemplate).items():
            if isinstance(value, cached_property):  # what was found out about this source
                other.__dict__.pop(name, None)
        other.source, other._tool_source, other._switch = source, "", None
        other._endless = self._endless if source == self.source else None
        other._environment = BoundedEnvironment()
        other._template = other._environment.compile_bounded(source)
        return other

    def render(
        self,
        messages: Sequence[Turn],
        *,
        add_generation_prompt: bool = True,
        continue_last: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text. `continue_last` leaves the last message open and adds no generation prompt.

        `tools` are functions as JSON schemas, `variables` further names for the template (such as
        {"enable_thinking": False}). If the template refuses a system message or leaves it out, its text is
        put before the first user message; later ones become part of the user's message there. If it refuses
        consecutive messages of one role, they are joined; if it requires tools, it gets an empty list; if it
        refuses the schemas of some, it gets `plain_schemas`; if it cannot do without tools as a text, it gets
        that, and the date. Raises `BadTemplate` with the template's own message or the line that failed.
        """
        if not messages:
            raise BadTemplate(_("There is no message to render; write one first."))
        given = {"tools": None if tools is None else list(tools), "documents": None, **(variables or {})}
        if tools is not None and "xml_tools" in self.source:  # SmolLM3's first template knows them so
            given = {"xml_tools": list(tools), **given}
        ways = [given] if tools is not None else [given, {**given, "tools": [], "documents": []}]
        if tools:
            ways.append({**given, "tools": plain_schemas(given["tools"])})
        if "functions" in self.source:
            ways.append({**_further(tools or ()), **given})
        turns = [as_turn(message) for message in messages]
        said = any(turn.get("role") == "system" and turn.get("content") for turn in turns)
        if said and self._saves_system is not None:
            turns = self._saves_system(turns) or turns
        if self._takes_parts:
            turns = [in_parts(turn) for turn in turns]
        elif any("reasoning_content" in turn for turn in turns) and self._takes_thoughts:
            turns = [thought_in_parts(turn) for turn in turns]
        failure: BadTemplate | None = None
        for attempt in attempts(turns):
            for offered in ways:
                try:
                    return self._render(attempt, add_generation_prompt, continue_last, offered)
                except TemplateOverLimit as error:
                    raise failure or error from error
                except BadTemplate as error:
                    failure = failure or error
        assert failure is not None
        raise failure

    def _render(
        self,
        turns: list[dict[str, Any]],
        add_generation_prompt: bool,
        continue_last: bool,
        given: Mapping[str, Any],
    ) -> str:
        content = ""
        if continue_last:
            content, last = tagged(turns[-1])
            turns = [*turns[:-1], last]
        text = self._environment.render_bounded(
            self._template,
            sum(map(text_size, (turns, given))),
            {
                **self._variables,
                **given,
                "messages": turns,
                "add_generation_prompt": add_generation_prompt and not continue_last,
            },
        )
        return open_end(text, content) if continue_last else text

    def trial(
        self,
        turns: Sequence[Turn],
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt of a short chat, to find out about the template. Raises as `render`, and at once if such
        a trial took too long before.
        """
        _found_out = self._takes_parts  # by trials of its own, before this one
        return self._timed(
            lambda: self.render(
                turns, add_generation_prompt=add_generation_prompt, tools=tools, variables=variables
            )
        )

    def _timed(self, trial: Callable[[], str]) -> str:
        """What a trial makes; after one that took too long there are no more: each would cost as much."""
        if self._endless is not None:
            raise self._endless
        try:
            return trial()
        except TemplateOverLimit as error:
            self._endless = error
            raise

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether the template shows texts only as parts of a list, as some for models with pictures do."""

        def shows(content: object) -> bool:
            given = {"tools": None, "documents": None}
            try:
                turns = [{"role": "user", "content": content}]
                return _PROBE in self._timed(lambda: self._render(turns, True, False, given))
            except BadTemplate:
                return False

        return "text" in self.source and not shows(_PROBE) and shows([{"type": "text", "text": _PROBE}])

    @cached_property
    def _saves_system(self) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]] | None] | None:
        """What makes of a chat one whose system messages the template does not leave out, where it does."""
        first, later = {"role": "system", "content": "qfirst"}, {"role": "system", "content": _PROBE}
        asked, reply = {"role": "user", "content": "qasked"}, {"role": "assistant", "content": "Hello"}
        given = {"tools": None, "documents": None}
        alone, together = [first, asked], [first, later, asked]
        for turns in (alone, together, [first, asked, reply, later, asked], [first, asked, later]):
            try:
                copied = [{**turn} for turn in turns]
                text = self._timed(partial(self._render, copied, True, False, given))
            except TemplateOverLimit:  # the others would cost as much again
                return None
            except BadTemplate:  # a refusal is no loss
                continue
            lost = {turn["role"] for turn in turns if turn["content"] not in text}
            if "user" in lost:  # it shows no chats
                return None
            if "system" in lost:
                return fold_system if turns is alone else partial(carry_system, join=turns is together)
        return None

    def placed(self, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The turns with the system message where this template shows it. Some show it only beside a message
        of the user that ends the chat, so that `render`, as transformers does, leaves it out of a reply that
        is continued, or one to the result of a call.
        """
        return (ask_with_system(turns) if turns and self._needs_question else None) or turns

    @cached_property
    def _needs_question(self) -> bool:
        """Whether the template leaves out a system message unless a message of the user ends the chat."""
        system, asked = {"role": "system", "content": _PROBE}, {"role": "user", "content": "Hello"}
        try:
            chats = ([system, asked], [system, asked, {"role": "assistant", "content": "Hello"}])
            with_question, with_reply = (_PROBE in self.trial(turns) for turns in chats)
        except BadTemplate:  # a refusal is no loss
            return False
        return with_question and not with_reply

    @cached_property
    def _takes_thoughts(self) -> bool:
        """Whether the template shows the reasoning of a message only as a part of a list."""
        asked, text = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello"}
        given = {"tools": None, "documents": None}

        def shows(turn: Mapping[str, Any]) -> bool:
            try:
                return _PROBE in self._timed(lambda: self._render([asked, {**turn}], False, False, given))
            except BadTemplate:
                return False

        apart = as_turn({**text, "reasoning_content": _PROBE})
        return "'thinking'" in self.source and not shows(apart) and shows(thought_in_parts(apart))


def _further(tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What FireFunction's template reads instead of the tools, and the date."""
    functions = [tool.get("function", tool) for tool in tools]
    text = json.dumps(functions, indent=4, ensure_ascii=False) if functions else ""
    return {"functions": text, "datetime": str(date.today())}
