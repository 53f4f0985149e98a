"""What a chat source is asked: messages and requests, and what it knows of them before it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: `role` is "system", "user", "assistant" or "tool"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """The exact prompt of a reply, told before it is read, and all that is needed to read it again in the
    same way.

    The last `given` of `ids` are the reply's beginning; with `heal` the last one is chosen anew;
    `negative_ids` stand in the negative row of guidance. `passes` are those of the model over each row,
    (first position, number of rows) each; a number of 0 says that it is not known how these were read.
    `vocabulary`: (id, its bytes, whether it is a control token), each id once.
    """

    ids: tuple[int, ...]
    given: int = 0
    heal: bool = False
    negative_ids: tuple[int, ...] = ()
    passes: tuple[tuple[tuple[int, int], ...], ...] = ()
    vocabulary: tuple[tuple[int, bytes, bool], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether it is known of every token how it was read."""
        return bool(self.passes) and all(rows for row in self.passes for _, rows in row)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a chat source.

    `continue_last` keeps the last (assistant) message open and writes on from its end instead of starting a
    new turn. Then `continue_ids`, when there are any, are the exact token ids of that message: they stand in
    the prompt in place of its text. `plain` is a free completion: the text of the last message is the whole
    prompt, without a template but with its control tokens read as such, and the reply goes on from its end
    (`continue_ids` are its exact tokens then, too). With `tell_prompt` the prompt is told as `Rendered`
    before it is read. With `replayed` that prompt is read, in its own passes and without what is cached, and
    the messages are not looked at.
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
    tell_prompt: bool = False
    replayed: Rendered | None = None


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Tokens: of the whole `prompt`, what the context holds, and what is kept free of it for the reply; not
    `exact` where the prompt was too long to be counted to its end.
    """

    prompt: int
    context: int
    reply: int
    exact: bool = True

    @property
    def over(self) -> int:
        """How much too long the prompt is; at most 0 when it fits."""
        return self.prompt + self.reply - self.context


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What reading a prompt will take, tokens: all of it, what of it is cached, and how many messages would
    be left out.

    `messages` are the shares of those that would be read, in order; they come to `prompt_tokens`. What a
    message's place in the template costs is shared out evenly.
    """

    prompt_tokens: int
    cached_tokens: int
    context_length: int
    dropped_messages: int = 0
    messages: tuple[int, ...] = ()
