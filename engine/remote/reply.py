"""The events of one reply: sends the request, follows the stream, applies what the server lacks."""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import field

import httpx2

from engine.core import CallPiece, ChatEvent, Done, Loading, Running, Stats, TokenInfo, Waiting
from engine.errors import EngineError
from engine.lazy_dataclass import dataclass
from engine.remote.chunks import CallPart, Chunk, Usage, read_chunk
from engine.remote.exchange import Answer, Ended, Event, Exchange
from engine.remote.gate import Gate, Passed
from engine.remote.keys import hidden
from engine.remote.provider import Provider
from engine.remote.request import Prepared
from engine.remote.tokens import UNKNOWN_ID, Aligner, TokenNumbers
from engine.remote.trouble import failed, lost, malformed, refused, retry_after, seconds_words, who
from engine.text.template.reasoning import PLAIN_TAG
from engine.words import _

RUNNING_SECONDS = 0.25
"""How often a running reply reports its statistics."""
MOST_WAITS, LONGEST_WAIT = 3, 60.0
"""A server that asks to wait (Retry-After) is asked again this often, after at most this many seconds."""
AFTER_END_SECONDS = 5.0
"""How long to wait for the counts that may follow the end of a reply."""
SLOW_SECONDS = 10
"""After so long the reader is told, second by second, how long the server has taken."""
_DONE = "[DONE]"
_DROPPED = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
"""Errors of a connection that was closed: without any answer, it is worth one more try."""


@dataclass
class Place:
    """Where and how to ask; shared by the replies of one model.

    `finishes`: complete replies say why they end. `wait` returns when something has come for any reply, or
    after a moment; `notify` ends it.
    """

    provider: Provider
    key: str = field(repr=False)
    model: str
    wait: Callable[[], object]
    notify: Callable[[], object]
    context_length: int = 0
    finishes: bool = False
    clock: Callable[[], float] = time.perf_counter
    numbers: TokenNumbers = field(default_factory=TokenNumbers)
    running: set[Exchange] = field(default_factory=set)


class Reply:
    """One reply, iterated once. `counted` are the tokens that the server has counted; None if it has not."""

    def __init__(
        self, place: Place, prepared: Prepared, stop: threading.Event, *, in_thought: bool = False,
        estimated: int = 0, seed: int = 0,
    ) -> None:  # fmt: skip
        """`in_thought`: the text that is continued ends within a thought. `estimated`: tokens of the
        prompt, until the server counts them.
        """
        self._place, self._prepared, self._stop = place, prepared, stop
        self._estimated, self._seed = estimated, seed
        self._started = place.clock()
        self._first = self._last = self._reported = 0.0
        self._gate = Gate(prepared.here)
        self._aligner = Aligner(place.numbers)
        self._characters = codecs.getincrementaldecoder("utf-16-le")("replace")
        self._thinks = in_thought
        self._begin = prepared.begin
        self._new_tokens = 0
        self._end = Chunk()
        """What the server says of the end, once it has."""
        self._ended_at = 0.0
        self._broken = ""
        self._calls: list[int | None] = []
        """The server's number of each call so far."""
        self.counted: Usage | None = None

    def events(self) -> Iterator[ChatEvent]:
        """Raises `EngineError`: what had come is yielded before, and is valid."""
        yield Loading(_("Waiting for {who}", who=who(self._place.provider)), 0, 0)
        try:
            ended = yield from self._attempts()
        except EngineError:
            yield from self._held()
            raise
        rest = yield from self._held()
        reason, trigger = ended.reason or rest.reason, ended.trigger or rest.trigger
        if not reason:
            reason, trigger = self._server_reason()
        yield Done(reason, trigger, self.stats())

    def stats(self) -> Stats:
        """The figures so far."""
        usage = self.counted or Usage(self._estimated, 0)
        new = usage.completion or self._new_tokens
        return Stats(
            prompt_tokens=usage.prompt, prefill_tokens=usage.prompt - usage.cached,
            cached_tokens=usage.cached, new_tokens=new, context_tokens=usage.prompt + new,
            context_length=self._place.context_length, first_token_seconds=self._first,
            decode_seconds=self._last - self._first, seed=self._seed,
        )  # fmt: skip

    def _now(self) -> float:
        """Seconds since the request."""
        return self._place.clock() - self._started

    # -- the connection

    def _attempts(self) -> Generator[ChatEvent, None, Passed]:
        """Follow the stream to its end, with further attempts where the server asks for one."""
        waits, dropped = 0, False
        while True:
            outcome = yield from self._followed()
            if isinstance(outcome, Passed):
                return outcome
            if isinstance(outcome, Ended):
                if dropped:
                    raise lost(outcome.error, self._place.provider)
                dropped = True
                continue
            seconds = retry_after(outcome)
            waits += 1
            if seconds is None or seconds > LONGEST_WAIT or waits > MOST_WAITS:
                raise refused(outcome, self._place.provider, self._place.model, self._place.key)
            if (yield from self._patient(max(1.0, seconds))):
                return Passed(None, "cancelled")

    def _followed(self) -> Generator[ChatEvent, None, Passed | Answer | Ended]:
        """One attempt: how the reply ended, or the answer that asks to wait, or the connection that was
        closed before any answer.
        """
        place = self._place
        exchange = Exchange(place.provider, place.key, self._prepared.call, place.notify)
        place.running.add(exchange)
        try:
            while not self._stop.is_set():
                item = exchange.take()
                if item is None:
                    passed = self._gate.at(self._now())
                    if passed.shown is not None:
                        yield passed.shown
                    if passed.reason or (
                        self._end.finish and self._now() > self._ended_at + AFTER_END_SECONDS
                    ):
                        return passed
                    yield from self._idle()
                elif isinstance(item, Ended):
                    return self._closed(item)
                elif self._broken:
                    raise malformed(place.provider, hidden(self._broken, place.key), bool(self._first))
                elif isinstance(item, Answer) and _asks_to_wait(item) and not self._first:
                    return item
                else:
                    if isinstance(item, Event) and item.data.strip() == _DONE:
                        return self._completed()
                    passed = yield from self._took(self._chunk(item))
                    if passed.reason:
                        return passed
            return Passed(None, "cancelled")
        finally:
            exchange.abort()
            place.running.discard(exchange)

    def _idle(self) -> Iterator[ChatEvent]:
        """Nothing has come: let others go on, and say how long it has taken."""
        self._place.wait()
        taken = int(self._now())
        if not self._first and taken >= SLOW_SECONDS and taken > self._reported:
            self._reported = taken
            yield Loading(
                _("Waiting for {who} for {taken} s", who=who(self._place.provider), taken=taken), 0, 0
            )
        yield Waiting()

    def _closed(self, end: Ended) -> Passed | Ended:
        """The connection is closed. Raises `RemoteError` if the reply is not complete."""
        if self._end.finish:
            return Passed(None)
        if not self._first and isinstance(end.error, _DROPPED):
            return end
        raise lost(end.error, self._place.provider, begun=bool(self._first))

    def _completed(self) -> Passed:
        """The server says that nothing more comes. Raises `RemoteError` if it has broken the reply off, as
        llama-cpp-python does when another request arrives.
        """
        if self._place.finishes and not self._end.finish:
            raise lost(None, self._place.provider, begun=bool(self._first))
        return Passed(None)

    def _patient(self, seconds: float) -> Generator[ChatEvent, None, bool]:
        """Wait as long as the server asks; True if it was stopped meanwhile."""
        until, said = self._now() + seconds, 0
        while (left := until - self._now()) > 0:
            if self._stop.is_set():
                return True
            if round(left) != said:
                said = round(left)
                words = _(
                    "{who} asks you to wait {time}", who=who(self._place.provider), time=seconds_words(left)
                )
                yield Loading(words, 0, 0)
            self._place.wait()
            yield Waiting()
        return self._stop.is_set()

    # -- what comes

    def _chunk(self, item: Event | Answer) -> Chunk:
        """What an item says. Raises `EngineError` for an error, and for what cannot be read."""
        place, begun = self._place, bool(self._first)
        if isinstance(item, Event) and not item.data.strip():
            return Chunk()
        chunk = read_chunk(item.data if isinstance(item, Event) else item.text)
        if isinstance(item, Answer) and (item.status != 200 or chunk is None or not chunk.choices):
            raise refused(item, place.provider, place.model, place.key)
        if chunk is None:
            assert isinstance(item, Event)
            if item.kind == "error":
                raise failed(place.provider, hidden(item.data[:300], place.key), begun)
            self._broken = item.data  # the last piece of a stream that was cut, unless more comes
            return Chunk()
        if chunk.error is not None:
            raise failed(place.provider, hidden(chunk.error, place.key), begun)
        return chunk

    def _took(self, chunk: Chunk) -> Generator[ChatEvent, None, Passed]:
        """Pass a chunk on; the result has a reason if it ends the reply here."""
        now = self._now()
        chunk = chunk._replace(thought=self._whole(chunk.thought), text=self._whole(chunk.text))
        tokens = self._tokens(chunk, now)
        if chunk.text or chunk.thought or chunk.tokens or chunk.calls:
            self._new_tokens += len(chunk.tokens) or 1
            self._first, self._last = self._first or max(now, 1e-9), now
        passed = self._gate.feed(tokens, now)
        if passed.shown is not None:
            yield passed.shown
        for part in chunk.calls if not passed.reason else ():
            if (piece := self._called(part)) is not None:
                yield piece
        if chunk.usage is not None:
            self.counted = chunk.usage
        if chunk.finish:
            self._end, self._ended_at = chunk, now
        if self._first and now - self._reported >= RUNNING_SECONDS and not passed.reason:
            self._reported = now
            yield Running(self.stats())
        return Passed(None, passed.reason, passed.trigger)

    def _whole(self, text: str, *, last: bool = False) -> str:
        """A piece of text in whole characters: half a surrogate pair, as some servers divide an emoji, waits
        for the other half, and without one it becomes U+FFFD.
        """
        return self._characters.decode(text.encode("utf-16-le", "surrogatepass"), last)

    def _tokens(self, chunk: Chunk, now: float) -> tuple[TokenInfo, ...]:
        """The chunk's text in tokens; thoughts stand between the tags that the window folds."""
        found: list[TokenInfo] = []

        def say(text: str) -> None:
            found.extend(self._aligner.finish(now))
            found.append(TokenInfo(UNKNOWN_ID, text, 0.0, 0.0, seconds=now))

        scored = chunk.tokens
        if self._begin and (chunk.text or chunk.thought):
            say(self._begin)
            self._begin = ""
        if chunk.thought:
            if not self._thinks:
                say(f"{PLAIN_TAG[0]}\n")
                self._thinks = True
            found += self._aligner.divide(chunk.thought, scored, now)
            scored = ()
        if chunk.text and self._thinks:
            say(f"\n{PLAIN_TAG[1]}\n\n")
            self._thinks = False
        found += self._aligner.divide(chunk.text, scored, now)
        return tuple(found)

    def _called(self, part: CallPart) -> CallPiece | None:
        """A part of a call as a piece; None for one that belongs to no call."""
        known = part.number in self._calls if part.number is not None else not part.name
        if known and self._calls:
            at = self._calls.index(part.number) if part.number is not None else len(self._calls) - 1
            return CallPiece(at, arguments=part.arguments)
        if not part.name:
            return None
        self._calls.append(part.number)
        at = len(self._calls) - 1
        return CallPiece(at, part.id or f"call_{at}", part.name, part.arguments)

    def _held(self) -> Generator[ChatEvent, None, Passed]:
        """Yield what was held back; the result is the stop that only the end has decided."""
        now = self._now()
        half = self._aligner.divide(self._whole("", last=True), (), now)
        passed = self._gate.feed((*half, *self._aligner.finish(now)), now)
        rest = Passed(None) if passed.reason else self._gate.finish()
        for shown in (passed.shown, rest.shown):
            if shown is not None:
                yield shown
        return Passed(None, passed.reason or rest.reason, passed.trigger or rest.trigger)

    def _server_reason(self) -> tuple[str, str]:
        """Why the server ended the reply."""
        finish, stop = self._end.finish, self._end.stop
        if finish == "length":
            body = self._prepared.call.body or {}
            limited = any(name in body for name in ("max_tokens", "max_completion_tokens"))
            return ("max_tokens" if limited else "context_full"), ""
        if finish == "stop" and isinstance(stop, str):
            return "stop_string", stop
        return "stop_token", ""


def _asks_to_wait(answer: Answer) -> bool:
    return answer.status in (429, 503) and retry_after(answer) is not None
