"""A chat source without a model for all desktop tests: it says back what the user said, word by word."""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from desktop.services.engine.model_host import Leaving
from engine.core import (
    Alternative,
    CallPiece,
    ChatEvent,
    ChatRequest,
    Done,
    Foreseen,
    Loading,
    Message,
    ModelInfo,
    Prefill,
    PromptSize,
    Rendered,
    Running,
    Stats,
    Text,
    TokenInfo,
    ToolCall,
    Trimmed,
    Waiting,
)
from engine.errors import BadCheckpoint, Cancelled, EngineError, ModelNotFound
from engine.settings import CacheSettings, LoadSettings

__all__ = ["ECHO_INFO", "EchoApi", "EchoChat", "echo_token"]

ECHO_INFO = ModelInfo(
    path="/models/echo.gguf",
    name="Echo",
    architecture="echo",
    format="gguf",
    parameters=1_000_000,
    bits_per_weight=4.5,
    weights_bytes=562_500,
    layers=2,
    context_length=4096,
    vocab_size=256,
    kv_bytes_per_token=1024,
    stop_token_ids=(2,),
    has_chat_template=True,
    kv_shapes=((4, 32),) * 2,
)
"""What a fake model's headers tell."""


@dataclass
class EchoChat:
    """Streams the last user text back, one word with its white space for each `Text`.

    Several streams may be open, as of a model: while one waits, it has `Waiting`, so that the others go on.
    `delay_s` passes before each word and `prefill_delay_s` between the `prefill_steps` progress events; both
    end at once when the stop event is set. `reply` (if any) is said instead; `error` is raised after
    `error_after` words; `trimmed` oldest messages are said to be left out; `hold`, as it is when the stream
    begins, keeps it from its first word until it is set, and `queue` from reading the prompt; `pauses` maps
    the number of a word to an event that it waits for. `said` counts the words of all replies.

    Continuing goes on with what the reply still lacks
    (as many words as it has are left out when it has others). `suppressed` maps the number of a word to a
    text that is taken back before it; `running_every` words `Running` tells the figures; `ending` is the
    (reason, trigger) of a reply that was said whole. The request's wishes are followed: each token has the
    alternatives asked for, which the likeliest leads; with drafting, `accepted` of 4 drafted tokens are kept
    in each pass, and with the method "model" `draft_error` is raised if there is one, while the draft model
    is being loaded. Where tools are offered, each reply makes the next one of `calls`, in two pieces for each
    call. Every request is kept in `requests`; `threads` are the threads that used it.
    """

    info: ModelInfo = ECHO_INFO
    delay_s: float = 0.0
    prefill_delay_s: float = 0.0
    prefill_steps: int = 1
    reply: str | None = None
    error: Exception | None = None
    error_after: int = 0
    trimmed: int = 0
    hold: threading.Event | None = None
    queue: threading.Event | None = None
    pauses: dict[int, threading.Event] = field(default_factory=dict)
    said: int = 0
    suppressed: dict[int, str] = field(default_factory=dict)
    running_every: int = 0
    ending: tuple[str, str] = ("stop_token", "<|im_end|>")
    accepted: int = 3
    speedup: float = 0.0
    draft_error: Exception | None = None
    requests: list[ChatRequest] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    adapted: dict[tuple[str, ...], ModelInfo] = field(default_factory=dict)
    calls: list[tuple[ToolCall, ...]] = field(default_factory=list)
    closed: bool = False

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """One reply; ends with reason "cancelled" soon after `stop` is set."""
        assert not self.closed, "the model was closed"
        hold = self.hold
        self.requests.append(request)
        self.threads.add(threading.get_ident())
        started = time.perf_counter()
        if self.draft_error is not None and request.speculation.method == "model":
            yield Loading("Draft model: weights", 1, 2, of_draft=True)
            yield from _waiting(hold, stop)
            if stop.is_set():
                raise Cancelled("Loading the draft model was stopped.")
            raise self.draft_error
        prompt = sum(len(message.content.split()) for message in request.messages)
        yield from _waiting(self.queue, stop, queued=True)
        if self.trimmed:
            yield Trimmed(self.trimmed)
        if request.report_prompt:
            yield rendered(request)
        for step in range(1, self.prefill_steps + 1):
            yield from _passing(self.prefill_delay_s, stop)
            yield Prefill(prompt * step // self.prefill_steps, prompt, 0)
            if stop.is_set():
                break
        yield from _waiting(hold, stop)
        prefilled = time.perf_counter()
        count = 0
        reason, trigger = self.ending
        for word in self._words(request):
            if self.error is not None and count == self.error_after:
                raise self.error
            yield from _waiting(self.pauses.get(count + 1), stop)
            yield from _passing(self.delay_s, stop)
            if stop.is_set():
                break
            if request.stops.max_tokens and count == request.stops.max_tokens:
                reason, trigger = "max_tokens", ""
                break
            count += 1
            self.said += 1
            drafted = request.speculation.method != "none" and count % (1 + self.accepted) != 1
            yield Text(
                word,
                (echo_token(word, request.output.alternatives, drafted),),
                self.suppressed.get(count, ""),
            )
            if self.running_every and count % self.running_every == 0:
                yield Running(self._stats(request, prompt, count, started, prefilled))
        for index, call in enumerate(self.calls.pop(0) if request.tools and self.calls else ()):
            yield CallPiece(index, call.id, call.name, call.arguments[:3])
            yield CallPiece(index, arguments=call.arguments[3:])
        if stop.is_set():
            reason, trigger = "cancelled", ""
        yield Done(reason, trigger, self._stats(request, prompt, count, started, prefilled))

    def count(self, text: str) -> int:
        """A token for each word."""
        self.threads.add(threading.get_ident())
        return len(text.split())

    def size(self, request: ChatRequest) -> PromptSize:
        """A token for each word of the messages."""
        room = 0 if request.stops.when_full == "stop" else 16
        return PromptSize(
            sum(self.count(message.content) for message in request.messages), self.info.context_length, room
        )

    def foresee(self, request: ChatRequest) -> Foreseen:
        """A word is a token; nothing is ever cached."""
        shares = tuple(len(message.content.split()) for message in request.messages)
        tools = sum(len(tool.description.split()) for tool in request.tools)
        return Foreseen(sum(shares) + tools, 0, self.info.context_length, 0, shares, tools=tools)

    def described(self, adapters: Sequence[str]) -> ModelInfo:
        """What `adapted` has for these adapters."""
        self.threads.add(threading.get_ident())
        return self.adapted.get(tuple(adapters), self.info)

    def close(self) -> None:
        """Note that the model was released."""
        self.threads.add(threading.get_ident())
        self.closed = True

    def _stats(
        self, request: ChatRequest, prompt: int, count: int, started: float, prefilled: float
    ) -> Stats:
        drafting = request.speculation.method != "none"
        passes = -(-max(0, count - 1) // (1 + self.accepted)) if drafting else max(0, count - 1)
        return Stats(
            prompt_tokens=prompt, prefill_tokens=prompt, new_tokens=count, context_tokens=prompt + count,
            context_length=self.info.context_length, prefill_seconds=prefilled - started,
            first_token_seconds=prefilled - started,
            decode_seconds=max(time.perf_counter() - prefilled, 1e-6), seed=1, passes=passes,
            drafted_tokens=4 * passes if drafting else 0,
            accepted_tokens=self.accepted * passes if drafting else 0,
            speedup=self.speedup if drafting else 0.0,
        )  # fmt: skip

    def _words(self, request: ChatRequest) -> list[str]:
        if request.replayed is not None:
            pieces = {id: data.decode() for id, data, _ in request.replayed.vocabulary}
            request = replace(
                request, messages=(Message("user", "".join(pieces[id] for id in request.replayed.ids[-1:])),)
            )
        said = [message.content for message in request.messages if message.role == "user"]
        text = self.reply if self.reply is not None else (said[-1] if said else "")
        words: list[str] = re.findall(r"\s*\S+|\s+$", text)
        if not request.continue_last:
            return words
        begun = request.messages[-1].content
        if text.startswith(begun):
            return re.findall(r"\s*\S+|\s+$", text.removeprefix(begun))
        return words[len(begun.split()) :]


def _waiting(hold: threading.Event | None, stop: threading.Event, queued: bool = False) -> Iterator[Waiting]:
    """Until the hold or the stop event is set."""
    while hold is not None and not hold.is_set() and not stop.is_set():
        stop.wait(0.002)
        yield Waiting(queued)


def _passing(seconds: float, stop: threading.Event) -> Iterator[Waiting]:
    """So many seconds, or until the stop event is set."""
    until = time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0 and not stop.is_set():
        stop.wait(min(left, 0.002))
        yield Waiting()


def rendered(request: ChatRequest) -> Rendered:
    """A prompt of one control token and one token for each message: its whole text."""
    texts = [message.content for message in request.messages]
    ids = tuple(x for text in texts for x in (7, zlib.crc32(text.encode()) % 30_000 + 10))
    vocabulary = (
        (7, b"<|turn|>", True),
        *((id, text.encode(), False) for id, text in zip(ids[1::2], texts, strict=True)),
    )
    return Rendered(ids, passes=(((0, len(ids) - 1), (len(ids) - 1, 1)),), vocabulary=vocabulary)


def echo_token(word: str, alternatives: int, drafted: bool = False) -> TokenInfo:
    """A token whose id and likelihood follow from the word, and so many alternatives: itself first, then the
    word with a number behind it, each with half of what is left; from the fourth on the sampler has dropped
    them.
    """
    number = zlib.crc32(word.encode())
    share = 0.05 + number % 91 / 100
    shares = [share, *((1 - share) / 2**place for place in range(1, alternatives))][:alternatives]
    others = tuple(
        Alternative(number % 30_000 + 30_000 * place, f"{word}{place or ''}", raw, raw if place < 3 else 0.0)
        for place, raw in enumerate(shares)
    )
    top = tuple((other.id, other.probability) for other in others)
    return TokenInfo(
        number % 30_000,
        word,
        share,
        share,
        top=top,
        alternatives=others,
        entropy=4 * (1 - share),
        drafted=drafted,
        seconds=0.5,
    )


@dataclass
class EchoApi:
    """Stands for `engine.chat.open_chat` and `engine.vision.describe`: pass `echo.open_chat` and
    `echo.describe`.

    `chat` is the source handed out (its `info` follows the opened path); `load_steps` progress events come
    `load_delay_s` apart, and the last step ends when `load_hold` is set; `fail_with` is raised after them; a
    path named "missing..." has no headers, and one named "other..." cannot draft. `opened` lists the opened
    paths.
    """

    chat: EchoChat = field(default_factory=EchoChat)
    load_steps: int = 2
    load_delay_s: float = 0.0
    load_hold: threading.Event | None = None
    fail_with: Exception | None = None
    opened: list[Path] = field(default_factory=list)
    settings: list[tuple[LoadSettings, CacheSettings]] = field(default_factory=list)

    def describe(self, path: Path) -> ModelInfo:
        """The headers of a fake model, named after its file."""
        if path.name.startswith("missing"):
            raise ModelNotFound(f"There is no model at {path}: choose another file.")
        return replace(ECHO_INFO, path=str(path), name=path.stem)

    def draft_problem(self, target: Path, draft: Path) -> str:
        """Why `draft` cannot draft for `target`: by its name, or because it is gone."""
        if not draft.exists():
            return f"There is no model at {draft}: choose another one."
        return f"Its vocabulary is not that of {target.stem}." if draft.name.startswith("other") else ""

    def open_chat(
        self, path: Path, load: LoadSettings, cache: CacheSettings, stop: threading.Event, leaving: Leaving
    ) -> Generator[Loading, None, EchoChat]:
        """Progress, then the chat.

        A set `stop` raises, as the engine does; a path named "bad..." fails before the old model goes.
        """
        if path.name.startswith("bad"):
            raise BadCheckpoint(f"{path.name} lacks tensors.")
        leaving.close()
        self.opened.append(path)
        self.settings.append((load, cache))
        for step in range(self.load_steps):
            yield Loading("Loading weights", step, self.load_steps)
            if stop.wait(self.load_delay_s) if self.load_delay_s else stop.is_set():
                raise EngineError(f"Loading {path.name} was stopped.")
        while self.load_hold is not None and not self.load_hold.wait(0.01):
            if stop.is_set():
                raise EngineError(f"Loading {path.name} was stopped.")
        if self.fail_with is not None:
            raise self.fail_with
        self.chat.info = self.describe(path)
        self.chat.closed = False
        return self.chat
