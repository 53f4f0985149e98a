"""Calls of tools in the replies of one model: what the prompt says of tools, and how a reply is divided."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from engine.constraint import format_source
from engine.constraint.filter import Filter
from engine.core import TOOL_CHOICES, CallPiece, ChatEvent, ChatRequest, Done, Message, Text, Tool
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.settings import ConstraintSettings
from engine.text.template.channels import HARMONY
from engine.text.template.reasoning import Tag
from engine.text.template.template import ChatTemplate
from engine.text.template.turns import Turn
from engine.text.tokenizer.aside import made_aside
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.text.tools.detect import ToolStyle, tool_style
from engine.text.tools.form import CHANNEL_FORMS, KNOWN
from engine.text.tools.messages import conversation, has_tools
from engine.words import _

if TYPE_CHECKING:
    from engine.text.tools.parser import ToolParser

__all__ = ["CallPlan", "ToolCalling", "divided", "offered"]


def offered(request: ChatRequest) -> tuple[Tool, ...]:
    """The tools that the model may call. Raises `BadSetting` for a choice that is none of them."""
    choice = request.tool_choice
    if choice == "none":
        return ()
    if choice not in ("auto", *(tool.name for tool in request.tools)):
        if choice == "required" and request.tools:
            return request.tools
        raise BadSetting(
            _("A tool call is required, but there are no tools; add one.")
            if choice == "required"
            else _(
                "A call of the tool {choice!r} is required, but it is not among the tools.",
                choice=choice[:100],
            )
        )
    return request.tools


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What divides a reply, which tokens may follow in it besides what `constraint` says, and which control
    tokens are part of calls. `channel_calls` is as in `GenerationRequest`.
    """

    parser: ToolParser
    filter: Filter
    constraint: ConstraintSettings
    shown: frozenset[int]
    channel_calls: bool


class ToolCalling:
    """How one model calls tools. Found out when it is first needed."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer, self._template = tokenizer, template

    @cached_property
    def style(self) -> ToolStyle:
        """The model's way of calling tools."""
        piece = self._tokenizer.piece
        control = [piece(id) for id in sorted(self._tokenizer.special_ids)]
        control += self._tokenizer.marker_ids(
            "\n".join(text for text, _form in KNOWN)
        )  # added as plain tokens
        style = tool_style(
            self._template.for_tools, control, [piece(id) for id in self._tokenizer.stop_token_ids]
        )
        channels = self._tokenizer.channels
        return style if channels is None else replace(style, form=CHANNEL_FORMS[channels.format])

    @cached_property
    def shown(self) -> frozenset[int]:
        """The control tokens that calls are written with."""
        if self._tokenizer.channels is not None:  # they are shown as the calls are, see `Channels`
            return frozenset()
        forms = (self.style.form, self.style.form.native)
        return self._tokenizer.control_ids("\n".join(text for form in forms if form for text in form.texts))

    def answer(self, prompt: Sequence[int]) -> list[int]:
        """What an answer begins with after a prompt where no tools are offered; nothing for most models."""
        end = self._tokenizer.decode(prompt[-_TAG_TOKENS:], skip_special=False)
        if not end.strip() or end[-1].isspace() or prompt[-1] in self._tokenizer.special_ids:
            return []  # `style` takes its time
        form = self.style.form
        return self._tokenizer.encode(form.answer) if form.begun and end.endswith(form.begun) else []

    def turns(
        self, messages: Sequence[Message], request: ChatRequest
    ) -> tuple[Sequence[Turn], list[dict[str, object]] | None, dict[str, str]]:
        """Messages as the chat template takes them, the tools to give it, and the characters that stand for
        control tokens in these messages.
        """
        tools = offered(request)
        if not tools and not has_tools(messages):
            return messages, None, {}
        if self.style.writes_calls:
            return *conversation(messages, tools, self.style), {}
        used = set[str]().union(
            *(message.content + message.reasoning for message in messages),
            *(call.name + call.arguments for message in messages for call in message.tool_calls),
            *(tool.name + tool.description + tool.parameters for tool in tools),
        )
        free = (chr(code) for code in range(_FIRST_MARK, _FIRST_MARK + 0x10000) if chr(code) not in used)
        piece = self._tokenizer.piece
        marks = dict(zip(sorted(map(piece, self.shown), key=len, reverse=True), free, strict=False))
        return *conversation(messages, tools, self.style, marks), marks

    @cached_property
    def _tokens(self) -> tuple[tuple[str, int], ...]:
        """The tokens that calls are written with, control tokens or not."""
        channels, texts = self._tokenizer.channels, self.style.form.texts
        headers = () if channels is None else (*channels.format.tokens, *_FURTHER_TOKENS)
        return self._marks("\n".join((*texts, *headers)))

    def _marks(self, text: str) -> tuple[tuple[str, int], ...]:
        """(text, id) of the tokens that a text is written with as they are."""
        stops = self._tokenizer.stop_token_ids
        return tuple(sorted(one for one in self._tokenizer.marker_ids(text).items() if one[1] not in stops))

    def plan(self, request: ChatRequest, tags: Sequence[Tag], prompt: Sequence[int]) -> CallPlan | None:
        """What calls mean for a request with this prompt; None where nothing is offered.

        Raises `BadSetting` for tools whose arguments cannot be enforced.
        """
        tools = offered(request)
        if not tools or request.plain:
            return None
        from engine.text.tools.parser import ToolParser

        end = self._tokenizer.decode(prompt[-_TAG_TOKENS:], skip_special=False).rstrip()
        opened = next((close for begin, close in tags if end.endswith(begin)), "")
        thoughts = self.style.form.ends_thoughts(dict(self._tokens))
        if not request.continue_last:
            inside = bool(self.style.form.begun) and end.endswith(self.style.form.begun)
            parser = ToolParser(
                self.style.form, tools, tags, opened, in_thoughts=thoughts, begun=inside,
                several=request.parallel_tool_calls,
            )  # fmt: skip
            return self._plan(request, tools, parser, tags, opened, inside)
        # the beginning of the reply is part of the prompt: the filter sees it, the parser does not
        begun, before = request.messages[-1].content, self._template.for_tools.opens(tags)
        opened = next((close for begin, close in tags if begun.lstrip().startswith(begin)), before)
        closing = "" if opened in begun else opened
        parser = ToolParser(
            self.style.form, tools, (), closing, in_thoughts=thoughts,
            several=request.parallel_tool_calls, continued=True,
        )  # fmt: skip
        return self._plan(request, tools, parser, tags, before)

    def _plan(
        self,
        request: ChatRequest,
        tools: tuple[Tool, ...],
        parser: ToolParser,
        tags: Sequence[Tag],
        opened: str,
        begun: bool = False,
    ) -> CallPlan:
        from engine.constraint.calls.filter import LazyCalls
        from engine.constraint.calls.grammar import CallGrammar
        from engine.constraint.grammar import GrammarFilter

        choice, constraint = request.tool_choice, request.constraint
        channels = None if self._tokenizer.channels is None else self._tokenizer.channels.format
        if channels is not None and opened:
            opened = channels.thought[1]
        named = choice not in TOOL_CHOICES
        chosen = tuple(tool for tool in tools if tool.name == choice) if named else tools
        several = request.parallel_tool_calls and not named
        grammar = CallGrammar(
            self.style.form, chosen, self._tokens, choice == "auto", several, channels, begun
        )

        def made() -> Filter:
            content = format_source(constraint) if choice == "auto" else None
            if choice == "auto" and content is None:
                if channels is None:
                    return LazyCalls(self._tokenizer, grammar, tags, opened)
                # what channels hold is known by their headers
                begins, ends = channels.thought
                lead = () if channels is HARMONY else ((begins.lstrip(), ends),)
                return LazyCalls(self._tokenizer, grammar, lead, opened)
            source = self._template.for_tools.shown
            own = tuple(tag for tag in tags if all(part in source for part in tag))
            thought = self._marks("\n".join((opened, *(part for tag in own for part in tag))))
            tokens = tuple(sorted({*self._tokens, *thought}))
            return GrammarFilter(self._tokenizer, replace(grammar, tokens=tokens).whole(own, opened, content))

        found = made_aside("calls", made)
        return CallPlan(
            parser, found, replace(constraint, format="none", pattern=""), self.shown, channels is not None
        )


_FURTHER_TOKENS = ("<|constrain|>",)
"""Tokens that a header may have besides those that begin and end it."""
_FIRST_MARK = 0x100000
"""The first of the characters for private use that no font has."""
_TAG_TOKENS = 32
"""The most tokens that a tag may have."""


_CUT = ("max_tokens", "time_limit", "context_full", "cancelled")
"""Ends of replies that the model did not choose, nor a text of them."""


def divided(events: Generator[ChatEvent, None, None], parser: ToolParser) -> Iterator[ChatEvent]:
    """The events of a reply, whose calls are pieces of their own instead of text."""
    with closing(events):
        for event in events:
            if isinstance(event, Text):
                yield from _pieces(parser.feed(event.text), event)
                continue
            if isinstance(event, Done):
                yield from _pieces(parser.finish(cut=event.reason in _CUT), None)
            yield event


def _pieces(pieces: Sequence[str | CallPiece], event: Text | None) -> Iterator[ChatEvent]:
    """Pieces as events; the tokens of `event` come with the first text, or alone."""
    tokens, suppressed = (event.tokens, event.suppressed) if event is not None else ((), "")
    if (tokens or suppressed) and not (pieces and isinstance(pieces[0], str)):
        pieces = ["", *pieces]
    for piece in pieces:
        if isinstance(piece, CallPiece):
            yield piece
        else:
            yield Text(piece, tokens, suppressed)
            tokens, suppressed = (), ""
