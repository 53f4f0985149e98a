"""POST /v1/completions: plain text goes on from a prompt; with `echo` and `logprobs` a prompt is scored.

Source: OpenAI's API reference, "Completions"; what lm-evaluation-harness reads of it (`local-completions`).
"""

from __future__ import annotations

import codecs
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from engine.core import ChatRequest
from engine.lazy_dataclass import dataclass
from engine.server.failure import bad_request
from engine.server.fields import Fields, is_ids
from engine.server.host import ServedModel, Work
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.progress import Progress
from engine.server.openai import parameters
from engine.server.openai.aliases import by_our_names
from engine.server.options import Bounds
from engine.server.replies import FINGERPRINT, Begun, Ended, Prompted, ReplyEvent, Score, Written, usage
from engine.server.service import Service
from engine.server.texts.infill import Infill
from engine.server.texts.scoring import completion_work

_DECODER = codecs.getincrementaldecoder("utf-8")
_DEFAULT_TOKENS = 16
_CUT = ("max_tokens", "context_full", "time_limit", "loop")

Prompt = str | tuple[int | str, ...]
"""A text, or token ids; texts among these are tokenized in their places."""


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """A completion request: prompts with the settings of each choice; `logprobs` as in `scoring`."""

    model: ServedModel
    works: tuple[Work, ...]
    choices: int
    logprobs: int | None
    stream: bool
    include_usage: bool
    progress: bool


@dataclass
class _Choice:
    """One choice while it is written; `offsets` are where its tokens stand in its text, those inside a
    character where that stands; `scores` unless it is streamed.
    """

    text: str = ""
    scores: list[Score] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    ended: Ended | None = None
    at: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _DECODER("replace"))

    def feed(self, event: ReplyEvent) -> Written | None:
        """What an event adds."""
        if isinstance(event, Ended):
            self.ended = event
        if not isinstance(event, Written):
            return None
        if not self.offsets and event.text[:1] not in ("", " "):  # some vocabularies put a space before it
            self.at = -next((score.bytes for score in event.scores if score.bytes), b"").startswith(b" ")
        for score in event.scores:
            self.offsets.append(max(0, self.at))
            self.at += len(self.decoder.decode(score.bytes))
        self.text += event.text
        return event

    @property
    def ends(self) -> dict[str, Any]:
        """Why it ended."""
        assert self.ended is not None
        return {
            "finish_reason": finish_reason(self.ended),
            "stop_reason": self.ended.trigger if self.ended.reason == "stop_string" else None,
        }


def finish_reason(ended: Ended) -> str:
    """OpenAI's word for the end of a text."""
    return "length" if ended.reason in _CUT else "stop"


def prompts_of(fields: Fields, name: str, most: int) -> Sequence[Prompt]:
    """One prompt or several: a text, a list of token ids, or a list of either. Raises `ApiError`."""
    value = fields.get(name)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise fields.wrong(name, "a text, a list of token ids, or a list of these")
    if is_ids(value):
        return (tuple(value),)
    if len(value) > most:
        raise bad_request(f"{name} has {len(value)} items; at most {most} are accepted.", name)
    if not all(isinstance(item, str) or (is_ids(item) and item) for item in value):
        raise fields.wrong(name, "a text, a list of token ids, or a list of these")
    return [item if isinstance(item, str) else tuple(item) for item in value]


def completion_call(fields: Fields, model: ServedModel, bounds: Bounds) -> CompletionCall:
    """What a body asks for. Raises `ApiError`."""
    fields = by_our_names(fields)
    prompts: Sequence[Prompt | Infill] = prompts_of(fields, "prompt", bounds.prompts)
    most_tokens, write = parameters.most_tokens(fields, "max_tokens", 0), fields.get("max_tokens") != 0
    most_tokens = _DEFAULT_TOKENS if most_tokens is None else most_tokens
    logprobs = fields.whole("logprobs", 0, parameters.MOST_LOGPROBS)
    echo, suffix = fields.flag("echo"), fields.text("suffix")
    if suffix:
        if echo or not all(isinstance(prompt, str) for prompt in prompts):
            raise bad_request("suffix needs a prompt that is a text, and no echo.", "suffix")
        prompts = [Infill(prompt, suffix) for prompt in prompts if isinstance(prompt, str)]
    if not (write or echo):
        raise bad_request("max_tokens is 0, which only scores the prompt; set echo to true.", "max_tokens")
    base = ChatRequest(
        (),
        stops=parameters.stops(fields, most_tokens),
        constraint=parameters.constraint(fields, fields.part("response_format")),
        output=parameters.output(logprobs),
        guidance=parameters.guidance(fields),
        speculation=parameters.speculation(fields),
        plain=True,
    )
    defaults, count = dict(model.defaults), parameters.checked_choices(fields, bounds.choices)
    if len(prompts) * count > bounds.prompts:
        raise bad_request(
            f"The request asks for {len(prompts) * count:,} completions, but at most {bounds.prompts:,} are "
            "accepted.",
            "n",
        )
    samplers = [parameters.sampler(fields, defaults, choice) for choice in range(count)]
    bos = fields.flag("add_bos_token", True)
    works = tuple(
        completion_work(prompt, replace(base, sampler=each), logprobs, echo=echo, write=write, bos=bos)
        for prompt in prompts
        for each in samplers
    )
    options = fields.part("stream_options")
    usage_asked = options is not None and options.flag("include_usage")
    return CompletionCall(
        model, works, count, logprobs, fields.flag("stream"), usage_asked, fields.flag("return_progress")
    )


async def completions(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint."""
    fields = Fields(await exchange.read())
    call = completion_call(fields, service.model(fields), service.options.bounds)
    service.start(exchange, call.works)
    head = {
        "id": "cmpl-" + secrets.token_hex(12),
        "object": "text_completion",
        "created": int(time.time()),
        "model": call.model.id,
        "system_fingerprint": FINGERPRINT,
    }
    choices = [_Choice() for _ in call.works]
    if call.stream:
        await _stream(service, exchange, call, head, choices)
        return None
    async for number, event in service.events(exchange):
        if (piece := choices[number].feed(event)) is not None:
            choices[number].scores += piece.scores
    found = [
        {
            "index": index,
            "text": choice.text,
            "logprobs": _logprobs(choice.scores, call.logprobs, choice.offsets)
            if call.logprobs is not None
            else None,
            **choice.ends,
        }
        for index, choice in enumerate(choices)
    ]
    return {**head, "choices": found, "usage": _usage(choices, call.choices)}


async def _stream(
    service: Service,
    exchange: Exchange,
    call: CompletionCall,
    head: Mapping[str, Any],
    choices: Sequence[_Choice],
) -> None:
    """The answer as events."""
    more = {"usage": None} if call.include_usage else {}
    progress = Progress(call.progress)

    async def send(index: int, text: str, **rest: Any) -> None:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None} | rest
        await exchange.send_event({**head, "choices": [choice], **more, **progress.of(number, event)})

    async for number, event in service.events(exchange):
        if isinstance(event, Begun | Prompted) and not exchange.streaming:
            await exchange.start_stream()
        if progress.of(number, event):
            await send(number, "")
        choice = choices[number]
        if (piece := choice.feed(event)) is not None:
            scored = call.logprobs is not None
            offsets = choice.offsets[len(choice.offsets) - len(piece.scores) :]
            scores = {"logprobs": _logprobs(piece.scores, call.logprobs, offsets)} if scored else {}
            await send(number, piece.text, **scores)
        if isinstance(event, Ended):
            await send(number, "", **choice.ends)
    if call.include_usage:
        await exchange.send_event({**head, "choices": [], "usage": _usage(choices, call.choices)})
    await exchange.end_stream()


def _usage(choices: Sequence[_Choice], each: int) -> dict[str, Any]:
    """The counts of all choices; each prompt counts once."""
    ends = [choice.ended for choice in choices if choice.ended is not None]
    found = usage(ends)
    found["prompt_tokens"] = sum(end.stats.prompt_tokens for end in ends[::each])
    found["prompt_tokens_details"] = {"cached_tokens": sum(end.stats.cached_tokens for end in ends[::each])}
    found["total_tokens"] = found["prompt_tokens"] + found["completion_tokens"]
    return found


def _logprobs(scores: Sequence[Score], count: int | None, offsets: Sequence[int]) -> dict[str, Any]:
    """OpenAI's lists, one item a token. The first token of a text has no log-probability."""
    return {
        "tokens": [score.text for score in scores],
        "token_logprobs": [score.logprob for score in scores],
        "top_logprobs": [
            None if score.logprob is None else {one.text: one.logprob for one in score.top}
            for score in scores
        ]
        if count
        else None,
        "text_offset": [*offsets],
    }
