"""POST /generate and /generate_stream: a prompt goes on, in the form of Text Generation Inference.

Source: its API reference (huggingface.github.io/text-generation-inference), "generate", "generate_stream" and
"compat_generate"; the types of `huggingface_hub`, "TextGenerationInput" and "TextGenerationOutput".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from engine.core import ChatRequest
from engine.lazy_dataclass import dataclass
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange, to_json
from engine.server.openai import parameters
from engine.server.openai.aliases import by_our_names
from engine.server.replies import Begun, Ended, ReplyEvent, Score, Written
from engine.server.service import Service
from engine.server.texts.completions import finish_reason
from engine.server.texts.scoring import completion_work

_TOKENS = 100
_MOST_TOP = 5
_SAMPLED = ("temperature", "top_k", "top_p", "typical_p")
"""Without any of these and `do_sample`, the likeliest token is taken."""
_NAMES = {"max_new_tokens": "max_tokens", "grammar": "response_format"}
_REFUSED = {
    "truncate": "send a shorter text", "watermark": "leave it out",
    "adapter_id": "start the server with the adapter",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Call:
    """What a body asks for: `top` alternatives of each token, `start` before the text."""

    prompt: str
    request: ChatRequest
    start: str
    top: int
    details: bool
    scored_prompt: bool


@dataclass
class _Text:
    """The text while it is written; `prompt` are the scores of the prompt's tokens, if requested."""

    call: _Call
    text: str = ""
    scores: list[Score] = field(default_factory=list)
    prompt: Sequence[Score] | None = None
    ended: Ended | None = None

    def feed(self, event: ReplyEvent) -> Written | None:
        """The further text in an event. A stop string is a part of it, at its end."""
        if isinstance(event, Ended):
            self.ended = event
            self.text += event.trigger if event.reason == "stop_string" else ""
        if not isinstance(event, Written):
            return None
        if self.call.scored_prompt and self.prompt is None:
            self.prompt = event.scores
            return None
        self.text += event.text
        self.scores += event.scores
        return event

    @property
    def ends(self) -> dict[str, Any]:
        """Why it ended, its tokens, and its seed where it was sampled."""
        assert self.ended is not None
        reason = "stop_sequence" if self.ended.reason == "stop_string" else "eos_token"
        sampled = self.call.request.sampler.temperature > 0
        return {
            "finish_reason": "length" if finish_reason(self.ended) == "length" else reason,
            "generated_tokens": self.ended.stats.new_tokens,
            "seed": self.ended.stats.seed if sampled else None,
        }

    def whole(self) -> dict[str, Any]:
        """The answer."""
        found: dict[str, Any] = {"generated_text": self.call.start + self.text}
        if self.call.details:
            prompt = [_token(score) for score in self.prompt or ()]
            tokens = [{**_token(score), "special": False} for score in self.scores]
            found["details"] = {**self.ends, "prefill": prompt, "tokens": tokens}
            if self.call.top:
                found["details"]["top_tokens"] = [_tops(score) for score in self.scores]
        return found


def _token(score: Score) -> dict[str, Any]:
    return {"id": score.id, "text": score.text, "logprob": score.logprob}


def _tops(score: Score) -> list[dict[str, Any]]:
    return [{**_token(one), "special": False} for one in score.top]


def _call(fields: Fields, model: ServedModel, *, stream: bool) -> _Call:
    """What a body asks for. Raises `ApiError`."""
    if not fields.text("inputs"):
        raise fields.wrong("inputs", "a text")
    given = fields.part("parameters") or Fields({}, "parameters")
    for name, advice in _REFUSED.items():
        if given.get(name):
            raise bad_request(f"{given.place(name)} is not supported; {advice}.", given.place(name))
    scored = given.flag("decoder_input_details")
    if scored and stream:
        raise bad_request("decoder_input_details needs an answer that is not streamed.", "parameters")
    top = given.whole("top_n_tokens", 0, _MOST_TOP) or 0
    sampled = given.flag("do_sample") or any(given.get(name) is not None for name in _SAMPLED)
    own = by_our_names(given.renamed(_NAMES).changed({"grammar": None, "do_sample": sampled}))
    parameters.checked_choices(own, 1)
    most = parameters.most_tokens(own, "max_tokens")
    request = ChatRequest(
        (),
        sampler=parameters.sampler(own, dict(model.defaults)),
        stops=parameters.stops(own, _TOKENS if most is None else most),
        constraint=parameters.constraint(own, own.part("response_format")),
        output=parameters.output(top),
        plain=True,
    )
    text = fields.text("inputs")
    start = text if given.flag("return_full_text") else ""
    return _Call(text, request, start, top, given.flag("details") or scored, scored)


async def _answer(service: Service, exchange: Exchange, fields: Fields, *, stream: bool) -> dict[str, Any]:
    """The answer that a body asks for; of a stream its last event. Raises `ApiError`."""
    call = _call(fields, service.model(fields), stream=stream)
    work = completion_work(call.prompt, call.request, call.top, echo=call.scored_prompt, write=True)
    service.start(exchange, [work])
    text, last, index = _Text(call), dict[str, Any](), 0
    async for _, event in service.events(exchange):
        if stream and isinstance(event, Begun) and not exchange.streaming:
            await exchange.start_stream()
        written = text.feed(event)
        for one in _events(written) if stream and written is not None else ():
            if last:
                await exchange.send_event(last)
            index += 1
            last = {"index": index, **one, "generated_text": None, "details": None}
    if not stream:
        return text.whole()
    assert text.ended is not None
    end = {**text.ends, "input_length": text.ended.stats.prompt_tokens}
    last = last or {"index": 0, "token": {"id": 0, "text": "", "logprob": 0.0, "special": True}}
    if text.ended.reason == "stop_string":  # the last token is at its end
        last["token"]["text"] += text.ended.trigger
    return {**last, "generated_text": call.start + text.text, "details": end}


def _events(written: Written) -> list[dict[str, Any]]:
    """The tokens of a piece of text; all of it is the last one's where they are not whole characters."""
    apart = "".join(score.text for score in written.scores) == written.text
    found = []
    for at, score in enumerate(written.scores):
        end = written.text if at == len(written.scores) - 1 else ""
        token = {**_token(score), "text": score.text if apart else end, "special": False}
        found.append({"token": token, "top_tokens": _tops(score)})
    return found


async def generate(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text that follows a prompt."""
    return await _answer(service, exchange, Fields(await exchange.read()), stream=False)


async def generate_stream(service: Service, exchange: Exchange) -> None:
    """The same as events, one a token."""
    await _streamed(service, exchange, Fields(await exchange.read()))


async def _streamed(service: Service, exchange: Exchange, fields: Fields) -> None:
    await exchange.send_event(await _answer(service, exchange, fields, stream=True))
    await exchange.end_stream(done=False)


async def generate_either(service: Service, exchange: Exchange, fields: Fields) -> None:
    """Either, as `stream` says; the whole text in a list."""
    if fields.flag("stream"):
        await _streamed(service, exchange, fields)
    else:
        found = await _answer(service, exchange, fields, stream=False)
        await exchange.send_body(b"[" + to_json(found) + b"]")
