"""POST /v1/chat/completions. Source: OpenAI's API reference; vLLM's extensions where they are named alike."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.core import CallPiece, ChatRequest, Message
from engine.lazy_dataclass import dataclass
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.progress import Progress
from engine.server.openai import parameters
from engine.server.openai.aliases import by_our_names
from engine.server.openai.conversation import messages_of
from engine.server.openai.tools import call_deltas, called, offer_of, whole_calls
from engine.server.replies import FINGERPRINT, Begun, Delta, Ended, Score, Writer, chat_work, usage
from engine.server.service import Service

MISTRALS = "mistral-client-"
"""How Mistral's own clients begin their name."""
_WHOLE_CALLS = (MISTRALS, "ai-sdk/mistral/", "ai-sdk/xai/")
"""How clients begin their names that read the calls of a stream as Mistral's and xAI's servers send them."""
_GROQS = ("Groq/", "AsyncGroq/", "ai-sdk/groq/")
"""Those of Groq's API, who find the usage of a stream in a place of its own."""
_USAGE = (
    MISTRALS, *_GROQS, "ai-sdk/", "Cerebras/", "AsyncCerebras/", "Perplexity/", "AsyncPerplexity/",
    "Together/", "AsyncTogether/",
)  # fmt: skip
"""Those of servers that send the usage of a stream unasked; the AI SDK has a client for each of these."""


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A chat request: what the engine is asked for each choice, and how the answer is sent."""

    model: ServedModel
    requests: tuple[ChatRequest, ...]
    logprobs: int | None
    stream: bool
    include_usage: bool
    progress: bool = False
    old_form: bool = False
    custom: frozenset[str] = frozenset()

    def writers(self) -> list[Writer]:
        """A writer for each choice."""
        request = self.requests[0]
        begun = request.messages[-1].content if request.continue_last else ""
        return [Writer(self.model.thinking, begun, self.custom) for _ in self.requests]


def chat_call(fields: Fields, model: ServedModel, most_choices: int) -> ChatCall:
    """What a body asks for. Raises `ApiError`."""
    fields = by_our_names(fields)
    messages = messages_of(fields, pictures=model.reads_pictures)
    # the second is Mistral's and DeepSeek's way to say it
    continued = fields.flag("continue_final_message") or fields.parts("messages")[-1].flag("prefix")
    if continued and fields.flag("add_generation_prompt"):
        raise bad_request(
            "continue_final_message and add_generation_prompt exclude each other.", "continue_final_message"
        )
    if continued and messages[-1].role != "assistant":
        raise bad_request("continue_final_message needs a last message of the assistant.", "messages")
    if prefix := fields.text("response_prefix"):
        if continued:
            raise bad_request(
                "response_prefix and continue_final_message exclude each other.", "response_prefix"
            )
        messages, continued = (*messages, Message("assistant", prefix)), True
    if set(fields.texts("modalities", 8)) - {"text"}:
        raise fields.wrong("modalities", '["text"], the only kind of reply that is written,')
    offer = offer_of(fields)
    most_tokens = parameters.most_tokens(fields, "max_completion_tokens")
    if most_tokens is None:
        most_tokens = parameters.most_tokens(fields, "max_tokens")
    logprobs = parameters.logprobs(fields)
    base = ChatRequest(
        messages,
        stops=parameters.stops(fields, most_tokens),
        continue_last=continued,
        begin_reply=fields.flag("add_generation_prompt", True),
        constraint=parameters.constraint(fields, fields.part("response_format")),
        output=parameters.output(logprobs),
        guidance=parameters.guidance(fields),
        speculation=parameters.speculation(fields),
        report_prompt=True,
        tools=offer.tools,
        tool_choice=offer.choice,
        parallel_tool_calls=offer.parallel,
        template_variables=parameters.template_variables(fields),
        thinking=parameters.chat_thinking(fields),
    )
    defaults = dict(model.defaults)
    count = parameters.checked_choices(fields, most_choices)
    stream_options = fields.part("stream_options")
    return ChatCall(
        model,
        tuple(replace(base, sampler=parameters.sampler(fields, defaults, i)) for i in range(count)),
        logprobs,
        fields.flag("stream"),
        stream_options is not None and stream_options.flag("include_usage"),
        fields.flag("return_progress"),
        offer.old_form,
        offer.custom,
    )


async def chat_completions(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint."""
    fields = Fields(await exchange.read())
    call = chat_call(fields, service.model(fields), service.options.bounds.choices)
    service.start(exchange, [chat_work(request, call.logprobs) for request in call.requests])
    head = {
        "id": "chatcmpl-" + secrets.token_hex(12),
        "object": "chat.completion.chunk" if call.stream else "chat.completion",
        "created": int(time.time()),
        "model": call.model.id,
        "system_fingerprint": FINGERPRINT,
        "service_tier": "default",
    }
    if call.stream:
        await _stream(service, exchange, call, head)
        return None
    return await _whole(service, exchange, call, head)


async def _whole(
    service: Service, exchange: Exchange, call: ChatCall, head: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The answer as one object."""
    writers = call.writers()
    found: list[list[Delta]] = [[] for _ in writers]
    async for number, event in service.events(exchange):
        if (delta := writers[number].feed(event)) is not None:
            found[number].append(delta)
    choices = [
        {
            "index": index,
            "message": _message(deltas, call, _thoughts(exchange)),
            "logprobs": _logprobs([score for delta in deltas for score in delta.scores])
            if call.logprobs is not None
            else None,
            "finish_reason": _finish(writer, call),
            "stop_reason": writer.stop_reason,
        }
        for index, (writer, deltas) in enumerate(zip(writers, found, strict=True))
    ]
    return {**head, "choices": choices, "usage": usage_of(writers)}


def _finish(writer: Writer, call: ChatCall) -> str:
    reason = writer.finish_reason
    return "function_call" if call.old_form and reason == "tool_calls" else reason


def _message(deltas: Sequence[Delta], call: ChatCall, thoughts: Sequence[str]) -> dict[str, Any]:
    reasoning = "".join(delta.reasoning for delta in deltas)
    text = "".join(delta.text for delta in deltas)
    made = [delta.call for delta in deltas if delta.call is not None]
    calls = called(made, call.custom, old_form=call.old_form)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not text else text,
        "refusal": None,
    }
    return message | _reasoning(reasoning, thoughts) | calls


def _thoughts(exchange: Exchange) -> Sequence[str]:
    """What a client calls a thought: both names that are in use. Programs in Rust, which mostly do not say
    their own name, read one of them and take the other for the same field, which must not come twice.
    """
    return ("reasoning", "reasoning_content") if exchange.program else ("reasoning_content",)


def _reasoning(text: str, names: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(names, text) if text else {}


async def _stream(service: Service, exchange: Exchange, call: ChatCall, head: Mapping[str, Any]) -> None:
    """The answer as events."""
    writers = call.writers()
    nameless, thoughts = _is_langchains_for_mistral(exchange), _thoughts(exchange)
    whole = nameless or exchange.program.startswith(_WHOLE_CALLS)
    unasked = not call.include_usage and (nameless or exchange.program.startswith(_USAGE))
    pieces: list[list[CallPiece]] = [[] for _ in writers]
    more: dict[str, Any] = {"usage": None} if call.include_usage else {}
    progress = Progress(call.progress)

    async def send(index: int, delta: Mapping[str, Any], **rest: Any) -> None:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | rest
        await exchange.send_event({**head, "choices": [choice], **more, **progress.of(number, event)})

    async for number, event in service.events(exchange):
        if isinstance(event, Begun):
            if not exchange.streaming:
                await exchange.start_stream()
            await send(number, {"role": "assistant", "content": None if call.requests[0].tools else ""})
            continue
        if progress.of(number, event):
            await send(number, {})
        writer = writers[number]
        if (delta := writer.feed(event)) is not None:
            scores = {"logprobs": _logprobs(delta.scores)} if call.logprobs is not None else {}
            text = _reasoning(delta.reasoning, thoughts) | ({"content": delta.text} if delta.text else {})
            if delta.call is None or text:
                await send(number, text, **scores)
            if whole:
                pieces[number] += [delta.call] if delta.call is not None else []
            else:
                for piece in call_deltas(delta.call, custom=delta.custom, old_form=call.old_form):
                    await send(number, piece)
        if isinstance(event, Ended):
            if pieces[number]:
                await send(number, {"tool_calls": whole_calls(pieces[number], call.custom)})
            if all(writer.ended for writer in writers):
                if unasked:
                    more["usage"] = usage_of(writers)
                if _is_groqs(exchange):
                    more["x_groq"] = {"id": head["id"], "usage": usage_of(writers)}
            await send(number, {}, finish_reason=_finish(writer, call), stop_reason=writer.stop_reason)
    if call.include_usage:
        await exchange.send_event({**head, "choices": [], "usage": usage_of(writers)})
    await exchange.end_stream()


def _is_groqs(exchange: Exchange) -> bool:
    """Whether a client is for Groq's API, by its name or, since LangChain's has another one, its address."""
    address: bytes = exchange.scope.get("raw_path", b"")
    return exchange.program.startswith(_GROQS) or address.startswith(b"/openai/v1/")


def _is_langchains_for_mistral(exchange: Exchange) -> bool:
    """Whether a client is LangChain's for Mistral. It has no name of its own, only that of httpx, but asks
    for events, which OpenAI's clients do not.

    It takes each delta of a call for a whole call. Others join deltas, and repeated names would be joined.
    """
    accepted = dict(exchange.scope["headers"]).get(b"accept")
    return exchange.program.startswith("python-httpx/") and accepted == b"text/event-stream"


def usage_of(writers: Sequence[Writer]) -> dict[str, Any]:
    """The counts of tokens of all choices."""
    ends = [writer.ended for writer in writers if writer.ended is not None]
    return usage(ends, sum(writer.reasoning_tokens for writer in writers))


def _logprobs(scores: Sequence[Score]) -> dict[str, Any]:
    return {"content": scores_json(scores)}


def scores_json(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Scores of tokens in OpenAI's form, with their alternatives."""
    return [{**_score(score), "top_logprobs": [_score(one) for one in score.top]} for score in scores]


def _score(score: Score) -> dict[str, Any]:
    return {"token": score.text, "logprob": score.logprob, "bytes": list(score.bytes)}
