"""RemoteChat: a model of a server as a `ChatSource`."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence

from engine.core import ChatEvent, ChatRequest, Foreseen, Message, ModelInfo, PromptSize, Trimmed
from engine.errors import EngineError, RemoteError
from engine.printable import one_line
from engine.remote.capabilities import Capabilities
from engine.remote.client import Client
from engine.remote.estimate import TokenEstimate, shares_of
from engine.remote.parameters import no_switch, no_tools
from engine.remote.pictures import YES
from engine.remote.provider import Provider, model_address, shown_name
from engine.remote.reply import Place, Reply
from engine.remote.request import message_json, prepare
from engine.remote.trouble import who
from engine.settings import StopSettings
from engine.text.template.reasoning import PLAIN_TAG
from engine.words import _

MOMENT_SECONDS = 0.05
"""The longest pause between two looks at the stop event."""
COUNT_SECONDS = 2.0
"""Counting the tokens of a text may hold up other replies so long."""
COUNT_PAUSE = 30.0
"""A server that did not count in that time is not asked again before these seconds are over."""
UNKNOWN_CONTEXT = 1 << 24
"""Stands for a context whose length is not known, where a number is needed: the server will refuse."""


class RemoteChat:
    """Answers from a model of a server (`core.ChatSource`). One thread uses it; several replies may be
    written at the same time, each over a connection of its own.

    Nothing is sent before `stream`, except texts to be counted if `provider.counts_tokens` allows that.
    Requests that are `local_only` are never sent.
    """

    def __init__(self, provider: Provider, model: str, capabilities: Capabilities, key: str = "") -> None:
        """Raises `BadSetting` if the words would go over a network unencrypted without consent."""
        self._client = Client(provider, key)
        self.provider, self.model, self.capabilities = provider, model, capabilities
        self.context_length = provider.context_length or capabilities.context_length
        self._news = threading.Event()
        self._place = Place(provider, key, model, self._wait, self._news.set, self.context_length)
        self._place.finishes = capabilities.finishes
        self._estimate = TokenEstimate(capabilities.pictures == YES)
        self._no_counts_until = 0.0
        self.info = remote_info(provider, model, capabilities)

    def _wait(self) -> None:
        if not any(exchange.has_items for exchange in self._place.running):
            self._news.wait(MOMENT_SECONDS)
        self._news.clear()

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply: `Trimmed` if turns had to be left out, `Loading` while the server has not
        begun, `Text` with `Running` now and then, one `Done`; `Waiting` while nothing comes.

        Setting `stop` closes the connection at once. Raises `BadSetting` for what the server cannot do,
        `RemoteError` and `ContextTooLong` for what goes wrong there; what had come before is valid.
        """
        self._check_private(request)
        dropped = 0 if request.plain else self._too_many(request)
        if dropped:
            yield Trimmed(dropped)
            request = dataclasses.replace(request, messages=_without(request.messages, dropped))
        prepared = prepare(request, self.model, self.capabilities, self.provider.name)
        last = request.messages[-1].content if request.continue_last and request.messages else ""
        reply = Reply(
            self._place, prepared, stop,
            in_thought=last.lstrip().startswith(PLAIN_TAG[0]) and PLAIN_TAG[1] not in last,
            estimated=self._estimate.messages(request.messages), seed=request.sampler.seed or 0,
        )  # fmt: skip
        yield from reply.events()
        if reply.counted is not None:
            self._estimate.correct(request.messages, reply.counted.prompt)

    def count(self, text: str) -> int:
        """The number of tokens of a text: by the server if it may be asked, else estimated."""
        return self._counted(text) or self._estimate.text(text)

    def size(self, request: ChatRequest) -> PromptSize:
        """The length of a request's whole prompt; not exact unless the server counts."""
        prompt, exact = self._measure(request)
        context = self.context_length or UNKNOWN_CONTEXT
        return PromptSize(prompt, context, _reserved(request.stops, context), exact)

    def foresee(self, request: ChatRequest) -> Foreseen:
        """The tokens of the prompt, estimated unless the server counts; none are known to be cached."""
        prompt, exact = self._measure(request)
        dropped = self._too_many(request, prompt)
        messages = _without(request.messages, dropped)
        if dropped:
            prompt, exact = self._estimate.messages(messages), False
        shares = shares_of(prompt, self._estimate.shares(messages))
        return Foreseen(prompt, 0, self.context_length, dropped, shares, exact)

    def described(self, adapters: Sequence[str]) -> ModelInfo:
        """`info`: a server is sent no adapters."""
        return self.info

    def close(self) -> None:
        """Close all connections."""
        for exchange in tuple(self._place.running):
            exchange.abort()
            exchange.join(1.0)

    def _check_private(self, request: ChatRequest) -> None:
        if request.local_only:
            raise RemoteError(
                _(
                    "This chat stays on this computer, so it was not sent to {who}. Choose a model "
                    "on this computer, or turn off “This computer only”.",
                    who=who(self.provider),
                )
            )

    # -- counting

    def _measure(self, request: ChatRequest) -> tuple[int, bool]:
        """Tokens of a prompt, and whether the server has counted them."""
        counted = 0
        seen = self.capabilities.pictures == YES and any(each.pictures for each in request.messages)
        if self.capabilities.tokenize == "vllm" and not (request.local_only or seen) and request.messages:
            counted = self._counted(request.messages[-1].content if request.plain else request.messages)
        return (counted, True) if counted else (self._estimate.messages(request.messages), False)

    def _counted(self, text: str | tuple[Message, ...]) -> int:
        """The server's count; 0 if it cannot be asked, or does not answer soon."""
        kind = self.capabilities.tokenize
        if not (kind and text and self.provider.counts_tokens) or time.monotonic() < self._no_counts_until:
            return 0
        sent = text if isinstance(text, str) else [message_json(message) for message in text]
        try:
            return self._client.token_count(kind, self.model, sent, threading.Event(), COUNT_SECONDS)
        except EngineError:
            self._no_counts_until = time.monotonic() + COUNT_PAUSE
            return 0

    def _too_many(self, request: ChatRequest, prompt: int = 0) -> int:
        """How many of the oldest messages must be left out so that the rest and a reply fit."""
        if not self.context_length or request.stops.when_full == "stop" or not request.messages:
            return 0
        room = self.context_length - _reserved(request.stops, self.context_length)
        estimated = self._estimate.messages(request.messages)
        if (prompt or estimated) <= room:
            return 0
        if not prompt:
            prompt = self._measure(request)[0]
        shares = shares_of(prompt, self._estimate.shares(request.messages))
        first = int(request.messages[0].role == "system")
        dropped = 0
        while sum(shares[:first]) + sum(shares[first + dropped :]) > room:
            if first + dropped >= len(shares) - 1 - request.continue_last:
                break  # the last turn stays: the server may still take it
            dropped += 1
        while (
            dropped and first + dropped < len(shares) - 1 and request.messages[first + dropped].role != "user"
        ):
            dropped += 1  # templates want the user's turn first
        return dropped


def remote_info(provider: Provider, model: str, capabilities: Capabilities) -> ModelInfo:
    """The facts about a model of a server; it has no file, and its weights are not known."""
    lacks = []
    if not capabilities.continues:
        lacks.append(
            (
                "continue",
                _("{provider} starts a new reply instead of continuing one.", provider=provider.name),
            )
        )
    if not capabilities.completions:
        lacks.append(
            (
                "plain",
                _("{provider} does not continue plain text, which a notebook needs.", provider=provider.name),
            )
        )
    if not capabilities.top_logprobs:
        lacks.append(
            ("probabilities", _("{provider} sends no probabilities of tokens.", provider=provider.name))
        )
    if capabilities.pictures != YES:
        lacks.append(("pictures", _no_pictures(provider, model, capabilities)))
    if not capabilities.thinking:
        lacks.append(("thinking", no_switch(provider.name)))
    if not capabilities.tools:
        lacks.append(("tools", no_tools(provider.name)))
    return ModelInfo(
        path=model_address(provider.id, model), name=shown_name(model), architecture=f"remote {provider.id}",
        format="remote", parameters=0, bits_per_weight=0.0, weights_bytes=0, layers=0,
        context_length=provider.context_length or capabilities.context_length, vocab_size=0,
        kv_bytes_per_token=0, stop_token_ids=(), has_chat_template=capabilities.chat, backend="remote",
        thinking=(PLAIN_TAG,), server=who(provider), host=provider.host,
        server_version=capabilities.server, lacks=tuple(lacks),
        thinking_levels=tuple((level, "") for level in capabilities.thinking),
    )  # fmt: skip


def _no_pictures(provider: Provider, model: str, capabilities: Capabilities) -> str:
    """Why a model gets no pictures."""
    name, server, why = shown_name(model), provider.name, one_line(capabilities.pictures_why).rstrip(".")
    if not capabilities.pictures:
        return _(
            "It is not known whether {name} accepts pictures. Test it on the page of {server}.",
            name=name, server=server,
        )  # fmt: skip
    if why:
        return _("{name} on {server} does not accept pictures: {why}.", name=name, server=server, why=why)
    return _("{name} on {server} does not accept pictures.", name=name, server=server)


def _without(messages: tuple[Message, ...], dropped: int) -> tuple[Message, ...]:
    """The messages without the oldest ones; a system message stays."""
    first = int(bool(messages) and messages[0].role == "system")
    return (*messages[:first], *messages[first + dropped :])


def _reserved(stops: StopSettings, context: int) -> int:
    """Tokens that are kept free for the reply."""
    return min(stops.max_tokens or context // 4, context // 4)
