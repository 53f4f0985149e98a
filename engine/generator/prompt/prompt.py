"""From a chat request to token ids: the template, turns left out where the context is full, replies in
their own tokens.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from engine.core import FIRST_PICTURE_ID, ChatRequest, Message, PromptSize
from engine.errors import BadSetting, ContextTooLong
from engine.generator.prompt.context import OldestFirst, WrittenReplies, reply_room
from engine.generator.prompt.pictures import PlacesPictures, marked, numbered
from engine.generator.prompt.tool_calls import ToolCalling
from engine.generator.request import Guidance
from engine.lazy_dataclass import dataclass
from engine.settings.thinking import AUTO
from engine.text.template.encoding import encode_chat
from engine.text.template.reasoning import Tag, split_thoughts, without_thoughts
from engine.text.template.template import ChatTemplate
from engine.text.template.thinking import Way
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads: `dropped` of the oldest messages are left out, or `cut` tokens of a plain text's
    beginning; the last `given` ids are the reply's beginning.
    """

    dropped: int
    ids: list[int]
    given: int = 0
    guidance: Guidance | None = None
    cut: int = 0


class Prompts:
    """Makes the prompts of one model's conversations, and remembers how it wrote its replies."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        context_length: int,
        pictures: PlacesPictures | None = None,
    ) -> None:
        """`pictures` knows those of messages; without it, models read their names alone."""
        self.context_length = context_length
        self._pictures = pictures
        self._tokenizer = tokenizer
        self._template = template
        self.calling = ToolCalling(tokenizer, template)
        self._window = OldestFirst(context_length)
        self._written = WrittenReplies(tokenizer)
        channels = tokenizer.channels
        self._tags, control = template.thinking(tokenizer)
        self._hidden = control if channels is None else channels.format.tags
        if channels is not None:
            self._tags = channels.format.tags
        self._counted: tuple[object, int] = (None, 0)  # of tools
        self._count = functools.lru_cache(1 << 12)(lambda text: len(tokenizer.encode(text)))

    @functools.cached_property
    def _opened(self) -> str:
        """What closes the thoughts that prompts leave open at any level of thinking."""
        template = self._template
        found = (template.opens(self._tags, level) for level in (AUTO, *template.switch.levels))
        return next((closing for closing in found if closing), "")

    def build(self, request: ChatRequest) -> Prompt:
        """The prompt of a request.

        Raises `ContextTooLong`, `BadTemplate`, and `BadSetting` when there is nothing to continue.
        """
        if request.plain:
            return self._plain(request)
        if request.continue_last and (not request.messages or request.messages[-1].role != "assistant"):
            raise BadSetting(_("There is no reply to continue: the last message is not from the assistant."))
        kept: Sequence[Message] = ()

        def encode(messages: Sequence[Message]) -> list[int]:
            nonlocal kept
            kept = messages
            return self._encode(messages, request)

        if request.stops.when_full == "drop_oldest":
            dropped, ids = self._window.fit(
                request.messages, encode, reply_room(self.context_length, request.stops.max_tokens)
            )
        else:
            dropped, ids = 0, encode(request.messages)
        if len(ids) > self.context_length:
            raise ContextTooLong(
                _(
                    "The chat has {ids:,} tokens, but the context holds {context_length:,}; drop the "
                    "oldest messages, start a new chat, or choose a larger context length.",
                    ids=len(ids),
                    context_length=self.context_length,
                )
            )
        return Prompt(dropped, ids, self._given(ids, kept, request), self._guidance(kept, request))

    def size(self, request: ChatRequest) -> PromptSize:
        """How long the prompt is when nothing is left out of it, and what is kept free for the reply.

        Raises `BadTemplate`.
        """
        drops = request.stops.when_full == "drop_oldest"
        reply = reply_room(self.context_length, request.stops.max_tokens) if drops else 0
        return PromptSize(len(self._encode(request.messages, request)), self.context_length, reply)

    def shares(self, messages: Sequence[Message], total: int) -> tuple[int, ...]:
        """The tokens of each message in a prompt of `total`, with its place in the template."""
        own = [self._count(message.content) + self._picture_tokens(message) for message in messages]
        # a template may leave something out, such as earlier thoughts
        scale = min(1.0, total / max(1, sum(own)))
        ends = [round(scale * end) for end in accumulate(own)]
        rest = total - ends[-1]
        ends = [end + rest * (place + 1) // len(ends) for place, end in enumerate(ends)]
        return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))

    def _picture_tokens(self, message: Message) -> int:
        if self._pictures is None:
            return 0
        placed = (numbered(self._pictures.placed(picture), 0) for picture in message.pictures)
        pieces = (piece for each in placed for piece in each)
        return sum(self._count(piece) if isinstance(piece, str) else len(piece) for piece in pieces)

    def tool_tokens(self, request: ChatRequest) -> int:
        """The tokens of the definitions of the request's tools: those by which they make the shortest chat
        with its system message longer.
        """
        if request.plain or not request.tools:
            return 0
        messages = (*request.messages[: request.messages[0].role == "system"], Message("user", "?"))
        counted = messages, request.tools, request.thinking
        if counted != self._counted[0]:
            with_tools, without = (
                len(self._ids(messages, replace(request, tools=tools))) for tools in (request.tools, ())
            )
            self._counted = counted, max(0, with_tools - without)
        return self._counted[1]

    def _plain(self, request: ChatRequest) -> Prompt:
        """The prompt of a free completion.

        A text beyond the context loses its beginning where `stops.when_full` lets it.
        """
        if not request.messages:
            raise BadSetting(_("There is no text to continue."))
        first = self._tokenizer.encode("", add_bos=self._tokenizer.add_bos)
        text = list(request.continue_ids) or self._text_ids(request.messages[-1])
        cut, most = 0, self.context_length - len(first)
        if request.stops.when_full == "drop_oldest":
            most -= reply_room(self.context_length, request.stops.max_tokens)
            # cut in steps: the beginning stays the same, and cached, for many tokens
            step = max(1, self.context_length // 8)
            cut = min(len(text), -(-max(0, len(text) - most) // step) * step)
            while cut < len(text) and text[cut] >= FIRST_PICTURE_ID:  # its tokens are not divided
                cut += 1
        elif len(text) > most:
            raise ContextTooLong(
                _(
                    "The text has {text:,} tokens, but the context holds {context_length:,}; shorten "
                    "it, let its beginning be dropped, or choose a larger context length.",
                    text=len(text) + len(first),
                    context_length=self.context_length,
                )
            )
        ids = [*first, *text[cut:]]
        if not ids:
            raise BadSetting(_("There is no text to continue."))
        return self.completion(ids, request, cut)

    def _text_ids(self, message: Message) -> list[int]:
        """The ids of a text to continue, with its pictures."""
        pictures = None
        if self._pictures is not None:
            pictures, (message,) = marked((message,), self._pictures)
        if pictures is None:
            return self._tokenizer.encode(message.content, special=True)
        return pictures.encode(self._tokenizer, message.content, {})[1]

    def completion(self, ids: Sequence[int], request: ChatRequest, cut: int = 0) -> Prompt:
        """The prompt of exactly these ids, with the negative prompt of the request where it wants
        guidance.
        """
        guidance = None
        if request.guidance.cfg_scale != 1.0:
            negative = (
                self._tokenizer.encode(request.guidance.negative_prompt, add_bos=self._tokenizer.add_bos)
                or ids[-1:]
            )
            guidance = Guidance(tuple(negative), request.guidance.cfg_scale)
        return Prompt(0, list(ids), guidance=guidance, cut=cut)

    def remember(self, prompt: Prompt, ids: Sequence[int], *, healed: bool) -> None:
        """A reply was written in these tokens; when `healed`, the first of them took the place of the
        prompt's last one.
        """
        before = len(prompt.ids) - max(prompt.given, healed)
        state = prompt.ids[before : -1 if healed else None]
        written = [id for id in ids if id not in self._tokenizer.special_ids]
        self._written.remember(prompt.ids[:before], state + written)

    def _encode(self, messages: Sequence[Message], request: ChatRequest) -> list[int]:
        if request.continue_last and request.continue_ids:
            return [*self._state(messages, request), *request.continue_ids]
        last = request.continue_last
        begin = request.begin_reply and not last
        ids = self._ids(messages, request, add_generation_prompt=begin, continue_last=last)
        return self._written.restore(ids)

    def _ids(
        self,
        messages: Sequence[Message],
        request: ChatRequest,
        *,
        add_generation_prompt: bool = True,
        continue_last: bool = False,
    ) -> list[int]:
        return self.rendered(
            messages, request, add_generation_prompt=add_generation_prompt, continue_last=continue_last
        )[1]

    def rendered(
        self,
        messages: Sequence[Message],
        request: ChatRequest,
        *,
        add_generation_prompt: bool = True,
        continue_last: bool = False,
    ) -> tuple[str, list[int]]:
        """The text and the ids that messages become with the tools of a request. Raises `BadTemplate`.

        Thoughts at the beginning of replies are given apart to a template that repeats some of them. Else
        those between control tokens are left out: written back they would be mere text.
        """
        template = self._template.for_tools if request.tools else self._template
        parted = messages[:-1] if continue_last else messages
        messages = [
            *(self._parted(message, template) for message in parted),
            *map(self._answer, messages[len(parted) :]),
        ]
        asked = request.thinking.thinking
        way = Way() if asked == AUTO else self._template.switch.way(asked)
        given = json.loads(request.template_variables) if request.template_variables else {}
        pictures, messages = (None, messages) if self._pictures is None else marked(messages, self._pictures)
        turns, tools, marks = self.calling.turns(way.messages(messages), request)
        text, ids = encode_chat(
            self._tokenizer,
            self._template,
            turns,
            add_generation_prompt=add_generation_prompt,
            continue_last=continue_last,
            tools=tools,
            marks=marks,
            variables={**way.variables, **given},
            pictures=pictures,
        )
        begins = self.calling.answer(ids) if add_generation_prompt and tools is None else []
        return text + self._tokenizer.decode(begins), ids + begins

    def _parted(self, message: Message, template: ChatTemplate) -> Message:
        """A message of the assistant with its thoughts apart, if this template repeats any; other messages as
        they are.
        """
        if message.role != "assistant" or message.reasoning or not self._may_think(message.content):
            return self._answer(message)
        called = bool(message.tool_calls)  # which end a thought that has no end
        thought, text = split_thoughts(message.content, self._tags, self._opened, unclosed=called)
        if thought and template.repeats_thoughts:
            return replace(message, content=text, reasoning=thought)
        if called and self._hidden:
            return replace(message, content=split_thoughts(message.content, *self._control, unclosed=True)[1])
        return self._answer(message)

    def _may_think(self, text: str) -> bool:
        """Whether a reply has a tag of a thought that may be at its beginning."""
        begins, ends, last = self._marks
        if text.lstrip().startswith(begins):
            return True
        # a character is found much faster than a tag, and in most texts there is none of these
        return any(char in text for char in last) and any(end in text for end in ends)

    @functools.cached_property
    def _marks(self) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        """What thoughts begin with, what they end with, and the last characters of that, each once."""
        begins, ends = (tuple(dict.fromkeys(one)) for one in zip(*self._tags, strict=True))
        return begins, ends, "".join({end[-1] for end in ends})

    @functools.cached_property
    def _control(self) -> tuple[tuple[Tag, ...], str]:
        """The tags that are written with control tokens, and what closes the thoughts that prompts leave
        open, if it is one of these.
        """
        return self._hidden, self._opened if any(self._opened == tag[1] for tag in self._hidden) else ""

    def _answer(self, message: Message) -> Message:
        """A message of the assistant without thoughts between control tokens."""
        if not self._hidden or message.role != "assistant":
            return message
        return replace(message, content=without_thoughts(message.content, *self._control))

    def _state(self, messages: Sequence[Message], request: ChatRequest) -> list[int]:
        """The prompt up to where the last message, a reply, begins."""
        return self._written.restore(self._ids(messages[:-1], request))

    def _given(self, ids: list[int], messages: Sequence[Message], request: ChatRequest) -> int:
        """How many of the last ids belong to the reply that is continued."""
        if not request.continue_last:
            return 0
        if request.continue_ids:
            return len(request.continue_ids)
        state = self._state(messages, request)
        if ids[: len(state)] == state:
            return len(ids) - len(state)
        return min(len(self._tokenizer.encode(messages[-1].content)), len(ids))

    def _guidance(self, messages: Sequence[Message], request: ChatRequest) -> Guidance | None:
        """The same conversation under the negative system prompt."""
        guidance = request.guidance
        if guidance.cfg_scale == 1.0:
            return None
        system = (Message("system", guidance.negative_prompt),) if guidance.negative_prompt.strip() else ()
        ids = self._encode((*system, *(message for message in messages if message.role != "system")), request)
        if len(ids) > self.context_length:
            raise ContextTooLong(
                _(
                    "With the negative prompt the chat has {ids:,} tokens, but the context holds "
                    "{context_length:,}; shorten the negative prompt or choose a larger context "
                    "length.",
                    ids=len(ids),
                    context_length=self.context_length,
                )
            )
        return Guidance(tuple(ids), guidance.cfg_scale)
