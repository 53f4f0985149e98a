"""What a reply's events become for every endpoint: pieces of reasoning, of text and of calls of tools,
log-probabilities, and at the end a reason and the counts of tokens.

`reply_work` runs on the model's thread and turns the engine's events into the few kinds below; `Writer` turns
those of one choice into pieces, on the server's thread.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from engine.chat import LocalChat
from engine.core import (
    CallPiece,
    ChatEvent,
    ChatRequest,
    Done,
    Prefill,
    Rendered,
    Stats,
    Text,
    TokenInfo,
    Waiting,
)
from engine.lazy_dataclass import dataclass
from engine.server.host import Work
from engine.server.openai.custom import InputText
from engine.server.thoughts import Tags, ThoughtSplitter
from engine.text.tokenizer.aside import encoded_aside

FINGERPRINT = "fp_inglenook"
"""The `system_fingerprint` of all answers, which some clients need to be a text."""
LEAST_LOGPROB = -9999.0
"""The log-probability of a token that cannot be, as OpenAI writes it."""


@dataclass(frozen=True, slots=True)
class Score:
    """A token with the logarithm of the model's own probability of it, and its likeliest alternatives. The
    first token of a text has no probability.
    """

    id: int
    bytes: bytes
    logprob: float | None
    top: tuple[Score, ...] = ()

    @property
    def text(self) -> str:
        """The token's text; bytes that are no character are replaced."""
        return self.bytes.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Begun:
    """The request was accepted and is in the queue."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """The prompt, before it is read. `opened` closes the thought that the reply begins in, or is empty."""

    ids: tuple[int, ...]
    opened: str


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of the prompt has been read, in tokens; `cached` of the `total` were in the cache."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Written:
    """More of the reply, `tokens` of them; with their scores if these are requested."""

    text: str
    tokens: int
    scores: tuple[Score, ...] = ()

    @property
    def weight(self) -> int:
        """About its bytes of memory."""
        return 128 + 4 * len(self.text) + sum(160 * (1 + len(score.top)) for score in self.scores)


@dataclass(frozen=True, slots=True)
class Called:
    """More of a call that the reply makes."""

    piece: CallPiece

    @property
    def weight(self) -> int:
        """About its bytes of memory."""
        return 192 + 4 * len(self.piece.name + self.piece.arguments)


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is complete, or was cut: `reason` and `trigger` as in `Done`."""

    reason: str
    trigger: str
    stats: Stats


ReplyEvent = Begun | Prompted | Reading | Written | Called | Ended


def reply_work(
    make_events: Callable[[LocalChat, threading.Event], Iterator[ChatEvent]], logprobs: int | None,
    *, bounded: bool = False,
) -> Work:  # fmt: skip
    """The work of one reply, whose `ReplyEvent`s cross; with the scores of its tokens and of their `logprobs`
    likeliest alternatives unless that is None. `bounded`: nothing is left out of a prompt that is too long.
    """

    def work(chat: LocalChat, stop: threading.Event) -> Generator[Any, None, None]:
        begun = False
        most = chat.context_length if bounded else 0
        events = yield from encoded_aside(chat.tokenizer, lambda: make_events(chat, stop), most)
        assert isinstance(events, Generator)
        with closing(events):
            for event in events:
                if not begun:
                    begun = True
                    yield Begun()
                yield from _crossing(chat, event, logprobs)

    return work


def chat_work(request: ChatRequest, logprobs: int | None) -> Work:
    """The work of a reply to messages. A format that needs more tokens than it may have is cut."""
    request = replace(request, may_cut=True)
    bounded = request.stops.when_full != "drop_oldest"
    return reply_work(lambda chat, stop: chat.stream(request, stop), logprobs, bounded=bounded)


def _crossing(chat: LocalChat, event: ChatEvent, logprobs: int | None) -> Iterator[ReplyEvent | Waiting]:
    """What crosses to the server of an event of the engine."""
    if isinstance(event, Text):
        scores = () if logprobs is None else tuple(_score(chat, token, logprobs) for token in event.tokens)
        yield Written(event.text, len(event.tokens), scores)
    elif isinstance(event, CallPiece):
        yield Called(event)
    elif isinstance(event, Done):
        yield Ended(event.reason, event.trigger, event.stats)
    elif isinstance(event, Prefill):
        yield Reading(event.done, event.total, event.cached)
    elif isinstance(event, Rendered):
        end = chat.tokenizer.decode(event.ids[-_TAG_TOKENS:], skip_special=False).rstrip()
        opened = next((close for open, close in chat.thinking if end.endswith(open)), "")
        yield Prompted(event.ids, opened)
    else:
        yield Waiting()


_TAG_TOKENS = 32
"""The most tokens that a tag may have."""


def _score(chat: LocalChat, token: TokenInfo, count: int) -> Score:
    bytes_of = chat.tokenizer.token_bytes
    top = tuple(
        Score(other.id, bytes_of(other.id), logprob(other.raw_probability))
        for other in token.alternatives[:count]
    )
    return Score(token.id, bytes_of(token.id), logprob(token.raw_probability), top)


def logprob(probability: float) -> float:
    """The natural logarithm of a probability."""
    return math.log(probability) if probability > 0 else LEAST_LOGPROB


# -- on the server's thread


@dataclass(frozen=True, slots=True)
class Delta:
    """A further piece of a choice: of its reasoning, its text, or of a call; what is there stands in this
    order.

    A call begins with the piece that has a name; its arguments are those of all its pieces together.
    """

    reasoning: str = ""
    text: str = ""
    scores: tuple[Score, ...] = ()
    call: CallPiece | None = None
    custom: bool = False
    """Whether the call is of a custom tool; its arguments are the tool's input then."""


class Writer:
    """One choice while it is written: divides what comes into reasoning, text and calls.

    `begun` is the beginning of the reply, which the request gave; `custom` as in `openai.tools.Offer`.
    """

    def __init__(self, tags: Tags, begun: str = "", custom: Collection[str] = ()) -> None:
        self._tags, self._given, self._custom = tags, begun, custom
        self._input: InputText | None = None
        self._splitter = ThoughtSplitter(tags)
        self._splitter.feed(begun)
        self.reasoning_tokens = 0
        self.calls = 0
        """Calls begun so far."""
        self._arguments: list[str] = []  # of the last call
        self.ended: Ended | None = None

    def feed(self, event: ReplyEvent) -> Delta | None:
        """The piece that an event adds; None if there is none."""
        if isinstance(event, Prompted):
            if event.opened and not self._given:
                self._splitter = ThoughtSplitter(self._tags, event.opened)
        elif isinstance(event, Written):
            if self._splitter.inside:
                self.reasoning_tokens += event.tokens
            return _delta(self._splitter.feed(event.text), event.scores)
        elif isinstance(event, Called):
            if event.piece.name:
                self.calls += 1
                self._arguments.clear()
                self._input = InputText() if event.piece.name in self._custom else None
            self._arguments.append(event.piece.arguments)
            if self._input is None:
                return _delta(self._splitter.finish(), (), event.piece)
            piece = replace(event.piece, arguments=self._input.feed(event.piece.arguments))
            given = piece if piece.name or piece.arguments else None
            return _delta(self._splitter.finish(), (), given, custom=True)
        elif isinstance(event, Ended):
            self.ended = event
            return _delta(self._splitter.finish(), ())
        return None

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for the end."""
        assert self.ended is not None
        if self.ended.reason in _CUT:
            return "length"
        cut = self.ended.reason not in _WHOLE and not _is_json("".join(self._arguments))
        return "tool_calls" if self.calls and not cut else "stop"

    @property
    def stop_reason(self) -> str | None:
        """The stop string that ended the choice, as vLLM reports it."""
        assert self.ended is not None
        return self.ended.trigger if self.ended.reason == "stop_string" else None


_CUT = ("max_tokens", "context_full", "time_limit", "loop")
_WHOLE = ("stop_token", "end_filter")
"""Ends after which the last call is complete."""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _delta(
    pieces: list[tuple[bool, str]],
    scores: tuple[Score, ...],
    call: CallPiece | None = None,
    *,
    custom: bool = False,
) -> Delta | None:
    reasoning = "".join(text for inside, text in pieces if inside)
    text = "".join(text for inside, text in pieces if not inside)
    return Delta(reasoning, text, scores, call, custom) if reasoning or text or scores or call else None


def usage(ends: list[Ended], reasoning_tokens: int = 0) -> dict[str, Any]:
    """The counts of all choices of a request; the prompt counts once for each different one."""
    prompt = ends[0].stats.prompt_tokens
    new = sum(end.stats.new_tokens for end in ends)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": ends[0].stats.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def joined(events: Sequence[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """The same events; neighbours that are text of one reply, or of one call, become one, for a client that
    reads slowly.
    """
    run, of = list[Any](), 0
    for number, event in events:
        if run and not (number == of and _continues(run[-1], event)):
            yield of, _joint(run)
            run = []
        run.append(event)
        of = number
    if run:
        yield of, _joint(run)


def _continues(before: Any, event: Any) -> bool:
    """Whether an event of a reply is more of the text or the call of the one before it."""
    if isinstance(event, Called):
        return isinstance(before, Called) and not event.piece.name
    return isinstance(event, Written) and isinstance(before, Written)


def _joint(run: Sequence[Any]) -> Any:
    """Events that continue each other as one."""
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, Called):
        arguments = "".join(event.piece.arguments for event in run)
        return Called(CallPiece(first.piece.index, first.piece.id, first.piece.name, arguments))
    scores = tuple(score for event in run for score in event.scores)
    return Written("".join(event.text for event in run), sum(event.tokens for event in run), scores)
