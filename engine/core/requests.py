"""Messages and requests to a chat source, and what it can say of a request before it answers."""

from __future__ import annotations

from dataclasses import field

from engine.lazy_dataclass import dataclass
from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
)

TOOL_CHOICES = ("auto", "none", "required")
"""The values of `ChatRequest.tool_choice` that are not the name of a tool."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments, as a JSON text;
    empty for none.
    """

    name: str
    description: str = ""
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool: `arguments` is the JSON text of an object, `id` what its result refers to."""

    id: str
    name: str
    arguments: str


def picture_words(name: str) -> str:
    """What stands for a picture in the text of a message."""
    return f"[picture: {name}]" if name else "[picture]"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a message.

    Attributes:
        name: the name of its file.
        key: what names it in the caller's store.
        width, height: in pixels.
        media_type: of `data`: "image/png" or "image/jpeg".
        data: the bytes of the file; empty where only the length of a prompt is asked for.
    """

    name: str
    key: str = ""
    width: int = 0
    height: int = 0
    media_type: str = ""
    data: bytes = field(default=b"", repr=False)

    @property
    def words(self) -> str:
        """What stands for it in the message's `content`."""
        return picture_words(self.name)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: `role` is "system", "user", "assistant" or "tool".

    Attributes:
        tool_calls: the tools that this message of the assistant calls, after its `content`.
        tool_call_id: the call that this message of a tool answers.
        name: the tool that it is from.
        reasoning: the thoughts before the assistant's `content`, for templates that repeat them.
        pictures: of a user's message, in their order. The `content` has the `words` of each, for models that
            take no pictures; for others, the picture takes their place.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    reasoning: str = ""
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """The exact prompt of a reply, reported before it is read, with all that is needed to read it again in
    the same way.

    The last `given` of `ids` are the reply's beginning; with `heal` the last one is chosen again.
    `negative_ids` are the negative row of guidance. `passes` are those of the model over each row, (first
    position, number of rows) each; 0 rows: it is not known how these positions were read. `vocabulary` holds
    (id, its bytes, whether it is a control token), each id once.
    """

    ids: tuple[int, ...]
    given: int = 0
    heal: bool = False
    negative_ids: tuple[int, ...] = ()
    passes: tuple[tuple[tuple[int, int], ...], ...] = ()
    vocabulary: tuple[tuple[int, bytes, bool], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether it is known how every token was read."""
        return bool(self.passes) and all(rows for row in self.passes for _, rows in row)


class Priority:
    """A priority that may be changed, by any thread, while the reply is written."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a chat source.

    Attributes:
        continue_last: keep the last (assistant) message open and continue it, without starting a new turn.
        begin_reply: the template begins the reply's turn, unless `continue_last`; otherwise the model begins
            it itself.
        continue_ids: the exact token ids of the text to continue; they replace it in the prompt.
        plain: a free completion: the text of the last message is the whole prompt, without a template but
            with its control tokens, and the reply continues it.
        report_prompt: report the prompt as `Rendered` before it is read.
        replayed: read this prompt, in its own passes and without the cache, and ignore the messages except
            their pictures, which the prompt's tokens of pictures mean.
        priority: of several replies at a time, those of higher priority come first; those below 0 go on only
            while there is no other. A `Priority` may be changed meanwhile.
        tools: what the model may call; calls are reported as `CallPiece`.
        tool_choice: one of `TOOL_CHOICES`, or the name of the tool that must be called; with "none" the tools
            are not offered.
        parallel_tool_calls: whether one reply may hold several calls.
        template_variables: further names for the chat template, as the JSON text of an object, such as
            '{"enable_thinking": false}'. They come before what `thinking` sets.
        may_cut: a reply in a format that needs more tokens than it may have is cut rather than refused.
        local_only: what this is about must not leave this computer: sources that would send it refuse.
    """

    messages: tuple[Message, ...]
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    stops: StopSettings = field(default_factory=StopSettings)
    continue_last: bool = False
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    constraint: ConstraintSettings = field(default_factory=ConstraintSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    adapters: AdapterSettings = field(default_factory=AdapterSettings)
    continue_ids: tuple[int, ...] = ()
    plain: bool = False
    report_prompt: bool = False
    replayed: Rendered | None = None
    priority: int | Priority = 0
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    template_variables: str = ""
    thinking: ThinkingSettings = field(default_factory=ThinkingSettings)
    local_only: bool = False
    may_cut: bool = False
    begin_reply: bool = True


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Tokens of the whole `prompt`, of the `context`, and of the part of it that is reserved for the `reply`;
    not `exact` if the prompt was too long to be counted to its end.
    """

    prompt: int
    context: int
    reply: int
    exact: bool = True

    @property
    def over(self) -> int:
        """By how many tokens the prompt is too long; at most 0 if it fits."""
        return self.prompt + self.reply - self.context


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Tokens that reading a prompt will take: all of them, those that are cached, and the number of messages
    that would be left out.

    `messages` are the tokens of the messages that would be read, in order, and `tools` those of the
    definitions of tools; they add up to `prompt_tokens`. The template's own tokens are divided evenly among
    the messages. Not `exact`: the counts are estimated.
    """

    prompt_tokens: int
    cached_tokens: int
    context_length: int
    dropped_messages: int = 0
    messages: tuple[int, ...] = ()
    exact: bool = True
    tools: int = 0
