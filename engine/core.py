"""What crosses the engine's border: messages, requests, the events of a stream, and statistics.

Everything here is frozen and holds only str, int, float and tuples, so that it can cross threads freely.

Shape letters used in all docstrings: T rows (tokens of one step), V vocabulary, E model width, H query heads,
G key/value heads, D head dimension, F feed-forward width, L layers, P pages, N out features, K in features.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from engine.printable import one_line
from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)

PAGE_TOKENS = 256
"""Token positions in one page of the key/value cache."""


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
class Stats:
    """Counts and times of one reply. Times are seconds; `first_token_seconds` counts from the request.

    `passes` of the model were run after the prompt; `drafted_tokens` were proposed by a drafter and
    `accepted_tokens` of them kept. `speedup` is the measured speed with drafting over the measured speed
    without it, 0 while either is unknown.
    """

    prompt_tokens: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    context_tokens: int = 0
    context_length: int = 0
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    seed: int = 0
    passes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    speedup: float = 0.0

    @property
    def acceptance_rate(self) -> float:
        """The share of drafted tokens that were kept; 0 when none were drafted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens for each pass of the model after the prompt's; 1 without drafting, 0 before the first
        such pass.
        """
        return (self.new_tokens - 1) / self.passes if self.passes and self.new_tokens > 1 else 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens run through the model for each second of prefill; 0 when nothing was run."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first for each second of decoding; 0 when there was at most one."""
        return (
            (self.new_tokens - 1) / self.decode_seconds
            if self.decode_seconds > 0 and self.new_tokens > 1
            else 0.0
        )


DRAFT_STAGE = "Draft model: "
"""What stages begin with while a draft model is loaded."""


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading a model or compiling kernels: `stage` is a short text for people."""

    stage: str
    done: int
    total: int

    @property
    def of_draft(self) -> bool:
        """Whether it is a draft model that is loaded."""
        return self.stage.startswith(DRAFT_STAGE)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress of reading the prompt, in tokens. `cached` of the `total` were in the cache already."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The context was full: this many of the oldest messages, or tokens of a plain text's beginning, were
    left out of the prompt.
    """

    dropped_messages: int
    dropped_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have stood there: its own text, the model's probability and the final one (0 when
    a step dropped it).
    """

    id: int
    text: str
    raw_probability: float
    probability: float


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One token of a reply: `raw_probability` is the model's own, `probability` the one after all sampler
    steps.

    When asked for, `top` holds (id, final probability) pairs, likeliest first, and `alternatives` the tokens
    that the model itself held likeliest. `entropy` is that of the model's own distribution, nats. `drafted`:
    a drafter proposed it.
    `healed`: it took the place of the prompt's last token, whose text it begins with. `seconds` counts from
    the request.
    """

    id: int
    text: str
    probability: float
    raw_probability: float
    top: tuple[tuple[int, float], ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    entropy: float = 0.0
    drafted: bool = False
    healed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the reply that is certain: never half a character, never part of a stop string or of a
    banned one.

    `suppressed` is text that was taken back, unseen, because a banned string had come up; other words are
    written in its place.
    """

    text: str
    tokens: tuple[TokenInfo, ...] = ()
    suppressed: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """How the reply goes, a few times a second."""

    stats: Stats


STOP_REASONS = (
    "stop_token", "stop_string", "stop_regex", "end_filter", "max_tokens", "time_limit", "loop",
    "context_full", "cancelled",
)  # fmt: skip
"""Every value `Done.reason` can have; "end_filter" says that a constraint was fulfilled and allows nothing
more.
"""


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a reply. `trigger` is the text that fired: the stop string, what the expression
    matched, the stop token's text, the repeated part of a loop; empty for limits.
    """

    reason: str
    trigger: str
    stats: Stats


ChatEvent = Loading | Rendered | Prefill | Trimmed | Text | Running | Done
"""What a chat source yields: any number of the other kinds, then one `Done`."""


@dataclass(frozen=True, slots=True)
class Downloading:
    """Progress of a download in bytes; `total` is 0 while unknown. `stage` is a short text for people."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The last event of a download: the finished, checked file."""

    path: str


@dataclass(frozen=True, slots=True)
class WorkSpace:
    """Bytes that a model's passes take beside its weights and its cache: `row` for each of the `rows` of a
    step, `position` for each position of the context, `fixed` for all.
    """

    rows: int = 0
    row: int = 0
    position: int = 0
    fixed: int = 0

    def bytes(self, context: int) -> int:
        """For conversations of up to `context` tokens."""
        return min(self.rows, context) * self.row + context * self.position + self.fixed


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the headers of a model say, and of a loaded model how it runs. Sizes are bytes; texts are safe to
    show; "" and 0 mean unknown or none.
    """

    path: str
    name: str
    """The name to show."""
    architecture: str
    format: str
    """"gguf" or "safetensors"."""
    parameters: int
    bits_per_weight: float
    weights_bytes: int
    layers: int
    context_length: int
    vocab_size: int
    kv_bytes_per_token: int
    stop_token_ids: tuple[int, ...]
    """All ids that end a turn, from generation_config.json or the GGUF metadata."""
    has_chat_template: bool
    kv_heads: int = 0
    head_dim: int = 0
    quantisation: str = ""
    """The usual name of the weights' format: "Q4_K", "GPTQ 4-bit", "BF16"."""
    licence: str = ""
    """As the file states it."""
    resident_bytes: int = 0
    """The weights in memory, once loaded on the CPU."""
    read_bytes: int = 0
    """The bytes of `resident_bytes` that one decoded token reads."""
    defaults: tuple[tuple[str, float], ...] = ()
    """The sampler settings that the model's authors recommend: (field of `SamplerSettings`, value)."""
    advised_context: int = 0
    """The context in tokens beyond which the model gets worse."""
    plain: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The weights that can be quantised while loading: their number and bytes without the head, and those of
    the head.
    """
    work: WorkSpace = WorkSpace()
    """The work space of the passes on the CPU."""
    backend: str = ""
    """The name of the backend that a loaded model runs on."""
    where: str = ""
    """That backend's `Backend.where`."""
    cache_bytes: int = 0
    """The memory of a GPU that the cache of a loaded model takes."""
    thinking: tuple[tuple[str, str], ...] = ()
    """The (opening, closing) tags that a loaded model may think in, those of its template first."""
    opens_thought: str = ""
    """The tag that closes the thought that prompts leave open."""
    threads: int = 0
    """The CPU threads that a loaded model computes on."""
    fallback_template: str = ""
    """The general format that replaces a missing chat template ("gemma", "plain"; see
    `engine.text.template.fallback`).
    """
    file_bytes: int = 0
    """The size of the files, headers included."""
    gpu_bytes: int = 0
    """`resident_bytes` on a GPU."""
    gpu_work: WorkSpace = WorkSpace()
    """`work` on a GPU."""
    notice: str = ""
    """A sentence for the user if a loaded model runs otherwise than expected, such as on the CPU though there
    is a GPU.
    """
    report: str = ""
    """Details of `notice`, to be copied."""

    def __post_init__(self) -> None:
        for name in ("name", "architecture", "format", "quantisation", "licence", "notice"):
            object.__setattr__(self, name, one_line(getattr(self, name)))

    @property
    def size(self) -> int:
        """Bytes of the files that hold the weights: what is downloaded, and what a file manager shows."""
        return self.file_bytes or self.weights_bytes


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


class ChatSource(Protocol):
    """Something that answers: a local model, later a remote endpoint. Used by one thread only."""

    info: ModelInfo

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply.

        Setting `stop` ends it within one token, also during prefill, with reason "cancelled".
        """
        ...

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        ...

    def size(self, request: ChatRequest) -> PromptSize:
        """How long the prompt of a request is when nothing is left out of it, without running anything."""
        ...

    def foresee(self, request: ChatRequest) -> Foreseen:
        """What reading the prompt of a request would take now; nothing is read.

        Raises as `stream` does before it begins.
        """
        ...

    def close(self) -> None:
        """Release the model's memory and threads."""
        ...
